"""ResNets for 32x32 images: the 6n+2 networks of He et al. 2015 and their 9n+2 bottleneck form.

Widths, with n blocks a stage ('Deep Residual Learning', section 4.2; the bottleneck form is the
ResNet-164 and ResNet-1001 of 'Identity Mappings'):

  stage              output    6n+2    9n+2
  init (3x3 conv)    32 x 32     16      16
  stage1             32 x 32     16      64
  stage2             16 x 16     32     128
  stage3               8 x 8     64     256
  mean, dense              1     10      10
"""

from __future__ import annotations

import tensorflow as tf

import model_base
from cifar10.options.families import RESNET_LAYERS_PER_N, RESNET_OTHER_LAYERS

_FILTERS = (16, 32, 64)
_STRIDES = (1, 2, 2)
_BOTTLENECK_EXPANSION = 4


class ResNetCifar10(model_base.ResNet):
  """A ResNet for images of 32x32 pixels; arguments as in TensorFlow's old cifar10_estimator."""

  def __init__(
    self,
    num_layers: int,
    is_training: bool,
    batch_norm_decay: float,
    batch_norm_epsilon: float,
    data_format: str = 'channels_first',
    *,
    version: int = 1,
    bottleneck: bool = False,
    num_classes: int = 10,
    dtype: tf.DType | str = 'float32',
  ):
    """Sets the network up; `forward_pass` builds its layers.

    Args:
      num_layers: 6n+2, or 9n+2 with `bottleneck`.
      is_training: whether batch norm normalises by the batch and updates its averages.
      batch_norm_decay: the part of a moving average that stays at each step.
      batch_norm_epsilon: added to the variance.
      data_format: of the activations.
      version: the order in a block: 1 (2015) or 2 (2016).
      bottleneck: blocks of 1x1, 3x3 and 1x1 convolutions, of version 2.
      num_classes: the number of logits.
      dtype: of activations, and of kernels where they are used.
    """
    super().__init__(is_training, data_format, batch_norm_decay, batch_norm_epsilon, dtype)
    self._num_classes = num_classes
    self._is_version_1 = version == 1
    # The number of blocks in each stage.
    self._num_blocks = (num_layers - RESNET_OTHER_LAYERS) // RESNET_LAYERS_PER_N[bottleneck]
    expansion = _BOTTLENECK_EXPANSION if bottleneck else 1
    self._stage_filters = [filters * expansion for filters in _FILTERS]
    if bottleneck:
      self._residual = self._bottleneck_residual_v2
    else:
      self._residual = self._residual_v1 if self._is_version_1 else self._residual_v2

  def forward_pass(self, x: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    x = self._first_layer(self._input(x, input_data_format))
    for stage, (out_filter, stride) in enumerate(zip(self._stage_filters, _STRIDES)):
      x = self._stage(x, stage, out_filter, stride)
    x = self._last_activation(x)
    x = self._global_avg_pool(x)  # [batch, channels] float32
    return self._fully_connected(x, self._num_classes)

  def _first_layer(self, x: tf.Tensor) -> tf.Tensor:
    """Applies the first 3x3 convolution; in version 2 the first block has its bn and relu."""
    with tf.compat.v1.variable_scope('init'):
      x = self._conv(x, 3, _FILTERS[0], 1)
      return self._relu(self._batch_norm(x)) if self._is_version_1 else x

  def _stage(self, x: tf.Tensor, stage: int, out_filter: int, stride: int) -> tf.Tensor:
    """Applies the n blocks of a stage; the first one changes the size and the width."""
    in_filter = self._num_channels(x)
    with tf.compat.v1.variable_scope(f'stage{stage + 1}'):
      x = self._residual(
        x, 3, in_filter, out_filter, stride, activate_before_residual=stage == 0, name='block0'
      )
      for block in range(1, self._num_blocks):
        x = self._residual(x, 3, out_filter, out_filter, 1, name=f'block{block}')
      return x

  def _last_activation(self, x: tf.Tensor) -> tf.Tensor:
    """Applies the bn and relu that version 2 needs after its last block, which ends with a sum."""
    if self._is_version_1:
      return x
    with tf.compat.v1.variable_scope('final'):
      return self._relu(self._batch_norm(x))
