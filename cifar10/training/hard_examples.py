"""Hard-example mining: trains on the harder half of each batch, chosen by a small proxy network.

After airbench96_faster.py (github.com/KellerJordan/cifar10-airbench): late in training most images
teach nothing more, and a small network, the proxy, finds the others. airbench trains the proxy
first and stores its choices. Here each step trains both, so that nothing is read twice and jobs
resume as usual; the proxy learns with all that the large network's optimizer has.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

import model_base
from cifar10.options.families import PROXY
from cifar10.training import towers

_LEARNS_EVERY = 4  # Global steps: its backward pass costs twice as much as its forward pass.


class HarderHalf(NamedTuple):
  """The half of a tower's n images that is left to learn from, and what chose it."""

  images: tf.Tensor  # [(n + 1) / 2, 32, 32, 3], those with the highest cross-entropies
  labels: tf.Tensor  # int32 [(n + 1) / 2], or float32 [(n + 1) / 2, classes]
  cross_entropy: tf.Tensor  # float32 scalar, the proxy's mean over them
  gradients: towers.Gradients  # of the proxy; 0 at steps at which it does not learn


def harder_half(
  images: tf.Tensor,
  labels: tf.Tensor,
  proxy: model_base.Layers,
  weight_decay: Callable[[tf.Variable], float],
  label_smoothing: float = 0.0,
) -> HarderHalf:
  """Picks the harder half of a tower's shard by a proxy, which learns from it, too.

  The proxy normalises by the whole shard. Arguments are as for `towers.build_tower`.
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
  harder = tf.gather(images, rows), tf.gather(labels, rows)
  return HarderHalf(*harder, cross_entropy, list(zip(gradients, variables)))
