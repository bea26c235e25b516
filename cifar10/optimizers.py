"""Gradients -> updates: parameter groups, Muon, lookahead.

A group's learning rate is a factor on its gradient. Momentum is linear in the gradients, so that
makes the same update as an optimizer for each group would, and every optimizer, strategy and
parameter server takes it as it is.
"""

from typing import Any

import tensorflow as tf

from cifar10.hparams import HParams
from cifar10.towers import GradientsAndVariables

_LOOKAHEAD_DECAY = 0.95  # To the power of the steps between two meetings, and
_LOOKAHEAD_POWER = 3  # times this power of the part of training that is over.
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_NEWTON_SCHULZ_STEPS = 3


def learning_rate_factor(hparams: HParams, variable: Any) -> float:
  """How much faster than --learning-rate a variable learns; its weight decay is so much smaller."""
  name = variable.op.name
  if name.endswith('/offset'):
    return hparams.offset_lr_factor
  return hparams.head_lr_factor if 'fully_connected/' in name else 1.0


def weight_decay(hparams: HParams, variable: Any) -> float:
  """The L2 coefficient of one variable: none where Muon fixes the norm."""
  if _is_for_muon(hparams, variable):
    return 0.0
  return hparams.weight_decay / learning_rate_factor(hparams, variable)


def in_groups(hparams: HParams, gradients: GradientsAndVariables) -> GradientsAndVariables:
  """Each gradient times its group's factor; none any more of a first bias that has learned."""
  learns = first_bias_learns(hparams)
  result = []
  for gradient, variable in gradients:
    factor = learning_rate_factor(hparams, variable)
    scaled = gradient if factor == 1 else gradient * factor
    if learns is not None and variable.op.name.endswith('whitening/bias'):
      scaled = tf.where(learns, scaled, tf.zeros_like(scaled))  # Nor does it decay.
    result.append((scaled, variable))
  return result


def first_bias_learns(hparams: HParams) -> Any:
  """Whether a fastnet's first bias still learns: a bool scalar, or None: to the end."""
  if not hparams.first_bias_steps:
    return None
  step = tf.compat.v1.train.get_or_create_global_step()
  return step < hparams.first_bias_steps


def make_optimizer(
  hparams: HParams, learning_rate: Any, muon_learning_rate: Any, update_ops: Any = ()
) -> Any:
  """What applies (gradient, variable) pairs: `apply_gradients` is all that is asked of it.

  Args:
    hparams: which parts.
    learning_rate: of SGD: float or scalar tensor.
    muon_learning_rate: of Muon.
    update_ops: of the moving averages, which lookahead waits for.
  """
  optimizer: Any = tf.compat.v1.train.MomentumOptimizer(
    learning_rate, hparams.momentum, use_nesterov=hparams.nesterov
  )
  if hparams.muon_learning_rate:
    muon = Muon(muon_learning_rate, hparams.muon_momentum, tf.as_dtype(hparams.dtype))
    optimizer = _Split(hparams, muon, optimizer)
  if hparams.lookahead_steps:
    optimizer = Lookahead(optimizer, hparams.lookahead_steps, hparams.train_steps, update_ops)
  return optimizer


def _is_for_muon(hparams: HParams, variable: Any) -> bool:
  return bool(hparams.muon_learning_rate) and variable.shape.rank == 4


class _Split:
  """Muon for convolution kernels, another optimizer for everything else."""

  def __init__(self, hparams: HParams, muon: Any, other: Any):
    self._hparams = hparams
    self._muon = muon
    self._other = other

  def apply_gradients(self, gradients: GradientsAndVariables, global_step: Any) -> tf.Operation:
    """The op that makes both updates, and counts one step."""
    pairs = list(gradients)
    kernels = [pair for pair in pairs if _is_for_muon(self._hparams, pair[1])]
    others = [pair for pair in pairs if not _is_for_muon(self._hparams, pair[1])]
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
    return handle.assign(unit - self._learning_rate * direction, read_value=False)


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
    steps: between two meetings.
    last_step: of training.
    update_ops: change the moving averages, and come first.
    """
    self._optimizer = optimizer
    self._steps = steps
    self._last_step = last_step
    self._update_ops = tuple(update_ops)

  def apply_gradients(self, gradients: GradientsAndVariables, global_step: Any) -> tf.Operation:
    """The op that updates the variables, and every few steps meets the slow ones."""
    pairs = list(gradients)
    averages = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.MODEL_VARIABLES)
    fast = [variable for _, variable in pairs] + averages
    slow = [_slow_copy(variable) for variable in fast]
    applied = self._optimizer.apply_gradients(pairs, global_step)
    with tf.control_dependencies([applied, *self._update_ops]):
      step = global_step.read_value()
    is_meeting = tf.equal(step % self._steps, 0)
    progress = tf.cast(step, tf.float32) / self._last_step
    decay = _LOOKAHEAD_DECAY**self._steps * progress**_LOOKAHEAD_POWER
    decay = tf.where(is_meeting, decay, 1.0)  # Between two meetings only at the end.

    def meet() -> tf.Tensor:
      met = []
      for quick, lasting in zip(fast, slow):
        mean = decay * lasting + (1 - decay) * quick
        with tf.control_dependencies([mean]):
          met += [variable.assign(mean, read_value=False) for variable in (quick, lasting)]
      with tf.control_dependencies(met):
        return tf.constant(True)

    return tf.cond(is_meeting | (step >= self._last_step), meet, lambda: tf.constant(False)).op


def _slow_copy(variable: Any) -> Any:
  with tf.compat.v1.device(variable.device):
    return tf.compat.v1.get_variable(
      variable.op.name + '/slow',
      initializer=variable.initial_value,
      trainable=False,
      use_resource=True,
    )
