"""x sigmoid(x) as one loop over the memory, and a convolution of it, both with gradients."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable

import tensorflow as tf

from cifar10.core.start_tensorflow import repeat, standard_error_to
from cifar10.ops.convolution import Gradient

_NEARLY_ZERO = 1e-6  # The sigmoid of this is 0.5 in float32.
# XLA's first compilation in a process logs these lines at any log level.
_ON_COMPILING = (b'absl::InitializeLog', b'Compiled cluster using XLA')


def can_compile(session_config: tf.compat.v1.ConfigProto) -> bool:
  """Tells whether XLA can compile for this processor by trying it; hides the lines that XLA prints.

  Args:
    session_config: the ConfigProto of the sessions that follow: a process's first session decides
      how many threads an operation has in all later sessions.
  """
  config = tf.compat.v1.ConfigProto()
  config.CopyFrom(session_config)
  config.device_count['GPU'] = 0
  config.use_per_session_threads = True  # Or it also fixes how many operations run at once.
  del config.device_filters[:]
  with tf.Graph().as_default(), tempfile.TemporaryFile() as output:
    number = tf.compat.v1.placeholder(tf.float32, [])
    twice = tf.function(lambda x: x + x, jit_compile=True, autograph=False)(number)
    try:
      with (
        standard_error_to(output),
        tf.compat.v1.Session(config=config) as session,
      ):
        return session.run(twice, {number: 1.0}) == 2
    except tf.errors.OpError:
      return False
    finally:
      repeat(output, but=_ON_COMPILING)


def compiled_silu(x: tf.Tensor) -> tf.Tensor:
  """Returns x sigmoid(x) in one loop; for 1.702 x it is 1.702 times the usual approximate GELU."""

  @tf.custom_gradient
  def activate(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    y = _one_loop(_silu)(x, 0.0)
    return y, lambda dy: _one_loop(_silu_gradient)(x, 0.0, y, dy)

  return activate(x)


@functools.cache
def _one_loop(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
  """Returns the function, compiled by XLA."""
  return tf.function(function, jit_compile=True, autograph=False)


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


def conv_of_silu(
  x: tf.Tensor,
  bias: tf.Tensor,
  kernel: tf.Tensor,
  bias_learns: tf.Tensor,
  data_format: str,
  *,
  after: tuple[int, int] = (1, 1),
  compiles: bool = False,
) -> tf.Tensor:
  """Returns a convolution of silu(x + bias), stride 1, padding SAME; `x` has no gradient.

  The bias's gradient costs as much as the convolution's input gradient, so it is computed only if
  `bias_learns`; otherwise it is 0.

  Args:
    x: [batch, height, width, in], or as `data_format` says.
    bias: [in].
    kernel: [3, 3, in, out].
    bias_learns: bool scalar.
    data_format: 'NHWC' or 'NCHW'.
    after: how many rows and columns of zeros follow an image; with 0 the last row, or column,
      of the result is left out.
    compiles: whether XLA compiles the activation, and its gradient, to one loop each.

  Returns:
    [batch, height, width, out], or as `data_format` says, without what is left out.
  """
  in_loop = _one_loop if compiles else lambda function: function
  if not compiles:
    # Or `custom_gradient` finds the variables behind `x`, such as those of a proxy that chose the
    # images, and asks for their gradients.
    x = tf.stop_gradient(x)
  paddings = [[0, 0]] * 4
  for axis, zeros in zip('HW', after):
    paddings[data_format.index(axis)] = [1, zeros]

  @tf.custom_gradient
  def convolve(bias: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    added = bias if data_format == 'NHWC' else bias[:, tf.newaxis, tf.newaxis]
    activated = in_loop(_silu)(x, added)
    # Padded by hand, not by the convolution's explicit paddings: see `_conv` in model_base.
    padded = tf.pad(activated, paddings)
    settings = {'strides': [1, 1, 1, 1], 'padding': 'VALID', 'data_format': data_format}

    def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
      def of_bias() -> tf.Tensor:
        da = tf.compat.v1.nn.conv2d_backprop_input(tf.shape(padded), kernel, dy, **settings)
        da = tf.slice(da, [before for before, _ in paddings], tf.shape(x))
        draw = in_loop(_silu_gradient)(x, added, activated, da)
        # Not BiasAddGrad: on CPUs it adds bfloat16 up in bfloat16, and so stops at 256 addends.
        return tf.reduce_sum(draw, [data_format.index(axis) for axis in 'NHW'])

      dkernel = tf.compat.v1.nn.conv2d_backprop_filter(padded, kernel.shape, dy, **settings)
      return tf.cond(bias_learns, of_bias, lambda: tf.zeros_like(bias)), dkernel

    return tf.nn.conv2d(padded, kernel, 1, 'VALID', data_format), gradient

  return convolve(bias, kernel)
