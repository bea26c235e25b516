"""Hard-example mining: trains on the harder half of each batch, chosen by a small proxy network.

After airbench96_faster.py (github.com/KellerJordan/cifar10-airbench): late in training most images
teach nothing more, and a small network, the proxy, finds the others. airbench trains the proxy
first and stores its choices. Here each step trains both, so that nothing is read twice and jobs
resume as usual; the proxy learns with all that the large network's optimizer has.
"""

from collections.abc import Callable

import tensorflow as tf

import model_base
from cifar10.options.families import PROXY
from cifar10.training import towers

_LEARNS_EVERY = 4  # Global steps: its backward pass costs twice as much as its forward pass.


class HardExamples:
  """Picks the harder half of each tower's shard by a proxy, which learns from it, too."""

  def __init__(
    self,
    proxy: model_base.Layers,
    weight_decay: Callable[[tf.Variable], float],
    label_smoothing: float = 0.0,
  ):
    """Arguments are as for `towers.build_tower`, with the proxy for the network."""
    self._proxy = proxy
    self._weight_decay = weight_decay
    self._label_smoothing = label_smoothing
    self._cross_entropies: list[tf.Tensor] = []  # One a tower.
    self._gradients: list[towers.Gradients] = []

  def harder_half(self, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the images and labels with the highest cross-entropies, in a tower of their own.

    The proxy normalises by the batch, of n images: (n + 1) / 2 are left.
    """
    count = (images.shape[0] + 1) // 2
    with tf.compat.v1.variable_scope(PROXY):
      logits = self._proxy.forward_pass(images)
    losses = towers.cross_entropies(labels, logits, self._label_smoothing)
    hardest, rows = tf.math.top_k(losses, count, sorted=False)
    variables = towers.trained_variables(self._proxy)
    cross_entropy = tf.reduce_mean(hardest)
    loss = cross_entropy + towers.weight_penalty(self._proxy, self._weight_decay)
    step = tf.compat.v1.train.get_or_create_global_step()
    # Momentum changes variables even for gradient 0, so zeros wait for the forward pass.
    with tf.control_dependencies([loss]):
      is_due = tf.equal(step % _LEARNS_EVERY, 0)
    gradients = tf.cond(
      is_due,
      lambda: tf.gradients(loss, variables),
      lambda: [tf.zeros(variable.shape) for variable in variables],
    )
    self._cross_entropies.append(cross_entropy)
    self._gradients.append(list(zip(gradients, variables)))
    return tf.gather(images, rows), tf.gather(labels, rows)

  def gradients(self, device: str = '') -> towers.Gradients:
    """Returns the towers' mean gradients of the proxy; 0 at steps at which it does not learn."""
    return towers.average_gradients(self._gradients, device)

  def cross_entropy(self) -> tf.Tensor:
    """Returns the proxy's, of the harder halves: float32 scalar."""
    return tf.add_n(self._cross_entropies) / len(self._cross_entropies)
