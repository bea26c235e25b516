"""3x3 convolutions of small images, whose gradients are forward convolutions.

With small images, TensorFlow's filter gradient (bfloat16, on CPUs) has 0.3 to 0.7 of the speed of
a forward convolution that computes the same. An input gradient gains only where part of the result
is left out (benchmarks/results/tried.csv).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

# The gradient of a function of two tensors: from that of the result, those of the two.
Gradient = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]

_SMALL_IMAGE = 7 * 7  # Pixels, at most: from 8 x 8 on, TensorFlow's own gradient is as fast.
_EXAMPLES_AT_A_TIME = 64  # In one convolution of a filter gradient: more do not fit into the cache.


def gains_from_small_conv2d(
  x: tf.Tensor, kernel: tf.Tensor | tf.Variable, strides: int, data_format: str
) -> bool:
  """Tells whether `small_conv2d` trains faster than `tf.nn.conv2d` (two cores, AVX-512 BF16).

  Args:
    x: activations, [batch, height, width, in] or as `data_format` says.
    kernel: [height, width, in, out].
    strides: for rows and columns.
    data_format: 'NHWC' or 'NCHW'.
  """
  return (
    (x.dtype, strides, data_format) == (tf.bfloat16, 1, 'NHWC')
    and kernel.shape[:2] == [3, 3]
    and (x.shape[1:3].num_elements() or math.inf) <= _SMALL_IMAGE
  )


def small_conv2d(
  x: tf.Tensor, kernel: tf.Tensor | tf.Variable, after: Sequence[int] = (1, 1)
) -> tf.Tensor:
  """Applies `tf.nn.conv2d` (stride 1, SAME); its gradients are forward convolutions.

  Args:
    x: [batch, height, width, in].
    kernel: float32 [3, 3, in, out], variable or tensor.
    after: how many rows and columns of zeros follow an image; with 0 the last row, or column,
      of the result is left out.

  Returns:
    [batch, height, width, out], without the rows and columns left out, in the dtype of `x`.
  """

  @tf.custom_gradient
  def convolve(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    cast = tf.cast(kernel, x.dtype)

    def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
      turned = tf.transpose(tf.reverse(cast, [0, 1]), [0, 1, 3, 2])
      dx = tf.nn.conv2d(dy, turned, 1, _paddings([2 - zeros for zeros in after]))
      return dx, filter_gradient(x, dy, after)

    return tf.nn.conv2d(x, cast, 1, _paddings(after)), gradient

  return convolve(x, tf.convert_to_tensor(kernel))


def filter_gradient(x: tf.Tensor, dy: tf.Tensor, after: Sequence[int] = (1, 1)) -> tf.Tensor:
  """Returns the gradient of a 3x3 kernel (stride 1, SAME), computed by a forward convolution.

  It sums x[n, i + ky - 1, j + kx - 1, c] * dy[n, i, j, k] over n, i and j: a convolution whose
  images are x's channels, whose input channels are the examples, and whose kernel is dy. The
  library's forward kernel is fast enough to pay for the transposes.

  Args:
    x: [batch, height, width, in].
    dy: [batch, height, width, out], without what `after` leaves out.
    after: as in `small_conv2d`.

  Returns:
    float32 [3, 3, in, out].
  """
  sums = []
  batch = x.shape[0] or _EXAMPLES_AT_A_TIME
  for first in range(0, batch, _EXAMPLES_AT_A_TIME):
    chunk = (
      slice(first, first + _EXAMPLES_AT_A_TIME) if batch > _EXAMPLES_AT_A_TIME else slice(None)
    )
    images = tf.transpose(x[chunk], [3, 1, 2, 0])  # [in, height, width, examples]
    kernel = tf.transpose(dy[chunk], [1, 2, 0, 3])  # [height, width, examples, out]
    sums.append(tf.nn.conv2d(images, kernel, 1, _paddings(after)))
  total = tf.add_n([tf.cast(part, tf.float32) for part in sums])  # [in, 3, 3, out]
  return tf.transpose(total, [1, 2, 0, 3])


def _paddings(after: Sequence[int]) -> list[list[int]]:
  """Returns paddings: a row and column of zeros before each image, `after` of them after it."""
  return [[0, 0], *([1, zeros] for zeros in after), [0, 0]]
