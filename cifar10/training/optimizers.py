"""Gradients -> updates: parameter groups, Muon, lookahead.

A group's learning rate is a factor on its gradient. SGD with momentum is linear in the gradients,
so that makes the same update as an optimizer for each group would, and parameter servers and
strategies take it as it is. An optimizer that normalises gradients would undo the factor: Muon,
which does, refuses groups that have one.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from cifar10.networks.family import Group
from cifar10.options.hparams import HParams
from cifar10.training import ema
from cifar10.training.towers import GradientsAndVariables

# What the slow variables keep of themselves when they are averaged with the fast ones:
_LOOKAHEAD_DECAY = 0.95  # this, to the power of the steps between two averagings,
_LOOKAHEAD_POWER = 3  # times this power of the part of training that is over.
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_NEWTON_SCHULZ_STEPS = 3

GroupOf = Callable[[Any], Group]  # A variable -> its group.


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
  learning_rate: Any,
  muon_learning_rate: Any,
  group_of: GroupOf,
  update_ops: Any = (),
) -> Any:
  """What applies (gradient, variable) pairs: `apply_gradients` is all that is asked of it.

  Args:
    hparams: which parts.
    learning_rate: of SGD: float or scalar tensor.
    muon_learning_rate: of Muon.
    group_of: says which variables are Muon's.
    update_ops: of the moving averages, which lookahead and averages wait for.
  """
  optimizer: Any = tf.compat.v1.train.MomentumOptimizer(
    learning_rate, hparams.momentum, use_nesterov=hparams.nesterov
  )
  if hparams.muon_learning_rate:
    muon = Muon(muon_learning_rate, hparams.muon_momentum, tf.as_dtype(hparams.dtype))
    optimizer = _Split(group_of, muon, optimizer)
  if hparams.lookahead_steps:
    optimizer = Lookahead(optimizer, hparams.lookahead_steps, hparams.train_steps, update_ops)
  if hparams.ema_decay:
    optimizer = ema.EmaOptimizer(optimizer, hparams.ema_decay, update_ops)
  return optimizer


class _Split:
  """Muon for the variables of its groups, another optimizer for everything else."""

  def __init__(self, group_of: GroupOf, muon: Any, other: Any):
    self._group_of = group_of
    self._muon = muon
    self._other = other

  def apply_gradients(self, gradients: GradientsAndVariables, global_step: Any) -> tf.Operation:
    """The op that makes both updates, and counts one step.

    Raises:
      ValueError: a group of Muon's has a learning-rate factor, which would do nothing.
    """
    kernels: GradientsAndVariables = []
    others: GradientsAndVariables = []
    for gradient, variable in gradients:
      group = self._group_of(variable)
      (kernels if group.uses_muon else others).append((gradient, variable))
      if group.uses_muon and group.learning_rate_factor != 1:
        raise ValueError(
          f'{variable.op.name} has learning-rate factor {group.learning_rate_factor}, and Muon '
          'normalises gradients: its group must have factor 1'
        )
    with tf.control_dependencies([self._muon.apply_gradients(kernels)]):
      return self._other.apply_gradients(others, global_step)


class Muon(tf.compat.v1.train.Optimizer):
  """Momentum, orthogonalised, for convolution kernels of a fixed norm.

  Jordan et al. 2024, 'Muon: An optimizer for hidden layers in neural networks', as airbench94 uses
  it: at every step the kernel, as a matrix with a row for each output channel, is scaled to norm
  sqrt(outputs), and moved by the learning rate times the nearest orthogonal matrix to its Nesterov
  momentum. It is made for kernels that a normalisation follows, to which their norm is nothing.
  """

  def __init__(self, learning_rate: Any, momentum: float, dtype: tf.DType = tf.float32):
    """Args:
    learning_rate: float or scalar tensor.
    momentum: what the accumulated gradient keeps of itself a step.
    dtype: of the matrix products.
    """
    super().__init__(use_locking=False, name='Muon')
    self._learning_rate = learning_rate
    self._momentum = momentum
    self._dtype = dtype

  def _create_slots(self, var_list: Any) -> None:
    for variable in var_list:
      self._zeros_slot(variable, 'momentum', self._name)

  def _resource_apply_dense(self, grad: tf.Tensor, handle: Any) -> tf.Operation:
    slot = self.get_slot(handle, 'momentum')
    accumulated = slot.assign(self._momentum * slot + grad)
    direction = orthogonalised(grad + self._momentum * accumulated, self._dtype)
    outputs = handle.shape[-1]
    unit = handle * (outputs**0.5 / tf.norm(handle))
    # Without a gradient it stays: momentum, made orthogonal, would move it as far as one does.
    has_gradient = tf.reduce_any(tf.not_equal(grad, 0))
    moved = tf.where(has_gradient, unit - self._learning_rate * direction, handle)
    return handle.assign(moved, read_value=False)


def orthogonalised(kernel: tf.Tensor, dtype: tf.DType = tf.float32) -> tf.Tensor:
  """Near the orthogonal matrix nearest to a kernel's, by three Newton-Schulz iterations.

  Args:
    kernel: [height, width, in, out], as the matrix [height * width * in, out].
    dtype: of the matrix products.

  Returns:
    float32, of the same shape; singular values about 1 (0.7 to 1.2 is near enough for Muon), but
    those that were small remain below it.
  """
  x = tf.reshape(kernel, [-1, kernel.shape[-1]])
  x = tf.cast(x / (tf.norm(x) + 1e-7), dtype)
  a, b, c = _NEWTON_SCHULZ
  is_wide = x.shape[0] < x.shape[1]
  if is_wide:
    x = tf.transpose(x)
  for _ in range(_NEWTON_SCHULZ_STEPS):
    square = tf.matmul(x, x, transpose_a=True)  # The smaller one of the two products.
    x = a * x + tf.matmul(x, b * square + c * tf.matmul(square, square))
  if is_wide:
    x = tf.transpose(x)
  return tf.cast(tf.reshape(x, kernel.shape), tf.float32)


class Lookahead:
  """Slow variables that follow the fast ones, which every few steps go on from there.

  Zhang et al. 2019, 'Lookahead Optimizer' (arXiv 1907.08610), as airbench has it: after every
  `steps` steps slow = decay * slow + (1 - decay) * fast, and fast = slow, with decay
  0.95^steps (t / last_step)^3; at the end of training fast = slow. Moving averages take part.
  """

  def __init__(self, optimizer: Any, steps: int, last_step: int, update_ops: Any = ()):
    """Args:
    optimizer: makes the fast updates.
    steps: global steps between two averagings.
    last_step: of training.
    update_ops: change the moving averages, and come first.
    """
    self._optimizer = optimizer
    self._steps = steps
    self._last_step = last_step
    self._update_ops = tuple(update_ops)

  def apply_gradients(self, gradients: GradientsAndVariables, global_step: Any) -> tf.Operation:
    """The op that updates the variables, and every few steps averages them with the slow ones."""
    pairs = list(gradients)
    moving = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.MODEL_VARIABLES)
    fast = [variable for _, variable in pairs] + moving
    slow = [_slow_copy(variable) for variable in fast]
    applied = self._optimizer.apply_gradients(pairs, global_step)
    with tf.control_dependencies([applied, *self._update_ops]):
      step = global_step.read_value()
    is_due = tf.equal(step % self._steps, 0)
    progress = tf.cast(step, tf.float32) / self._last_step
    decay = _LOOKAHEAD_DECAY**self._steps * progress**_LOOKAHEAD_POWER
    decay = tf.where(is_due, decay, 1.0)  # At the last step, if none is due.

    def average() -> tf.Tensor:
      averaged = []
      for quick, lasting in zip(fast, slow):
        mean = decay * lasting + (1 - decay) * quick
        with tf.control_dependencies([mean]):
          averaged += [variable.assign(mean, read_value=False) for variable in (quick, lasting)]
      with tf.control_dependencies(averaged):
        return tf.constant(True)

    return tf.cond(is_due | (step >= self._last_step), average, lambda: tf.constant(False)).op


def _slow_copy(variable: Any) -> Any:
  with tf.compat.v1.device(variable.device):
    return tf.compat.v1.get_variable(
      variable.op.name + '/slow',
      initializer=variable.initial_value,
      trainable=False,
      use_resource=True,
    )
