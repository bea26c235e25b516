"""Turns gradients into updates: parameter groups, and SGD with momentum.

A group's learning rate is a factor of its gradients. Since SGD with momentum is linear in the
gradients, the update equals that of separate optimizers for each group, and parameter servers and
strategies need no change. An optimizer that normalises gradients would cancel the factor: Muon is
one, and refuses groups with a factor.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cifar10.options.family import Group
from cifar10.options.hparams import HParams
from cifar10.training.step_parts import GroupOf, StepPart
from cifar10.training.towers import GradientsAndVariables


def in_groups(gradients: GradientsAndVariables, group_of: GroupOf) -> GradientsAndVariables:
  """Returns gradients times their groups' factors, or 0 for groups that learn no longer."""
  return [(_in_group(gradient, group_of(variable)), variable) for gradient, variable in gradients]


def _in_group(gradient: tf.Tensor, group: Group) -> tf.Tensor:
  factor = group.learning_rate_factor
  with tf.device(gradient.device):  # So that it does not travel to be scaled.
    scaled = gradient if factor == 1 else gradient * factor
    if not group.learns_until:
      return scaled
    learns = tf.compat.v1.train.get_or_create_global_step() < group.learns_until
    return tf.where(learns, scaled, tf.zeros_like(scaled))  # The weight decay stops, too.


def make_optimizer(
  hparams: HParams,
  rates: tuple[Any, Any],
  step_parts: Sequence[StepPart],
  update_ops: Sequence[tf.Operation] = (),
) -> Any:
  """Returns an optimizer; callers use its `apply_gradients` only.

  Args:
    hparams: those of SGD.
    rates: the learning rates of SGD and of Muon: floats or scalar tensors.
    step_parts: the parts that wrap SGD.
    update_ops: updates of moving averages, which Lookahead and averages of weights wait for.
  """
  learning_rate, muon_learning_rate = rates
  optimizer: Any = tf.compat.v1.train.MomentumOptimizer(
    learning_rate, hparams.momentum, use_nesterov=hparams.nesterov
  )
  for part in step_parts:
    optimizer = part.optimizer(optimizer, muon_learning_rate, update_ops)
  return optimizer
