"""Hard-example mining: trains on the harder half of each batch, chosen by a small proxy network.

After airbench96_faster.py (github.com/KellerJordan/cifar10-airbench): late in training most images
teach nothing more, and a small network, the proxy, finds the others. The proxy classifies the whole
batch; both networks learn from the half with the highest losses, the proxy only at every fourth
step.

airbench trains the proxy first and stores its choices. Here each step trains both, so that
nothing is read twice and jobs resume as usual. The proxy learns like the large network, and not as
airbench's does: with its first bias, with lookahead, and with momentum that continues at the steps
between.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

import model_base
from cifar10.options.family import PROXY
from cifar10.training import towers
from cifar10.training.step_parts import Step, StepPart

_LEARNS_EVERY = 4  # Global steps: its backward pass costs twice as much as its forward pass.


class HarderHalf(NamedTuple):
  """The harder half of a tower's batch of n images."""

  images: tf.Tensor  # [(n + 1) / 2, 32, 32, 3]
  labels: tf.Tensor  # int32 [(n + 1) / 2]
  cross_entropy: tf.Tensor  # float32 scalar, of the proxy, mean over these images
  gradients: towers.GradientsAndVariables  # The proxy's; 0 at steps at which it does not learn.


class Part(StepPart):
  """Adds the proxy to a training step."""

  def __init__(self, step: Step):
    super().__init__(step)
    self._halves: list[HarderHalf] = []

  def examples(self, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    step = self._step
    assert step.proxy
    smoothing = step.hparams.label_smoothing
    half = harder_half(images, labels, step.proxy, step.weight_decay, smoothing)
    self._halves.append(half)
    return half.images, half.labels

  def gradients(self) -> towers.GradientsAndVariables:
    gradients = [half.gradients for half in self._halves]
    return towers.average_gradients(gradients, self._step.mean_device)

  def loss_parts(self) -> dict[str, tf.Tensor]:
    total = tf.add_n([half.cross_entropy for half in self._halves])
    return {'proxy_cross_entropy': total / len(self._halves)}


def harder_half(
  images: tf.Tensor,
  labels: tf.Tensor,
  proxy: model_base.Layers,
  weight_decay: Callable[[Any], float],
  label_smoothing: float = 0.0,
) -> HarderHalf:
  """Returns the half with the highest cross-entropies. The proxy normalises by the batch.

  Arguments are as for `towers.build_tower`, with the proxy for the network and n known.
  """
  count = (images.shape[0] + 1) // 2
  with tf.compat.v1.variable_scope(PROXY):
    logits = proxy.forward_pass(images)
  losses = towers.cross_entropies(labels, logits, label_smoothing)
  hardest, rows = tf.math.top_k(losses, count, sorted=False)
  variables = towers.trained_variables(proxy)
  cross_entropy = tf.reduce_mean(hardest)
  loss = cross_entropy + towers.weight_penalty(proxy, weight_decay)
  step = tf.compat.v1.train.get_or_create_global_step()
  # Momentum changes variables even for gradient 0, so zeros wait for the forward pass.
  with tf.control_dependencies([loss]):
    is_due = tf.equal(step % _LEARNS_EVERY, 0)
  gradients = tf.cond(
    is_due,
    lambda: tf.gradients(loss, variables),
    lambda: [tf.zeros(variable.shape) for variable in variables],
  )
  images, labels = (tf.gather(values, rows) for values in (images, labels))
  return HarderHalf(images, labels, cross_entropy, list(zip(gradients, variables)))
