"""The network of the fast recipes and its initialisation: airbench (Jordan 2024, arXiv 2404.00498).

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

import numpy as np
import tensorflow as tf

from cifar10.data.manifest import DatasetInfo
from cifar10.ops import own_gradients
from cifar10.options.families import FIRST_BIAS, FastNetFamily
from cifar10.options.hparams import HParams
from model_base import FamilyNetwork, LayerSettings

_WHITENING_IMAGES = 5000  # The fixed whitening kernel is computed from this many images.
_PATCH = 2  # Side of a whitened patch in pixels.
_POOL = 2  # Size of each group's max pool in pixels.
# GELU(x) is about x sigmoid(1.702 x) (Hendrycks and Gimpel 2016, arXiv 1606.08415). Batch norm does
# the multiplication; convolution and batch norm after it undo what it does to the result.
SHARPNESS = 1.702
_EPSILON = 5e-4  # Added to the eigenvalues: limits how much the rarest patterns are magnified.


class FastNet(FamilyNetwork):
  """Three groups of convolutions after a fixed one that whitens 2x2 patches."""

  def __init__(
    self,
    options: FastNetFamily,
    settings: LayerSettings,
    data: DatasetInfo,
    whitening: np.ndarray | None = None,
    divisor: int | None = None,
  ):
    """Takes the kernel of `whitening_kernel`, or None where a checkpoint has it.

    The `divisor` divides the logits and scales the head's initial values; None: the last width.
    """
    super().__init__(options, settings, data)
    self._data = data
    self._whitening = whitening
    # A first bias that has stopped learning costs nothing: nothing below it needs a gradient.
    self._bias_learns = None
    if self._is_training and options.first_bias_steps:
      step = tf.compat.v1.train.get_or_create_global_step()
      self._bias_learns = step < options.first_bias_steps
    self._divisor = divisor or options.widths[-1]

  def forward_pass(self, x: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    x, bias = self._whiten(self._input(x, input_data_format))  # [batch, 31, 31, 24]
    for number, width in enumerate(self._options.widths, 1):
      with tf.compat.v1.variable_scope(f'group{number}'):
        x = self._group(x, number, width, bias if number == 1 else None)
    # SAME: of smaller images (--resolutions) 2 x 2 pixels are left, or one.
    return self._head(self._max_pool(x, 3, 'SAME'))  # [batch, 1, 1, widths[-1]]

  def _whiten(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Returns the whitened 2x2 patches with their negations, and the bias to add to them."""
    shape = [_PATCH, _PATCH, 3, 2 * _PATCH * _PATCH * 3]
    with tf.compat.v1.variable_scope('whitening'):
      initial = np.zeros(shape) if self._whitening is None else self._whitening
      initializer = tf.compat.v1.constant_initializer(initial)
      kernel = self._variable('kernel', shape, initializer, 'whitening kernel', trainable=False)
      bias = self._variable('bias', shape[-1:], tf.compat.v1.zeros_initializer(), FIRST_BIAS)
      # The images are standardised within the kernel: bfloat16 holds their 256 values exactly. It
      # would round standardised values, and the rarest patterns' eigenvalues magnify that error.
      scale, shift = (tf.constant(value, tf.float32) for value in standardisation(self._data))
      bias = bias + tf.reduce_sum(kernel * shift[:, tf.newaxis], [0, 1, 2])
      kernel = kernel * scale[:, tf.newaxis]
      kernel, bias = (tf.cast(SHARPNESS * value, self._dtype) for value in (kernel, bias))
      return tf.nn.conv2d(x, kernel, 1, 'VALID', data_format=self._op_data_format), bias

  def _group(
    self, x: tf.Tensor, group: int, width: int, bias: tf.Tensor | None = None
  ) -> tf.Tensor:
    """Applies conv, pool, bn, silu, then conv, bn, silu; a third convolution has a shortcut.

    With a `bias` the group's input is silu(x + bias).
    """
    conv = functools.partial(
      self._conv, kernel_size=3, filters=width, strides=1, initializer=identity_initializer
    )
    convolve = self._small_conv(x) if group > 2 else None
    if bias is not None and self._bias_learns is None:
      x = self._silu(self._biased(x, bias))
    elif bias is not None:
      convolve = functools.partial(self._conv_of_silu, x, bias)
    # Only the pixels that the pool reads: the last row and column of 31, 15 and 7 would be a tenth
    # of fast94's multiplications.
    x = self._max_pool(conv(x, name='conv1', pool_size=_POOL, convolve=convolve), _POOL)
    x = shortcut = self._silu(self._batch_norm(x, name='bn1', fixed_scale=SHARPNESS))
    convs_per_group = self._options.convs_per_group
    for number in range(2, convs_per_group + 1):
      x = conv(x, name=f'conv{number}', convolve=self._small_conv(x) if group > 1 else None)
      x = self._batch_norm(x, name=f'bn{number}', fixed_scale=SHARPNESS)
      if number == convs_per_group > 2:
        x = self._add(x, shortcut)
      x = self._silu(x)
    return x

  def _small_conv(self, x: tf.Tensor) -> own_gradients.Convolve | None:
    """Returns how to convolve at most 7x7 pixels, where TensorFlow's own is slower in training."""
    is_fast = self._is_training and (x.dtype, self._op_data_format) == (tf.bfloat16, 'NHWC')
    return functools.partial(own_gradients.small_conv2d, x) if is_fast else None

  def _conv_of_silu(
    self, x: tf.Tensor, bias: tf.Tensor, kernel: tf.Tensor, after: own_gradients.Zeros
  ) -> tf.Tensor:
    settings = tf.cast(kernel, self._dtype), self._bias_learns, self._op_data_format
    return own_gradients.conv_of_silu(x, bias, *settings, after=after, compiles=self._compiles)

  def _biased(self, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    if not self._is_training:
      return tf.nn.bias_add(x, bias, self._op_data_format)
    # Its gradient on CPUs adds bfloat16 up in bfloat16, and so stops at 256 addends.
    return x + (bias if self._op_data_format == 'NHWC' else bias[:, tf.newaxis, tf.newaxis])

  def _silu(self, x: tf.Tensor) -> tf.Tensor:
    if self._is_training and self._compiles:
      return own_gradients.compiled_silu(x)
    return tf.nn.silu(x)

  def _head(self, x: tf.Tensor) -> tf.Tensor:
    """Applies the dense layer: [batch, 1, 1, width] -> logits."""
    width = self._options.widths[-1]
    limit = self._divisor / (9 * math.sqrt(width))  # airbench's heads', whose logits 9 divides.
    initializer = tf.compat.v1.random_uniform_initializer(-limit, limit)
    logits = self._fully_connected(
      tf.reshape(x, [-1, width]), self._num_classes, initializer=initializer, has_bias=False
    )
    return logits / (self._divisor * SHARPNESS)


def prepare(
  hparams: HParams,
  first_images: Callable[[int], np.ndarray],
  data: DatasetInfo,
  session_config: tf.compat.v1.ConfigProto,
  num_gpus: int,
) -> tuple[np.ndarray | None, bool]:
  """Returns `whitening` and `compiles` of `model_fn.Training`, for a network of any family.

  `first_images(n)` are the first n of training, uint8 [n, 32, 32, 3]; `session_config` is that of
  the sessions that follow.
  """
  is_fastnet = isinstance(hparams.family, FastNetFamily)
  is_faster = not num_gpus and (is_fastnet or hparams.dtype == 'bfloat16')
  whitening = whitening_kernel(first_images(_WHITENING_IMAGES), data) if is_fastnet else None
  return whitening, is_faster and own_gradients.can_compile(session_config)


def standardisation(data: DatasetInfo) -> tuple[np.ndarray, np.ndarray]:
  """Returns scale and shift by channel that bring -1..1 (`normalise`) to mean 0, deviation 1."""
  stds = np.array(data.stds)
  return 128 / 255 / stds, (128 / 255 - np.array(data.means)) / stds


def whitening_kernel(images: np.ndarray, data: DatasetInfo) -> np.ndarray:
  """Returns the kernel that whitens 2x2 patches of uint8 images [n, 32, 32, 3], standardised.

  That makes them uncorrelated, with variance 1. It is float32 [2, 2, 3, 24]: the eigenvectors of
  the patches' second moments, largest eigenvalue first, each divided by the square root of its
  eigenvalue + 5e-4; then their negations, so that an activation loses nothing (paper, section 3.2).
  """
  x = (images.astype(np.float32) / 255 - np.array(data.means)) / np.array(data.stds)
  height, width = (size - _PATCH + 1 for size in x.shape[1:3])
  corners = [(row, column) for row in range(_PATCH) for column in range(_PATCH)]
  shifted = [x[:, row : row + height, column : column + width] for row, column in corners]
  patches = np.concatenate(shifted, -1).reshape(-1, _PATCH * _PATCH * 3)
  eigenvalues, eigenvectors = np.linalg.eigh(patches.T @ patches / len(patches))
  scaled = (eigenvectors / np.sqrt(eigenvalues + _EPSILON))[:, ::-1]
  kernel = scaled.reshape(_PATCH, _PATCH, 3, -1)
  return np.concatenate([kernel, -kernel], -1).astype(np.float32)


def identity_initializer(shape: Sequence[int], dtype: tf.DType | str = 'float32') -> tf.Tensor:
  """Returns a convolution kernel whose first outputs are its inputs (paper, section 3.3).

  Of [height, width, in, out], height and width odd, output i < in is input i; the others are
  uniform of variance 1 / (3 fan-in), as in PyTorch's layers.
  """
  height, width, inputs, outputs = shape
  # Not a constant: the graph, and so every event file, would hold the constant's zeros.
  around = [[height // 2] * 2, [width // 2] * 2, [0, 0], [0, 0]]
  identity = tf.pad(tf.eye(inputs, dtype=dtype)[tf.newaxis, tf.newaxis], around)
  if inputs == outputs:
    return identity
  limit = 1 / math.sqrt(height * width * inputs)
  uniform = tf.compat.v1.random_uniform_initializer(-limit, limit)
  return tf.concat([identity, uniform([*shape[:3], outputs - inputs], dtype)], -1)
