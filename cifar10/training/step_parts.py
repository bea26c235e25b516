"""What options add to a training step: one list of parts, in the order of the data.

A part is loaded when the step asks for it. Its module has `make(step)`, which returns a `StepPart`
that overrides what it changes. How a cluster makes an update of gradients is its role's affair
(cluster/roles.py), after all of these.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

import model_base
from cifar10.core import parts
from cifar10.networks.family import Group
from cifar10.options.hparams import HParams
from cifar10.training.towers import GradientsAndVariables

GroupOf = Callable[[Any], Group]  # A variable -> its group.
Shards = Sequence[tuple[tf.Tensor, tf.Tensor]]  # For each tower its images and labels.


class Step(NamedTuple):
  """What parts know of the step."""

  hparams: HParams
  group_of: GroupOf
  tower_devices: Sequence[str] = ()
  prefetches_to_gpu: bool = False
  proxy: model_base.Layers | None = None  # Chooses the harder half of each batch.


class StepPart:
  """Changes nothing; a subclass overrides what it changes."""

  def shards(self, shards: Shards) -> Shards:
    """What the towers take in place of these batches."""
    return shards

  def examples(self, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """What one tower learns from: normalised images [n, 32, 32, 3], and labels int32 [n]."""
    return images, labels

  def gradients(self) -> GradientsAndVariables:
    """Of variables that are not the network's: means over the towers."""
    return []

  def loss_parts(self) -> Mapping[str, tf.Tensor]:
    """What TensorBoard shows beside the network's loss: float32 scalars."""
    return {}

  def optimizer(
    self, optimizer: Any, muon_learning_rate: Any, update_ops: Sequence[tf.Operation]
  ) -> Any:
    """An optimizer around this one.

    Args:
      optimizer: has `apply_gradients(gradients, global_step)`.
      muon_learning_rate: scalar, at this step.
      update_ops: of batch norm's moving averages, which averages of variables wait for.
    """
    del muon_learning_rate, update_ops
    return optimizer

  def train_op(self, train_op: tf.Operation) -> tf.Operation:
    """What a step runs in place of this op."""
    return train_op

  def hooks(self) -> list[Any]:
    """What it needs in a session."""
    return []


# A part's name, and which steps ask for it.
_PARTS: tuple[tuple[str, Callable[[Step], Any]], ...] = (
  ('gpu_prefetch', lambda step: step.prefetches_to_gpu),
  ('hard_examples', lambda step: step.proxy),
  ('muon', lambda step: step.hparams.muon_learning_rate),
  ('lookahead', lambda step: step.hparams.lookahead_steps),
  ('ema', lambda step: step.hparams.ema_decay),
)


def make_all(step: Step) -> list[StepPart]:
  """Those that there are and that this step asks for, in the order of the data."""
  return [
    parts.load(name).make(step)
    for name, is_asked in _PARTS
    if name in parts.PARTS and is_asked(step)
  ]
