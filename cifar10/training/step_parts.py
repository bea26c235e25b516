"""The parts that options add to a training step.

The module of each has a class `Part`, a `StepPart` that overrides the methods it changes. How a
cluster makes an update from gradients is up to the process's role (cluster/roles.py), after all of
these.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

import model_base
from cifar10.options.family import Group
from cifar10.options.hparams import HParams
from cifar10.training.towers import GradientsAndVariables

GroupOf = Callable[[Any], Group]  # Returns a variable's group.
Shards = Sequence[tuple[tf.Tensor, tf.Tensor]]  # Images and labels of each tower.


class Step(NamedTuple):
  """The training step that parts belong to; of an evaluation the first two fields."""

  hparams: HParams
  group_of: GroupOf
  tower_devices: Sequence[str] = ()
  prefetches_to_gpu: bool = False
  mean_device: str = ''  # Computes the towers' mean gradients; '': each variable's device.
  proxy: model_base.Layers | None = None  # The network that picks the harder half of each batch.

  def weight_decay(self, variable: Any) -> float:
    """Returns a variable's L2 coefficient: 0 if Muon fixes its norm."""
    group = self.group_of(variable)
    return 0.0 if group.uses_muon else self.hparams.weight_decay / group.learning_rate_factor


class StepPart:
  """Base class of parts: changes nothing; subclasses override what they change."""

  def __init__(self, step: Step):
    """Sets the part up for a step."""
    self._step = step

  def shards(self, shards: Shards) -> Shards:
    """Returns the batches that the towers take in place of these."""
    return shards

  def examples(self, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the images [n, 32, 32, 3], normalised, and labels int32 [n] for a tower to learn."""
    return images, labels

  def gradients(self) -> GradientsAndVariables:
    """Returns gradients of variables outside the network: means over the towers."""
    return []

  def loss_parts(self) -> Mapping[str, tf.Tensor]:
    """Returns float32 scalars to show in TensorBoard beside the network's loss."""
    return {}

  def optimizer(
    self, optimizer: Any, muon_learning_rate: Any, update_ops: Sequence[tf.Operation]
  ) -> Any:
    """Returns an optimizer that wraps this one: mostly the part itself.

    Args:
      optimizer: has `apply_gradients(gradients, global_step)`.
      muon_learning_rate: scalar, at this step.
      update_ops: updates of batch norm's moving averages, which averages of variables wait for.
    """
    del muon_learning_rate, update_ops
    return optimizer

  def train_op(self, train_op: tf.Operation) -> tf.Operation:
    """Returns the op that a step runs in place of this one."""
    return train_op

  def hooks(self) -> list[Any]:
    """Returns the session hooks that the part needs."""
    return []


def companion(variable: Any, suffix: str) -> Any:
  """Returns a variable beside another, saved under its name with this suffix; begins as it does."""
  with tf.compat.v1.device(variable.device):
    return tf.compat.v1.get_variable(
      variable.op.name + suffix,
      initializer=variable.initial_value,
      trainable=False,
      use_resource=True,
    )
