"""The layers of a network and the residual blocks of a ResNet, as raw ops in any data format and
compute dtype.

Activations are [batch, height, width, channels] with 'channels_last' and
[batch, channels, height, width] with 'channels_first'; a convolution's kernel is
[height, width, in, out] in both, so one checkpoint serves both formats.

Variables are float32 always. With `dtype=tf.bfloat16` kernels are cast where they are used and
activations are bfloat16; batch-norm parameters and statistics and the logits stay float32.

Every layer takes the name of its variable scope from the caller and none counts its calls, so a
second network built with `reuse=True` finds the variables of the first, in any order of building.

Papers: He et al. 2015, 'Deep Residual Learning for Image Recognition' (arXiv 1512.03385): v1;
He et al. 2016, 'Identity Mappings in Deep Residual Networks' (arXiv 1603.05027): v2;
He et al. 2015, 'Delving Deep into Rectifiers' (arXiv 1502.01852): initialisation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from cifar10.core import parts
from cifar10.core.lazy_tf import tf

_NHWC_OR_NCHW = {'channels_last': 'NHWC', 'channels_first': 'NCHW'}

# What a variable is to its layer: parameter groups are made of these roles.
CONVOLUTION = 'convolution'  # A kernel.
SCALE = 'scale'  # Batch norm's.
OFFSET = 'offset'  # Batch norm's.
HEAD = 'head'  # The kernel and the bias of a fully connected layer.
AVERAGE = 'moving average'  # Batch norm's; it has no gradient.


class LayerSettings(NamedTuple):
  """What all layers of one network share."""

  is_training: bool  # Normalise by the batch and update the moving averages, or normalise by them.
  data_format: str  # 'channels_first' or 'channels_last', of every activation.
  batch_norm_decay: float  # What the moving averages keep of themselves at each step.
  batch_norm_epsilon: float  # Added to the variance before the square root.
  dtype: tf.DType | str = 'float32'  # Of activations and of kernels at use: or bfloat16.


class Layers:
  """Layers; a subclass stacks them in `forward_pass`."""

  def __init__(self, settings: LayerSettings):
    """Raises ValueError for a data format or a dtype that layers cannot have."""
    is_training, data_format, batch_norm_decay, batch_norm_epsilon, dtype = settings
    if data_format not in _NHWC_OR_NCHW:
      raise ValueError(f'data_format is {data_format!r}, not one of {sorted(_NHWC_OR_NCHW)}')
    dtype = tf.as_dtype(dtype)
    # float16 is refused because its small gradients need loss scaling, which nothing here does.
    if dtype not in (tf.float32, tf.bfloat16):
      raise ValueError(f'dtype is {dtype!r}, not tf.float32 or tf.bfloat16')
    self._is_training = is_training
    self._data_format = data_format
    self._op_data_format = _NHWC_OR_NCHW[data_format]
    self._batch_norm_decay = batch_norm_decay
    self._batch_norm_epsilon = batch_norm_epsilon
    self._dtype = dtype
    self._frozen: re.Pattern[str] | None = None
    self._initializers: Mapping[str, Any] = {}
    self.roles: dict[str, str] = {}  # Of each variable, by its operation's name.
    # What the last forward pass has read of each trained variable, by its operation's name.
    self.values: dict[str, tf.Tensor] = {}
    self.dropouts: dict[str, float] = {}  # By operation: training drops that much of its result.
    self.features: Any = None  # float32 [batch, width], what the last layer is given.
    self._channel_axis = self._op_data_format.index('C')
    self._spatial_axes = [self._op_data_format.index('H'), self._op_data_format.index('W')]

  def forward_pass(self, images: tf.Tensor) -> tf.Tensor:
    """Normalised images to logits: what a subclass defines.

    Args:
      images: [batch, 32, 32, 3], -1 to 1, in the compute dtype, channels last whatever the data
        format.

    Returns:
      [batch, num_classes] float32.
    """
    raise NotImplementedError(f'{type(self).__name__} defines no forward_pass')

  def freeze(self, pattern: str) -> None:
    """Leaves variables untrained whose names, 'resnet/init/conv/kernel', match; '': none.

    They have no gradient, so what lies below the lowest trained variable costs a forward pass
    only. A batch norm without a trained variable normalises by its moving averages, in training,
    too, and leaves them as they are. To be called before `forward_pass`.
    """
    self._frozen = re.compile(pattern) if pattern else None

  def start_from(self, initializers: Mapping[str, Any]) -> None:
    """Takes these initializers in place of the layers' own, by the variable's name.

    To be called before `forward_pass`.
    """
    self._initializers = initializers

  def _input(self, images: tf.Tensor) -> tf.Tensor:
    """Images [batch, 32, 32, 3], channels last -> activations in the network's format and dtype."""
    x = tf.cast(images, self._dtype)
    if self._data_format == 'channels_first':
      # Here and not in the input pipeline, which then serves every device and format alike.
      x = tf.transpose(x, [0, 3, 1, 2])
    return x

  def _conv(
    self,
    x: tf.Tensor,
    kernel_size: int | tuple[int, int],
    filters: int,
    strides: int,
    name: str = 'conv',
    *,
    initializer: Any = None,
    pool_size: int = 1,
  ) -> tf.Tensor:
    """Convolves without a bias (batch norm's offset is one); n pixels become ceil(n / strides).

    A `kernel_size` of two is (height, width). Where `_max_pool` with a `pool_size` follows, the
    last row and column are left out that it would not read.
    """
    assert strides == 1 or pool_size == 1, 'what a pool reads after a stride is not known'
    with tf.compat.v1.variable_scope(name):
      kernel = self._kernel(kernel_size, self._num_channels(x), filters, initializer)
      after = self._zeros_after(x, kernel_size, strides, pool_size)
      if self._is_training and self._dtype == tf.bfloat16 and 'small_conv2d' in parts.PARTS:
        faster = parts.load('small_conv2d')
        if faster.gains_from_small_conv2d(x, kernel, strides, self._op_data_format):
          return faster.small_conv2d(x, kernel, after)
      padding = 'SAME'
      # SAME would centre a 3x3 kernel on pixels 1, 3, 5, ... of an image of even size and on 0, 2,
      # 4, ... of one of odd size; padding the image makes it the latter for every size. SAME would
      # also compute what no pool reads. The op's own explicit paddings would do both, but their
      # gradients in bfloat16 take seconds on a CPU.
      if strides > 1 or after != self._zeros_after(x, kernel_size):
        x = self._pad_for_valid(x, kernel_size, after)
        padding = 'VALID'
      return tf.nn.conv2d(
        x, tf.cast(kernel, self._dtype), strides, padding, data_format=self._op_data_format
      )

  def _kernel(
    self,
    kernel_size: int | tuple[int, int],
    in_filters: int,
    filters: int,
    initializer: Any = None,
  ) -> Any:
    """A convolution's, in the enclosing scope."""
    height, width = _height_and_width(kernel_size)
    # Delving Deep, equation 10: a ReLU halves the second moment, so variance 2 / fan-in keeps it
    # from layer to layer. A plain normal, as there: cutting its tails would lower the variance.
    stddev = math.sqrt(2 / (height * width * in_filters))
    return self._variable(
      'kernel',
      [height, width, in_filters, filters],
      initializer or tf.compat.v1.random_normal_initializer(stddev=stddev),
      CONVOLUTION,
    )

  def _batch_norm(
    self, x: tf.Tensor, name: str = 'batch_norm', *, fixed_scale: float | None = None
  ) -> tf.Tensor:
    """Normalises each channel; in training also adds two ops to UPDATE_OPS.

    Those move the averages by (1 - decay) of the way to the batch's mean and its unbiased
    variance. Each network built adds its own: of several towers, run one's. With `fixed_scale` the
    scale is that, and no variable.
    """
    with tf.compat.v1.variable_scope(name):
      is_training = self._is_training and not self._is_frozen(
        'offset', *(['scale'] if fixed_scale is None else [])
      )
      shape = [self._num_channels(x)]
      ones = tf.compat.v1.ones_initializer()
      zeros = tf.compat.v1.zeros_initializer()
      if fixed_scale is None:
        scale = self._variable('scale', shape, ones, SCALE)
      else:
        scale = tf.fill(shape, fixed_scale)
      offset = self._variable('offset', shape, zeros, OFFSET)
      moving_mean = self._variable('moving_mean', shape, zeros, AVERAGE, trainable=False)
      moving_variance = self._variable('moving_variance', shape, ones, AVERAGE, trainable=False)
      # The fused op takes bfloat16 activations beside float32 parameters, and sums in float32.
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
        self._add_moving_average_update(moving_mean, mean)
        self._add_moving_average_update(moving_variance, variance)
      return y

  def _relu(self, x: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(x)

  def _fully_connected(
    self,
    x: tf.Tensor,
    out_dim: int,
    name: str = 'fully_connected',
    *,
    initializer: Any = None,
    has_bias: bool = True,
  ) -> tf.Tensor:
    """[batch, features] -> [batch, out_dim], in float32 whatever the compute dtype."""
    with tf.compat.v1.variable_scope(name):
      in_dim = x.shape[1]
      # Variance 1 / fan-in: no ReLU follows, so nothing is halved that a 2 would make good.
      kernel = self._variable(
        'kernel',
        [in_dim, out_dim],
        initializer or tf.compat.v1.random_normal_initializer(stddev=math.sqrt(1 / in_dim)),
        HEAD,
      )
      self.features = tf.cast(x, tf.float32)
      product = tf.matmul(self.features, kernel)
      if not has_bias:
        return product
      zeros = tf.compat.v1.zeros_initializer()
      return product + self._variable('bias', [out_dim], zeros, HEAD)

  def _avg_pool(self, x: tf.Tensor, pool_size: int, stride: int) -> tf.Tensor:
    """Averages windows; n pixels become ceil(n / stride), as in `_conv`."""
    # SAME leaves what it pads out of the mean.
    return tf.nn.avg_pool2d(x, pool_size, stride, 'SAME', data_format=self._op_data_format)

  def _max_pool(self, x: tf.Tensor, pool_size: int) -> tf.Tensor:
    """The largest of each window; n pixels become floor(n / pool_size)."""
    return tf.nn.max_pool2d(x, pool_size, pool_size, 'VALID', data_format=self._op_data_format)

  def _global_avg_pool(self, x: tf.Tensor) -> tf.Tensor:
    """Four-dimensional activations -> [batch, channels] float32, averaged in float32."""
    return tf.reduce_mean(tf.cast(x, tf.float32), self._spatial_axes)

  def _zeros_after(
    self, x: tf.Tensor, kernel_size: int | tuple[int, int], strides: int = 1, pool_size: int = 1
  ) -> tuple[int, int]:
    """How many rows and columns of zeros follow an image, so that each pixel can be a centre.

    They are size // 2, less what no kernel reads: where `strides` pass the last pixels over, or a
    following `_max_pool` of `pool_size` leaves their results out.
    """
    zeros = []
    for axis, size in zip(self._spatial_axes, _height_and_width(kernel_size)):
      pixels = x.shape[axis]
      unread = 0 if pixels is None else (pixels - 1) % strides + pixels % pool_size
      zeros.append(max(size // 2 - unread, 0))
    height, width = zeros
    return height, width

  def _pad_for_valid(
    self, x: tf.Tensor, kernel_size: int | tuple[int, int], after: tuple[int, int], value: float = 0
  ) -> tf.Tensor:
    """Adds (size - 1) // 2 pixels of `value` before height and width, and so many after them."""
    pixels = {}
    for axis, size, zeros in zip(self._spatial_axes, _height_and_width(kernel_size), after):
      pixels[axis] = [(size - 1) // 2, zeros]
    return self._pad(x, pixels, value)

  def _pad(self, x: tf.Tensor, added: dict[int, list[int]], value: float = 0) -> tf.Tensor:
    """Adds added[axis] = [before, after] elements of `value` along the axes named."""
    if not any(sum(paddings) for paddings in added.values()):
      return x
    paddings = [added.get(axis, [0, 0]) for axis in range(4)]
    return tf.pad(x, paddings, constant_values=value)

  def _num_channels(self, x: tf.Tensor) -> int:
    return x.shape[self._channel_axis]

  def _variable(
    self, name: str, shape: list[int], initializer: Any, role: str, trainable: bool = True
  ) -> Any:
    """One float32 variable, made or found again by the enclosing scope's name.

    Of a trained one this is its value: whoever needs it takes that from here or from `values`, so
    that it is read, and comes from a parameter server, once a step.
    """
    keys = tf.compat.v1.GraphKeys
    scope = tf.compat.v1.get_variable_scope().name
    initializer = self._initializers.get(f'{scope}/{name}', initializer)
    trainable = trainable and not self._is_frozen(name)
    variable = tf.compat.v1.get_variable(
      name,
      shape,
      dtype=tf.float32,
      initializer=initializer,
      trainable=trainable,
      # What belongs to the network and has no gradient.
      collections=None if trainable else [keys.GLOBAL_VARIABLES, keys.MODEL_VARIABLES],
      # Under tf.distribute every replica computes an update of each moving average. The variable
      # takes the first replica's, as it takes tower 0's where there are towers.
      aggregation=tf.VariableAggregation.NONE
      if trainable
      else tf.compat.v1.VariableAggregation.ONLY_FIRST_REPLICA,
    )
    self.roles[variable.op.name] = role
    if not trainable:
      return variable
    self.values[variable.op.name] = tf.convert_to_tensor(variable)
    return self.values[variable.op.name]

  def _is_frozen(self, *names: str) -> bool:
    """Whether all these variables of the enclosing scope are frozen."""
    scope = tf.compat.v1.get_variable_scope().name
    return self._frozen is not None and all(
      self._frozen.search(f'{scope}/{name}') for name in names
    )

  def _add_moving_average_update(self, moving: Any, batch: tf.Tensor) -> None:
    """Adds moving -= (1 - decay) * (moving - batch) to UPDATE_OPS."""
    # Beside the variable: one small mean travels there, not the average here and back.
    with tf.compat.v1.device(moving.device):
      update = moving.assign_sub((1 - self._batch_norm_decay) * (moving - batch), read_value=False)
    # The operation and not a tensor or variable: its name starts with the tower's name scope, so
    # `get_collection(UPDATE_OPS, scope)` tells the towers apart.
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)


class ResNet(Layers):
  """Layers and residual blocks; a subclass stacks them in `forward_pass`."""

  def _residual_v1(
    self,
    x: tf.Tensor,
    kernel_size: int,
    in_filter: int,
    out_filter: int,
    stride: int,
    *,
    activate_before_residual: bool = False,
    name: str = 'residual_v1',
  ) -> tf.Tensor:
    """conv, bn, relu, conv, bn, + shortcut, relu (Deep Residual Learning, figure 2).

    `activate_before_residual` is there so that all blocks are called alike: the input of a v1
    block has already been through a ReLU, so it changes nothing.
    """
    del activate_before_residual
    with tf.compat.v1.variable_scope(name):
      shortcut = self._parameter_free_shortcut(x, in_filter, out_filter, stride)
      x = self._conv(x, kernel_size, out_filter, stride, name='conv1')
      x = self._relu(self._batch_norm(x, name='bn1'))
      x = self._conv(x, kernel_size, out_filter, 1, name='conv2')
      x = self._batch_norm(x, name='bn2')
      return self._relu(x + shortcut)

  def _residual_v2(
    self,
    x: tf.Tensor,
    kernel_size: int,
    in_filter: int,
    out_filter: int,
    stride: int,
    *,
    activate_before_residual: bool = False,
    name: str = 'residual_v2',
  ) -> tf.Tensor:
    """bn, relu, conv, bn, relu, conv, + shortcut (Identity Mappings, figure 4e).

    With `activate_before_residual` the shortcut too starts after the first bn and relu. The paper's
    appendix has that in the network's first block, whose input no block has made.
    """
    with tf.compat.v1.variable_scope(name):
      activated = self._relu(self._batch_norm(x, name='bn1'))
      source = activated if activate_before_residual else x
      shortcut = self._parameter_free_shortcut(source, in_filter, out_filter, stride)
      x = self._conv(activated, kernel_size, out_filter, stride, name='conv1')
      x = self._relu(self._batch_norm(x, name='bn2'))
      x = self._conv(x, kernel_size, out_filter, 1, name='conv2')
      return x + shortcut

  def _bottleneck_residual_v2(
    self,
    x: tf.Tensor,
    kernel_size: int,
    in_filter: int,
    out_filter: int,
    stride: int,
    *,
    activate_before_residual: bool = False,
    name: str = 'bottleneck_residual_v2',
  ) -> tf.Tensor:
    """bn, relu, 1x1 conv to out_filter / 4, bn, relu, conv, bn, relu, 1x1 conv, + shortcut.

    A block that keeps its shape adds its input (after the first bn and relu with
    `activate_before_residual`). One that changes it projects with a 1x1 convolution, which reads
    the activated input in either case (Identity Mappings, appendix).
    """
    assert out_filter % 4 == 0, f'{out_filter} filters cannot be divided by 4'
    with tf.compat.v1.variable_scope(name):
      activated = self._relu(self._batch_norm(x, name='bn1'))
      if in_filter != out_filter or stride != 1:
        shortcut = self._conv(activated, 1, out_filter, stride, name='shortcut')
      else:
        shortcut = activated if activate_before_residual else x
      x = self._conv(activated, 1, out_filter // 4, stride, name='conv1')
      x = self._relu(self._batch_norm(x, name='bn2'))
      x = self._conv(x, kernel_size, out_filter // 4, 1, name='conv2')
      x = self._relu(self._batch_norm(x, name='bn3'))
      x = self._conv(x, 1, out_filter, 1, name='conv3')
      return x + shortcut

  def _parameter_free_shortcut(
    self, x: tf.Tensor, in_filter: int, out_filter: int, stride: int
  ) -> tf.Tensor:
    """Average pooling for a stride, zero channels on both sides for more channels.

    The paper's option A, which also adds no variables, takes every second pixel instead.
    """
    assert in_filter <= out_filter, f'a shortcut cannot go from {in_filter} to {out_filter} filters'
    if stride > 1:
      x = self._avg_pool(x, stride, stride)
    if in_filter < out_filter:
      before = (out_filter - in_filter) // 2
      x = self._pad(x, {self._channel_axis: [before, out_filter - in_filter - before]})
    return x


def _height_and_width(size: int | tuple[int, int]) -> tuple[int, int]:
  return (size, size) if isinstance(size, int) else size
