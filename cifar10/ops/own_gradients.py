"""Operations with gradients of their own, where TensorFlow's are slow on CPUs.

`small_conv2d` is a 3x3 convolution of small images in bfloat16: TensorFlow's filter gradient has
0.3 to 0.7 of the speed of a forward convolution that computes the same. An input gradient gains
only where part of the result is left out (benchmarks/results/tried.csv).

`compiled_silu` is x sigmoid(x) as one loop over the memory. `conv_of_silu` is a convolution of it
whose bias costs nothing once it has stopped learning. `compiled_relu_of_sum` is the end of a
residual block, as one loop as well.
"""

import functools
import math
import tempfile
from collections.abc import Callable, Sequence

import tensorflow as tf

from cifar10.core.start_tensorflow import standard_error_to

# The gradient of a function of two tensors: from that of the result, those of the two.
Gradient = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
# Zeros after an image's rows and after its columns: tensors, if only the running graph knows how
# large it is.
Zeros = Sequence[int | tf.Tensor]
Convolve = Callable[[tf.Tensor, Zeros], tf.Tensor]  # Of a kernel and those zeros.

_SMALL_IMAGE = 7 * 7  # Pixels, at most: from 8 x 8 on, TensorFlow's own gradient is as fast.
_EXAMPLES_AT_A_TIME = 64  # In one convolution of a filter gradient: more do not fit into the cache.
_LARGE = 2**20  # Elements: of fewer, a loop's call costs what the loop saves.
_NEARLY_ZERO = 1e-6  # The sigmoid of this is 0.5, but for 2.5e-7.


def is_small_conv2d(x: tf.Tensor, kernel: tf.Tensor, strides: int, data_format: str) -> bool:
  """Tells whether `small_conv2d` trains faster than `tf.nn.conv2d` with these arguments."""
  return (
    (x.dtype, strides, data_format) == (tf.bfloat16, 1, 'NHWC')
    and kernel.shape[:2] == [3, 3]
    and (x.shape[1:3].num_elements() or math.inf) <= _SMALL_IMAGE
  )


def small_conv2d(x: tf.Tensor, kernel: tf.Tensor, after: Zeros = (1, 1)) -> tf.Tensor:
  """Applies `tf.nn.conv2d` (stride 1, SAME); its gradients are forward convolutions.

  From [batch, height, width, in] and float32 [3, 3, in, out] to [batch, height, width, out] in the
  dtype of `x`. So many rows and columns of zeros come `after` an image: with 0 the last row, or
  column, of the result is left out.
  """

  @tf.custom_gradient
  def convolve(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    cast = tf.cast(kernel, x.dtype)

    def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
      turned = tf.transpose(tf.reverse(cast, [0, 1]), [0, 1, 3, 2])
      dx = _padded_conv2d(dy, turned, [2 - zeros for zeros in after])
      return dx, filter_gradient(x, dy, after)

    return _padded_conv2d(x, cast, after), gradient

  return convolve(x, tf.convert_to_tensor(kernel))


def filter_gradient(x: tf.Tensor, dy: tf.Tensor, after: Zeros = (1, 1)) -> tf.Tensor:
  """Returns the gradient of a 3x3 kernel by a forward convolution: float32 [3, 3, in, out].

  It sums x[n, i + ky - 1, j + kx - 1, c] * dy[n, i, j, k] over n, i and j: a convolution whose
  images are x's channels, whose input channels are the examples, and whose kernel is dy. Arguments
  are as in `small_conv2d`; `dy` is the gradient of its result.
  """
  sums = []
  batch = x.shape[0] or _EXAMPLES_AT_A_TIME
  for first in range(0, batch, _EXAMPLES_AT_A_TIME):
    chunk = slice(first, first + _EXAMPLES_AT_A_TIME)
    part, dy_part = (x[chunk], dy[chunk]) if batch > _EXAMPLES_AT_A_TIME else (x, dy)
    images = tf.transpose(part, [3, 1, 2, 0])  # [in, height, width, examples]
    kernel = tf.transpose(dy_part, [1, 2, 0, 3])  # [height, width, examples, out]
    sums.append(_padded_conv2d(images, kernel, after))
  total = tf.add_n([tf.cast(part, tf.float32) for part in sums])  # [in, 3, 3, out]
  return tf.transpose(total, [1, 2, 0, 3])


def _padded_conv2d(x: tf.Tensor, kernel: tf.Tensor, after: Zeros) -> tf.Tensor:
  if any(map(tf.is_tensor, after)):  # The operation's own paddings must be known to its graph.
    return tf.nn.conv2d(tf.pad(x, _paddings(after)), kernel, 1, 'VALID')
  return tf.nn.conv2d(x, kernel, 1, _paddings(after))


def _paddings(after: Zeros, data_format: str = 'NHWC') -> list[list[int | tf.Tensor]]:
  """Returns a row and column of zeros before each image, and `after` of them after it."""
  zeros = dict(zip('HW', after))
  return [[1, zeros[axis]] if axis in zeros else [0, 0] for axis in data_format]


def can_compile(session_config: tf.compat.v1.ConfigProto) -> bool:
  """Tells whether XLA can compile for this processor by trying it; hides what XLA prints.

  The ConfigProto is that of the sessions that follow: a process's first session decides how many
  threads an operation has in all later ones.
  """
  config = tf.compat.v1.ConfigProto()
  config.CopyFrom(session_config)
  config.device_count['GPU'] = 0
  config.use_per_session_threads = True  # Or it also fixes how many operations run at once.
  del config.device_filters[:]
  with tf.Graph().as_default(), tempfile.TemporaryFile() as hidden, standard_error_to(hidden):
    number = tf.compat.v1.placeholder(tf.float32, [])
    twice = _one_loop(lambda x: x + x)(number)
    try:
      with tf.compat.v1.Session(config=config) as session:
        return session.run(twice, {number: 1.0}) == 2
    except tf.errors.OpError:
      return False


@functools.cache
def _one_loop(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
  """Returns the function, compiled by XLA."""
  return tf.function(function, jit_compile=True, autograph=False)


@tf.custom_gradient
def compiled_silu(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
  """Returns x sigmoid(x) in one loop; for 1.702 x it is 1.702 times the usual approximate GELU."""
  y = _one_loop(_silu)(x, 0.0)
  return y, lambda dy: _one_loop(_silu_gradient)(x, 0.0, y, dy)


def _silu(x: tf.Tensor, bias: tf.Tensor | float) -> tf.Tensor:
  """Returns silu(x + bias), computed in float32."""
  z = tf.cast(x, tf.float32) + tf.cast(bias, tf.float32)
  # Not z sigmoid(z): TensorFlow fuses that to an operation that XLA does not know.
  return tf.cast(z / (1 + tf.exp(-z)), x.dtype)


def _silu_gradient(x: tf.Tensor, bias: tf.Tensor | float, y: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
  """Returns the gradient from y = silu(x + bias), without computing another exponential.

  The rounding of y to bfloat16 makes it wrong by up to |x + bias| / 512, so 2 % at 10.
  """
  z, y, dy32 = (tf.cast(value, tf.float32) for value in (x, y, dy))
  z += tf.cast(bias, tf.float32)
  sigmoid = tf.where(tf.abs(z) < _NEARLY_ZERO, 0.5, y / z)
  return tf.cast(dy32 * (sigmoid + y * (1 - sigmoid)), x.dtype)


def is_large_in_bfloat16(x: tf.Tensor) -> bool:
  """Tells whether `compiled_relu_of_sum` gains; float32 loses by it."""
  return x.dtype == tf.bfloat16 and (x.shape.num_elements() or 0) >= _LARGE


@tf.custom_gradient
def compiled_relu_of_sum(x: tf.Tensor, shortcut: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
  """Returns relu(x + shortcut) in one loop; its gradient is one loop, too, of the same values."""
  y = _one_loop(_relu_of_sum)(x, shortcut)

  def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    # The next block reads y twice, so dy is a sum of two gradients, which joins the loop.
    parts = dy.op.inputs if dy.op.type == 'AddN' and len(dy.op.inputs) == 2 else [dy]
    dx = _one_loop(_relu_gradient)(y, *parts)
    return dx, dx

  return y, gradient


def _relu_of_sum(x: tf.Tensor, shortcut: tf.Tensor) -> tf.Tensor:
  return tf.maximum(x + shortcut, 0)


def _relu_gradient(y: tf.Tensor, dy: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
  return tf.where(y > 0, sum(others, dy), tf.zeros_like(dy))


def conv_of_silu(
  x: tf.Tensor,
  bias: tf.Tensor,
  kernel: tf.Tensor,
  bias_learns: tf.Tensor,
  data_format: str,
  *,
  after: Zeros = (1, 1),
  compiles: bool = False,
) -> tf.Tensor:
  """Returns a convolution of silu(x + bias), stride 1, padding SAME; `x` has no gradient.

  The bias's gradient costs as much as the convolution's input gradient, so it is computed only if
  `bias_learns`, a bool scalar; otherwise it is 0. `x` is [batch, height, width, in], or as
  `data_format` says; `bias` [in]; `kernel` [3, 3, in, out]; `after` is as in `small_conv2d`. With
  `compiles` XLA makes one loop each of the activation and its gradient.
  """
  silu, silu_gradient = _silu, _silu_gradient
  if compiles:
    silu, silu_gradient = _one_loop(_silu), _one_loop(_silu_gradient)
  else:
    # Or `custom_gradient` finds the variables behind `x`, such as those of a proxy that chose the
    # images, and asks for their gradients.
    x = tf.stop_gradient(x)
  # By hand, not by the convolution's explicit paddings: see `_conv` in model_base.
  paddings = _paddings(after, data_format)
  settings = {'strides': [1, 1, 1, 1], 'padding': 'VALID', 'data_format': data_format}

  @tf.custom_gradient
  def convolve(bias: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    added = bias if data_format == 'NHWC' else bias[:, tf.newaxis, tf.newaxis]
    activated = silu(x, added)
    padded = tf.pad(activated, paddings)

    def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
      def of_bias() -> tf.Tensor:
        da = tf.compat.v1.nn.conv2d_backprop_input(tf.shape(padded), kernel, dy, **settings)
        da = tf.slice(da, [before for before, _ in paddings], tf.shape(x))
        draw = silu_gradient(x, added, activated, da)
        # Not BiasAddGrad: on CPUs it adds bfloat16 up in bfloat16, and so stops at 256 addends.
        return tf.reduce_sum(draw, [data_format.index(axis) for axis in 'NHW'])

      dkernel = tf.compat.v1.nn.conv2d_backprop_filter(padded, kernel.shape, dy, **settings)
      return tf.cond(bias_learns, of_bias, lambda: tf.zeros_like(bias)), dkernel

    return tf.nn.conv2d(padded, kernel, **settings), gradient

  return convolve(bias, kernel)
