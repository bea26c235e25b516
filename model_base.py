"""Layers of networks and residual blocks of ResNets, in any data format and compute dtype.

They are raw TensorFlow operations. Activations are [batch, height, width, channels] with
'channels_last' and [batch, channels, height, width] with 'channels_first'; a convolution's kernel
is [height, width, in, out] in both, so one checkpoint serves both formats.

Variables are float32 always. With `dtype=tf.bfloat16` kernels are cast where they are used and
activations are bfloat16; batch-norm parameters and statistics and the logits stay float32.

Layers have variable scopes, named by the caller, or else numbered within the enclosing one as those
of `tf.layers`: conv, conv_1. A second network built with `reuse=True` shares the variables of the
first; where layers are named, in any order of building.

Papers: He et al. 2015, 'Deep Residual Learning for Image Recognition' (arXiv 1512.03385): v1;
He et al. 2016, 'Identity Mappings in Deep Residual Networks' (arXiv 1603.05027): v2;
He et al. 2015, 'Delving Deep into Rectifiers' (arXiv 1502.01852): initialisation.
"""

import functools
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from cifar10.data.manifest import DatasetInfo
from cifar10.ops import own_gradients
from cifar10.options.families import AVERAGE, CONVOLUTION, HEAD, OFFSET, SCALE

_NHWC_OR_NCHW = {'channels_last': 'NHWC', 'channels_first': 'NCHW'}
# The collections of variables that are saved with the network, but have no gradient.
UNTRAINED = [tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, tf.compat.v1.GraphKeys.MODEL_VARIABLES]
Initializer = Callable[..., tf.Tensor]  # Of a shape and a dtype, as TensorFlow's.


class LayerSettings(NamedTuple):
  """The settings that all layers of one network share."""

  is_training: bool  # True: normalise by the batch, update the moving averages; False: use them.
  data_format: str  # 'channels_first' or 'channels_last', for all activations.
  batch_norm_decay: float | tf.Tensor  # The part of a moving average that stays at each step.
  batch_norm_epsilon: float  # Added to the variance before the square root.
  dtype: tf.DType | str = 'float32'  # Of activations, and of kernels at use; or 'bfloat16'.
  compiles: bool = False  # Whether XLA makes one loop of operations in a row, in training.


class Layers:
  """Base class of networks: a subclass stacks these layers in `forward_pass`."""

  def __init__(  # noqa: PLR0917 - as they stand in LayerSettings
    self,
    is_training: bool,
    data_format: str,
    batch_norm_decay: float | tf.Tensor,
    batch_norm_epsilon: float,
    dtype: tf.DType | str = 'float32',
    compiles: bool = False,
  ):
    """Takes the fields of `LayerSettings`."""
    self._is_training = is_training
    self._data_format = data_format
    self._op_data_format = _NHWC_OR_NCHW[data_format]
    self._channel_axis = self._op_data_format.index('C')
    self._spatial_axes = [self._op_data_format.index('H'), self._op_data_format.index('W')]
    self._batch_norm_decay = batch_norm_decay
    self._batch_norm_epsilon = batch_norm_epsilon
    self._dtype = tf.as_dtype(dtype)
    self._compiles = compiles
    self._frozen: re.Pattern[str] | None = None
    self.roles: dict[str, str] = {}  # By the name of a variable's operation: its role.
    # By operation name: the value of each trained variable that the last forward pass has read.
    self.values: dict[str, tf.Tensor] = {}
    self.features: tf.Tensor | None = None  # float32 [batch, width], the input of the last layer.

  def forward_pass(self, x: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    """Returns the logits, float32 [batch, classes], of images, -1 to 1, in the compute dtype.

    They are [batch, 32, 32, 3], or as `input_data_format` says, whatever the layers' format.
    """
    raise NotImplementedError(f'{type(self).__name__} does not define forward_pass')

  def freeze(self, pattern: str) -> None:
    """Stops variables from training whose names (like 'resnet/init/conv/kernel') match; '': none.

    A batch norm without trained variables normalises by its moving averages in training, too, and
    does not update them. To be called before `forward_pass`.
    """
    self._frozen = re.compile(pattern) if pattern else None

  def _input(self, images: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    """Brings images from their data format and dtype to the network's."""
    x = tf.cast(images, self._dtype)
    if input_data_format == self._data_format:
      return x
    # Not done by the input pipeline, so that one pipeline serves every device and format.
    return tf.transpose(x, [0, 3, 1, 2] if self._data_format == 'channels_first' else [0, 2, 3, 1])

  def _conv(
    self,
    x: tf.Tensor,
    kernel_size: int | tuple[int, int],
    filters: int,
    strides: int,
    name: str | None = None,
    *,
    initializer: Initializer | None = None,
    pool_size: int = 1,
    convolve: own_gradients.Convolve | None = None,
  ) -> tf.Tensor:
    """Convolves without a bias (batch norm's offset is one); n pixels become ceil(n / strides).

    A `kernel_size` of two numbers is (height, width). If `_max_pool` with a `pool_size` follows a
    convolution without strides, the last row and column are not computed if it does not read them.
    `convolve`, in place of TensorFlow's, takes the kernel and the zeros after rows and columns.
    """
    rows, columns = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
    in_filters = x.shape[self._channel_axis]
    with tf.compat.v1.variable_scope(name, 'conv'):
      # Delving Deep, equation 10: a ReLU halves the second moment, so variance 2 / fan-in keeps it
      # from layer to layer. Normal, not truncated (as in the paper): that lowers the variance.
      stddev = math.sqrt(2 / (rows * columns * in_filters))
      initializer = initializer or tf.compat.v1.random_normal_initializer(stddev=stddev)
      shape = [rows, columns, in_filters, filters]
      kernel = self._variable('kernel', shape, initializer, CONVOLUTION)
      after = self._zeros_after(x, (rows, columns), strides, pool_size)
      if convolve:
        return convolve(kernel, after)
      given = x, kernel, strides, self._op_data_format
      if self._is_training and own_gradients.is_small_conv2d(*given):
        return own_gradients.small_conv2d(x, kernel, after)
      padding = 'SAME'
      # SAME would centre a 3x3 kernel on pixels 1, 3, 5, ... of an image of even size and on 0, 2,
      # 4, ... of one of odd size; padding the image makes it the latter for every size. SAME would
      # also compute what no pool reads. The op's own explicit paddings would do both, but their
      # gradients in bfloat16 take seconds on a CPU.
      if strides > 1 or pool_size > 1:
        before = (rows - 1) // 2, (columns - 1) // 2
        x = self._pad(x, dict(zip(self._spatial_axes, zip(before, after))))
        padding = 'VALID'
      kernel = tf.cast(kernel, self._dtype)
      return tf.nn.conv2d(x, kernel, strides, padding, data_format=self._op_data_format)

  def _zeros_after(
    self, x: tf.Tensor, kernel_size: tuple[int, int], strides: int, pool_size: int
  ) -> own_gradients.Zeros:
    """Returns how many zeros each axis needs at its end, for the last kernel centre that counts."""
    after: list[int | tf.Tensor] = [size // 2 for size in kernel_size]
    for i, axis in enumerate(self._spatial_axes):
      if after[i] and (strides > 1 or pool_size > 1):
        pixels = x.shape[axis] or tf.shape(x)[axis]
        unread = (pixels - 1) % strides + pixels % pool_size
        after[i] -= (tf.minimum if tf.is_tensor(unread) else min)(unread, after[i])
    return after

  def _batch_norm(
    self, x: tf.Tensor, name: str | None = None, *, fixed_scale: float | None = None
  ) -> tf.Tensor:
    """Normalises each channel by batch norm; in training it adds two operations to UPDATE_OPS.

    They move the moving averages by (1 - decay) of the way to the batch's mean and unbiased
    variance. Every tower's network adds its own two: run those of one tower. With `fixed_scale` the
    scale is that constant, not a variable.
    """
    with tf.compat.v1.variable_scope(name, 'batch_norm'):
      trained = ['offset', 'scale'] if fixed_scale is None else ['offset']
      is_training = self._is_training and not self._is_frozen(*trained)
      shape = [x.shape[self._channel_axis]]
      ones = tf.compat.v1.ones_initializer()
      zeros = tf.compat.v1.zeros_initializer()
      if fixed_scale is None:
        scale = self._variable('scale', shape, ones, SCALE)
      else:
        scale = tf.fill(shape, fixed_scale)
      offset = self._variable('offset', shape, zeros, OFFSET)
      moving_mean = self._variable('moving_mean', shape, zeros, AVERAGE, trainable=False)
      moving_variance = self._variable('moving_variance', shape, ones, AVERAGE, trainable=False)
      # The fused op takes bfloat16 activations with float32 parameters, and sums in float32.
      y, mean, variance = tf.compat.v1.nn.fused_batch_norm(
        x,
        scale,
        offset,
        mean=None if is_training else moving_mean,
        variance=None if is_training else moving_variance,
        epsilon=self._batch_norm_epsilon,
        data_format=self._op_data_format,
        is_training=is_training,
      )
      if is_training:
        for moving, batch in ((moving_mean, mean), (moving_variance, variance)):
          with tf.compat.v1.device(moving.device):
            change = (1 - self._batch_norm_decay) * (moving - batch)
            # An operation, not a tensor or variable: its name starts with the tower's name scope,
            # so `get_collection(UPDATE_OPS, scope)` finds one tower's updates.
            update = moving.assign_sub(change, read_value=False)
          tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
      return y

  def _relu(self, x: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(x)

  def _conv_bn_relu(
    self,
    x: tf.Tensor,
    kernel_size: int | tuple[int, int],
    filters: int,
    number: int,
    strides: int = 1,
  ) -> tf.Tensor:
    """Applies convolution `number` of the enclosing scope, then batch norm and relu."""
    x = self._conv(x, kernel_size, filters, strides, name=f'conv{number}')
    return self._relu(self._batch_norm(x, name=f'bn{number}'))

  def _add(self, x: tf.Tensor, shortcut: tf.Tensor) -> tf.Tensor:
    return x + shortcut

  def _fully_connected(
    self,
    x: tf.Tensor,
    out_dim: int,
    name: str | None = None,
    *,
    initializer: Initializer | None = None,
    has_bias: bool = True,
  ) -> tf.Tensor:
    """Applies a dense layer: [batch, features] -> [batch, out_dim], always in float32."""
    with tf.compat.v1.variable_scope(name, 'fully_connected'):
      in_dim = x.shape[1]
      # Variance 1 / fan-in, not 2 / fan-in: no ReLU follows that halves the second moment.
      normal = tf.compat.v1.random_normal_initializer(stddev=math.sqrt(1 / in_dim))
      kernel = self._variable('kernel', [in_dim, out_dim], initializer or normal, HEAD)
      self.features = tf.cast(x, tf.float32)
      product = tf.matmul(self.features, kernel)
      if not has_bias:
        return product
      zeros = tf.compat.v1.zeros_initializer()
      return product + self._variable('bias', [out_dim], zeros, HEAD)

  def _avg_pool(self, x: tf.Tensor, pool_size: int, stride: int) -> tf.Tensor:
    """Averages windows; as in `_conv`, n pixels become ceil(n / stride)."""
    # With SAME the padding does not count in the mean.
    return tf.nn.avg_pool2d(x, pool_size, stride, 'SAME', data_format=self._op_data_format)

  def _max_pool(self, x: tf.Tensor, pool_size: int, padding: str = 'VALID') -> tf.Tensor:
    """Returns the maximum of each window; n pixels become n / pool_size, with SAME rounded up."""
    return tf.nn.max_pool2d(x, pool_size, pool_size, padding, data_format=self._op_data_format)

  def _global_avg_pool(self, x: tf.Tensor) -> tf.Tensor:
    """Averages height and width: 4-dimensional activations -> [batch, channels] float32."""
    return tf.reduce_mean(tf.cast(x, tf.float32), self._spatial_axes)

  def _pad(self, x: tf.Tensor, added: dict[int, tuple[int, int | tf.Tensor]]) -> tf.Tensor:
    """Adds added[axis] = (before, after) zeros along the given axes."""
    if all(paddings == (0, 0) for paddings in added.values()):
      return x
    return tf.pad(x, [added.get(axis, (0, 0)) for axis in range(4)])

  def _variable(
    self, name: str, shape: list[int], initializer: Initializer, role: str, trainable: bool = True
  ) -> tf.Tensor | tf.Variable:
    """Makes or reuses a float32 variable of the enclosing scope; returns its value if it trains.

    Take a trained variable's value from here or from `values`, never from the variable: so a step
    reads it, and fetches it from a parameter server, only once.
    """
    trainable = trainable and not self._is_frozen(name)
    variable = tf.compat.v1.get_variable(
      name,
      shape,
      dtype=tf.float32,
      initializer=initializer,
      trainable=trainable,
      collections=None if trainable else UNTRAINED,
    )
    return self._read(variable, role, trainable)

  def _read(self, variable: tf.Variable, role: str, trainable: bool) -> tf.Tensor | tf.Variable:
    """Remembers a variable's role, and the value of one that trains, which it returns."""
    self.roles[variable.op.name] = role
    if not trainable:
      return variable
    value = self.values[variable.op.name] = tf.convert_to_tensor(variable)
    return value

  def _is_frozen(self, *names: str) -> bool:
    """Tells whether all these variables of the enclosing scope are frozen."""
    frozen, scope = self._frozen, tf.compat.v1.get_variable_scope().name
    return frozen is not None and all(frozen.search(f'{scope}/{name}') for name in names)


class FamilyNetwork(Layers):
  """A network that its family's options describe, for the classes of a data set."""

  def __init__(self, options: Any, settings: LayerSettings, data: DatasetInfo):
    super().__init__(*settings)
    self._options = options
    self._num_classes = data.num_classes


class ResNet(Layers):
  """Base class of ResNets: layers and residual blocks."""

  def _residual_v1(
    self,
    x: tf.Tensor,
    kernel_size: int,
    in_filter: int,
    out_filter: int,
    stride: int,
    *,
    activate_before_residual: bool = False,
    name: str | None = None,
  ) -> tf.Tensor:
    """Applies conv, bn, relu, conv, bn, + shortcut, relu (Deep Residual Learning, figure 2).

    `activate_before_residual` is an argument of every block, without effect in this one, whose
    input has been through a ReLU.
    """
    with tf.compat.v1.variable_scope(name, 'residual_v1'):
      shortcut = self._parameter_free_shortcut(x, in_filter, out_filter, stride)
      x = self._conv_bn_relu(x, kernel_size, out_filter, 1, stride)
      x = self._conv(x, kernel_size, out_filter, 1, name='conv2')
      x = self._batch_norm(x, name='bn2')
      is_plain = (type(self)._relu, type(self)._add) == (Layers._relu, Layers._add)
      if self._compiles and is_plain and own_gradients.is_large_in_bfloat16(x):
        return own_gradients.compiled_relu_of_sum(x, shortcut)
      return self._relu(self._add(x, shortcut))

  def _residual_v2(
    self,
    x: tf.Tensor,
    kernel_size: int,
    in_filter: int,
    out_filter: int,
    stride: int,
    *,
    activate_before_residual: bool = False,
    name: str | None = None,
    bottleneck: bool = False,
    projects: bool = False,
  ) -> tf.Tensor:
    """Applies bn, relu, conv, bn, relu, conv, + shortcut (Identity Mappings, figure 4e).

    With `activate_before_residual` the shortcut, too, starts after the first bn and relu: the
    paper's appendix has that in the network's first block, whose input no block has made. A
    `bottleneck` has a 1x1 convolution to out_filter / 4 before the convolution, and one to
    out_filter after it. In a block that changes the shape the shortcut of a bottleneck, and of
    one that `projects`, is a 1x1 convolution of the activated input.
    """
    convs = [(kernel_size, out_filter)] * 2
    if bottleneck:
      convs = [(1, out_filter // 4), (kernel_size, out_filter // 4), (1, out_filter)]
    with tf.compat.v1.variable_scope(name, f'{"bottleneck_" * bottleneck}residual_v2'):
      activated = self._relu(self._batch_norm(x, name='bn1'))
      if (bottleneck or projects) and (in_filter != out_filter or stride != 1):
        shortcut = self._conv(activated, 1, out_filter, stride, name='shortcut')
      else:
        source = activated if activate_before_residual else x
        shortcut = self._parameter_free_shortcut(source, in_filter, out_filter, stride)
      x = self._conv(activated, *convs[0], stride, name='conv1')
      for number, (size, filters) in enumerate(convs[1:], 2):
        x = self._relu(self._batch_norm(x, name=f'bn{number}'))
        x = self._conv(x, size, filters, 1, name=f'conv{number}')
      return self._add(x, shortcut)

  _bottleneck_residual_v2 = functools.partialmethod(_residual_v2, bottleneck=True)

  def _parameter_free_shortcut(
    self, x: tf.Tensor, in_filter: int, out_filter: int, stride: int
  ) -> tf.Tensor:
    """Returns a shortcut without variables: average pooling for a stride, zeros for more channels.

    The zero channels are added on both sides. The paper's option A takes every second pixel.
    """
    if stride > 1:
      x = self._avg_pool(x, stride, stride)
    before = (out_filter - in_filter) // 2
    return self._pad(x, {self._channel_axis: (before, out_filter - in_filter - before)})
