"""The Muon optimizer for convolution kernels, used beside SGD: for --muon-learning-rate."""

from typing import Any

import tensorflow as tf

from cifar10.core.errors import InputError
from cifar10.training.step_parts import StepPart
from cifar10.training.towers import GradientsAndVariables

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_NEWTON_SCHULZ_STEPS = 3
_TINY = 1e-7  # In place of a norm of 0.


class Part(StepPart):
  """Is an optimizer: Muon for the variables of Muon's groups, and another one for all others."""

  def optimizer(self, optimizer: Any, muon_learning_rate: Any, update_ops: Any) -> Any:
    hparams = self._step.hparams
    self._muon = Muon(muon_learning_rate, hparams.muon_momentum, tf.as_dtype(hparams.dtype))
    self._other = optimizer
    return self

  def apply_gradients(self, gradients: GradientsAndVariables, global_step: Any) -> tf.Operation:
    """Returns the op that makes both updates and counts one step.

    Raises:
      InputError: a group of Muon's has a learning-rate factor, which would have no effect.
    """
    kernels: GradientsAndVariables = []
    others: GradientsAndVariables = []
    for gradient, variable in gradients:
      group = self._step.group_of(variable)
      (kernels if group.uses_muon else others).append((gradient, variable))
      if group.uses_muon and group.learning_rate_factor != 1:
        raise InputError(
          f'{variable.op.name} has learning-rate factor {group.learning_rate_factor}, and Muon '
          'normalises gradients: its group must have factor 1'
        )
    # With --freeze one of the two can have nothing to update, which an optimizer refuses.
    if not others:
      return self._muon.apply_gradients(kernels, global_step)
    with tf.control_dependencies([self._muon.apply_gradients(kernels)] if kernels else []):
      return self._other.apply_gradients(others, global_step)


class Muon(tf.compat.v1.train.Optimizer):
  """Orthogonalised momentum for convolution kernels with a fixed norm.

  Jordan et al. 2024, 'Muon: An optimizer for hidden layers in neural networks', as in airbench94:
  at every step the kernel, as a matrix with a row for each output channel, is scaled to the norm
  sqrt(outputs) and moved by the learning rate times the orthogonal matrix nearest to its Nesterov
  momentum. It suits kernels before a normalisation, which makes their norm irrelevant.
  """

  def __init__(self, learning_rate: Any, momentum: float, dtype: tf.DType = tf.float32):
    """Args:
    learning_rate: float or scalar tensor.
    momentum: the part of the accumulated gradient that stays at each step.
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
    unit = handle * (outputs**0.5 / tf.maximum(tf.norm(handle), _TINY))  # It may begin with zeros.
    # No update for gradient 0: orthogonalised momentum would move the kernel as far as ever.
    has_gradient = tf.reduce_any(tf.not_equal(grad, 0))
    moved = tf.where(has_gradient, unit - self._learning_rate * direction, handle)
    return handle.assign(moved, read_value=False)


def orthogonalised(kernel: tf.Tensor, dtype: tf.DType = tf.float32) -> tf.Tensor:
  """Returns nearly the orthogonal matrix nearest to a kernel, by three Newton-Schulz iterations.

  Args:
    kernel: [height, width, in, out], as the matrix [height * width * in, out].
    dtype: of the matrix products.

  Returns:
    float32, the same shape; singular values are about 1 (0.7 to 1.2 suffices for Muon), but those
      that were small stay smaller.
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
