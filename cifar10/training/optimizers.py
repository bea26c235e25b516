"""Gradients -> updates: parameter groups, and SGD with momentum.

A group's learning rate is a factor on its gradient. SGD with momentum is linear in the gradients,
so that makes the same update as an optimizer for each group would, and parameter servers and
strategies take it as it is. An optimizer that normalises gradients would undo the factor: Muon,
which does, refuses groups that have one.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cifar10.networks.family import Group
from cifar10.options.hparams import HParams
from cifar10.training.step_parts import GroupOf, StepPart
from cifar10.training.towers import GradientsAndVariables


def weight_decay(hparams: HParams, group: Group) -> float:
  """The L2 coefficient of a group's variables: none where Muon fixes the norm."""
  return 0.0 if group.uses_muon else hparams.weight_decay / group.learning_rate_factor


def in_groups(gradients: GradientsAndVariables, group_of: GroupOf) -> GradientsAndVariables:
  """Each gradient times its group's factor; none any more of what has learned long enough."""
  return [(_in_group(gradient, group_of(variable)), variable) for gradient, variable in gradients]


def _in_group(gradient: tf.Tensor, group: Group) -> tf.Tensor:
  factor = group.learning_rate_factor
  scaled = gradient if factor == 1 else gradient * factor
  if not group.learns_until:
    return scaled
  learns = tf.compat.v1.train.get_or_create_global_step() < group.learns_until
  return tf.where(learns, scaled, tf.zeros_like(scaled))  # Nor does it decay.


def make_optimizer(
  hparams: HParams,
  rates: tuple[Any, Any],
  step_parts: Sequence[StepPart],
  update_ops: Sequence[tf.Operation] = (),
) -> Any:
  """What applies (gradient, variable) pairs: `apply_gradients` is all that is asked of it.

  Args:
    hparams: of SGD.
    rates: the learning rates of SGD and of Muon: floats or scalar tensors.
    step_parts: what options put around SGD.
    update_ops: of the moving averages, which lookahead and averages wait for.
  """
  learning_rate, muon_learning_rate = rates
  optimizer: Any = tf.compat.v1.train.MomentumOptimizer(
    learning_rate, hparams.momentum, use_nesterov=hparams.nesterov
  )
  for part in step_parts:
    optimizer = part.optimizer(optimizer, muon_learning_rate, update_ops)
  return optimizer
