"""The network of the fast recipes, and how it starts: airbench's (Jordan 2024, arXiv 2404.00498).

  whitening   2x2 conv, fixed kernel    31 x 31      24
  group 1     conv, pool 2, conv        15 x 15   widths[0]
  group 2     conv, pool 2, conv          7 x 7   widths[1]
  group 3     conv, pool 2, conv          3 x 3   widths[2]
  max pool, dense                             1      10

Convolutions are 3x3, each followed by batch norm with a fixed scale and the GELU, in a form that
takes few passes over the memory. With three convolutions a group, as in the paper's network for
96 %, the input of the second is added to the output of the third.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import model_base

WHITENING_IMAGES = 5000  # From which the fixed kernel is made.
_PATCH = 2  # Pixels: the side of what is whitened.
# GELU(x) is about x sigmoid(1.702 x) (Hendrycks and Gimpel 2016, arXiv 1606.08415). Batch norm does
# the multiplication; convolution and batch norm after it undo what it does to the result.
_SHARPNESS = 1.702
_NEARLY_ZERO = 1e-6  # Where the sigmoid is 0.5 in float32.
_EPSILON = 5e-4  # Added to the eigenvalues: bounds what the rarest patterns are multiplied by.
# Of each channel of the training images, in 0..1.
_MEAN = np.array([0.4914, 0.4822, 0.4465])
_DEVIATION = np.array([0.2470, 0.2435, 0.2616])


class FastNet(model_base.ResNet):
  """Three groups of convolutions after a fixed one that whitens 2x2 patches."""

  def __init__(
    self,
    widths: Sequence[int],
    is_training: bool,
    data_format: str,
    batch_norm_decay: float,
    batch_norm_epsilon: float,
    *,
    convs_per_group: int = 2,
    num_classes: int = 10,
    dtype: tf.DType = tf.float32,
    whitening: np.ndarray | None = None,
    bias_learns: tf.Tensor | None = None,
    compiles: bool = False,
  ):
    """Chooses the network; `forward_pass` builds it.

    Args:
      widths: channels of each group, rising.
      is_training, data_format, batch_norm_decay, batch_norm_epsilon, dtype: as in model_base.
      convs_per_group: 2, or more with a shortcut over all but the first.
      num_classes: how many logits.
      whitening: the first kernel, from `whitening_kernel`; None where a checkpoint has it.
      bias_learns: bool scalar: whether the first bias has a gradient, which nothing below the
        first group's needs; None: always.
      compiles: whether XLA makes one loop of each activation in training, and one of its gradient.
        On a CPU each operation of such a chain costs about what reading and writing memory costs.
    """
    super().__init__(is_training, data_format, batch_norm_decay, batch_norm_epsilon, dtype)
    self._widths = widths
    self._convs_per_group = convs_per_group
    self._num_classes = num_classes
    self._whitening = whitening
    self._bias_learns = bias_learns
    self._compiles = compiles

  def forward_pass(self, images: tf.Tensor) -> tf.Tensor:
    """Images to logits.

    Args:
      images: [batch, 32, 32, 3], -1 to 1, in the compute dtype, channels last.

    Returns:
      [batch, num_classes] float32.
    """
    x = tf.cast(images, self._dtype)
    if self._data_format == 'channels_first':
      x = tf.transpose(x, [0, 3, 1, 2])
    x, bias = self._whiten(x)  # [batch, 31, 31, 24]
    for number, width in enumerate(self._widths, 1):
      with tf.compat.v1.variable_scope(f'group{number}'):
        x = self._group(x, width, bias if number == 1 else None)
    x = self._max_pool(x, 3)  # [batch, 1, 1, widths[-1]]
    x = tf.reshape(x, [-1, self._widths[-1]])
    logits = self._fully_connected(
      x, self._num_classes, initializer=_head_initializer(self._widths[-1]), has_bias=False
    )
    return logits / (self._widths[-1] * _SHARPNESS)

  def _whiten(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Each 2x2 patch in the eigenvectors' terms, and negated; and the bias to be added."""
    shape = [_PATCH, _PATCH, 3, 2 * _PATCH * _PATCH * 3]
    with tf.compat.v1.variable_scope('whitening'):
      initial = np.zeros(shape) if self._whitening is None else self._whitening
      initializer = tf.compat.v1.constant_initializer(initial)
      kernel = self._variable('kernel', shape, initializer, trainable=False)
      bias = self._variable('bias', shape[-1:], tf.compat.v1.zeros_initializer())
      # The images are standardised in the kernel: bfloat16 holds their 256 values exactly, but not
      # standardised ones, whose rounding the rarest patterns' eigenvalues would magnify.
      scale, shift = (tf.constant(value, tf.float32) for value in standardisation())
      bias = bias + tf.reduce_sum(kernel * shift[:, tf.newaxis], [0, 1, 2])
      kernel = kernel * scale[:, tf.newaxis]
      kernel, bias = (tf.cast(_SHARPNESS * value, self._dtype) for value in (kernel, bias))
      return tf.nn.conv2d(x, kernel, 1, 'VALID', data_format=self._op_data_format), bias

  def _first_conv(self, x: tf.Tensor, bias: tf.Tensor, width: int) -> tf.Tensor:
    """The first group's first convolution, of silu(x + bias)."""
    if self._bias_learns is None:
      x = self._silu(tf.nn.bias_add(x, bias, self._op_data_format))
      return self._conv(x, 3, width, 1, name='conv1', initializer=identity_initializer)
    with tf.compat.v1.variable_scope('conv1'):
      kernel = self._kernel(3, self._num_channels(x), width, identity_initializer)
      kernel = tf.cast(kernel, self._dtype)
      return conv_of_silu(
        x, bias, kernel, self._bias_learns, self._op_data_format, compiles=self._compiles
      )

  def _group(self, x: tf.Tensor, width: int, bias: tf.Tensor | None = None) -> tf.Tensor:
    """conv, pool, bn, silu; then convolutions with bn and silu, from three on with a shortcut.

    With a `bias` the input is silu(x + bias).
    """
    if bias is None:
      x = self._conv(x, 3, width, 1, name='conv1', initializer=identity_initializer)
    else:
      x = self._first_conv(x, bias, width)
    x = self._max_pool(x, 2)
    x = shortcut = self._silu(self._batch_norm(x, name='bn1', fixed_scale=_SHARPNESS))
    for number in range(2, self._convs_per_group + 1):
      x = self._conv(x, 3, width, 1, name=f'conv{number}', initializer=identity_initializer)
      x = self._batch_norm(x, name=f'bn{number}', fixed_scale=_SHARPNESS)
      if number == self._convs_per_group > 2:
        x = x + shortcut
      x = self._silu(x)
    return x

  def _silu(self, x: tf.Tensor) -> tf.Tensor:
    return compiled_silu(x) if self._is_training and self._compiles else tf.nn.silu(x)


def standardisation() -> tuple[np.ndarray, np.ndarray]:
  """What makes -1..1 (from `dataset.normalise`) mean 0, deviation 1: scale and shift by channel."""
  return 128 / 255 / _DEVIATION, (128 / 255 - _MEAN) / _DEVIATION


@tf.custom_gradient
def compiled_silu(x: tf.Tensor) -> Any:
  """x sigmoid(x): of 1.702 x, 1.702 times the GELU's usual approximation, in one loop."""
  y = _one_loop(_silu)(x, 0.0)
  return y, lambda dy: _one_loop(_silu_gradient)(x, 0.0, y, dy)


@functools.cache
def _one_loop(function: Callable[..., tf.Tensor]) -> Any:
  """The function, compiled by XLA."""
  return tf.function(function, jit_compile=True, autograph=False)


def _silu(x: tf.Tensor, bias: Any) -> tf.Tensor:
  """silu(x + bias), computed in float32."""
  z = tf.cast(x, tf.float32) + tf.cast(bias, tf.float32)
  # Not z sigmoid(z): TensorFlow joins that into an operation that XLA does not know.
  return tf.cast(z / (1 + tf.exp(-z)), x.dtype)


def _silu_gradient(x: tf.Tensor, bias: Any, y: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
  """Where y = silu(x + bias): without another exponential."""
  z, y, dy32 = (tf.cast(value, tf.float32) for value in (x, y, dy))
  z += tf.cast(bias, tf.float32)
  sigmoid = tf.where(tf.abs(z) < _NEARLY_ZERO, 0.5, y / z)
  return tf.cast(dy32 * (sigmoid + y * (1 - sigmoid)), x.dtype)


def conv_of_silu(
  x: tf.Tensor,
  bias: tf.Tensor,
  kernel: tf.Tensor,
  bias_learns: tf.Tensor,
  data_format: str,
  *,
  compiles: bool = False,
) -> tf.Tensor:
  """A convolution of silu(x + bias), stride 1, padding SAME; `x` has no gradient.

  Nearly all that the bias's gradient costs is the convolution's gradient for its input, which is
  computed only where `bias_learns`; elsewhere the bias's gradient is 0.

  Args:
    x: [batch, height, width, in], or as `data_format` says.
    bias: [in].
    kernel: [3, 3, in, out].
    bias_learns: bool scalar.
    data_format: 'NHWC' or 'NCHW'.
    compiles: whether XLA makes one loop of the activation, and one of its gradient.

  Returns:
    [batch, height, width, out], or as `data_format` says.
  """
  in_loop = _one_loop if compiles else lambda function: function

  @tf.custom_gradient
  def convolve(bias, kernel):
    added = bias if data_format == 'NHWC' else bias[:, tf.newaxis, tf.newaxis]
    activated = in_loop(_silu)(x, added)
    settings = {'strides': [1, 1, 1, 1], 'padding': 'SAME', 'data_format': data_format}

    def gradient(dy):
      def of_bias():
        da = tf.compat.v1.nn.conv2d_backprop_input(tf.shape(x), kernel, dy, **settings)
        draw = in_loop(_silu_gradient)(x, added, activated, da)
        return tf.raw_ops.BiasAddGrad(out_backprop=draw, data_format=data_format)

      dkernel = tf.compat.v1.nn.conv2d_backprop_filter(activated, kernel.shape, dy, **settings)
      return tf.cond(bias_learns, of_bias, lambda: tf.zeros_like(bias)), dkernel

    return tf.nn.conv2d(activated, kernel, 1, 'SAME', data_format), gradient

  return convolve(bias, kernel)


def whitening_kernel(images: np.ndarray) -> np.ndarray:
  """The kernel whose outputs on these images' 2x2 patches are uncorrelated, with variance 1.

  Args:
    images: uint8 [n, 32, 32, 3].

  Returns:
    float32 [2, 2, 3, 24]: the eigenvectors of the patches' second moments, largest eigenvalue
    first, each divided by the square root of its eigenvalue + 5e-4; then their negations, so that
    an activation loses nothing (paper, section 3.2).
  """
  x = (images.astype(np.float32) / 255 - _MEAN) / _DEVIATION
  height, width = (size - _PATCH + 1 for size in x.shape[1:3])
  corners = [(row, column) for row in range(_PATCH) for column in range(_PATCH)]
  shifted = [x[:, row : row + height, column : column + width] for row, column in corners]
  patches = np.concatenate(shifted, -1).reshape(-1, _PATCH * _PATCH * 3)
  eigenvalues, eigenvectors = np.linalg.eigh(patches.T @ patches / len(patches))
  scaled = (eigenvectors / np.sqrt(eigenvalues + _EPSILON))[:, ::-1]
  kernel = scaled.reshape(_PATCH, _PATCH, 3, -1)
  return np.concatenate([kernel, -kernel], -1).astype(np.float32)


def identity_initializer(shape: Any, dtype: Any = tf.float32, partition_info: Any = None) -> Any:
  """A convolution's kernel whose first outputs are its inputs (paper, section 3.3).

  Args:
    shape: [height, width, in, out] with out >= in; height and width odd.
    dtype: of the kernel.
    partition_info: what `get_variable` passes on; not used.

  Returns:
    The kernel: output i < in is input i, the others are uniform as `_uniform_initializer` has it.
  """
  del partition_info
  height, width, inputs, outputs = shape
  identity = np.zeros([height, width, inputs, inputs])
  identity[height // 2, width // 2] = np.eye(inputs)
  if inputs == outputs:
    return tf.constant(identity, dtype)
  rest = _uniform_initializer(height * width * inputs)([*shape[:3], outputs - inputs], dtype)
  return tf.concat([tf.constant(identity, dtype), rest], -1)


def _head_initializer(width: int) -> Any:
  """As large as the sources' heads are, beside logits that are divided by `width`, not by 9."""
  limit = math.sqrt(width) / 9
  return tf.compat.v1.random_uniform_initializer(-limit, limit)


def _uniform_initializer(fan_in: int) -> Any:
  """Variance 1 / (3 fan-in), as PyTorch's layers start."""
  limit = 1 / math.sqrt(fan_in)
  return tf.compat.v1.random_uniform_initializer(-limit, limit)
