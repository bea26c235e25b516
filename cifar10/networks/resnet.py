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
from cifar10.data.manifest import DatasetInfo
from cifar10.options.families import RESNET_LAYERS_PER_N, RESNET_OTHER_LAYERS, ResNetFamily

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
    """Takes the options of a ResNet beside the fields of model_base.LayerSettings.

    It has 6n+2 layers, or 9n+2 with `bottleneck`, whose blocks are of version 2: of the order of
    2016, not of 2015.
    """
    super().__init__(is_training, data_format, batch_norm_decay, batch_norm_epsilon, dtype)
    self._num_classes = num_classes
    self._is_version_1 = version == 1
    self._blocks_per_stage = (num_layers - RESNET_OTHER_LAYERS) // RESNET_LAYERS_PER_N[bottleneck]
    self._expansion = _BOTTLENECK_EXPANSION if bottleneck else 1
    if bottleneck:
      self._residual = self._bottleneck_residual_v2
    else:
      self._residual = self._residual_v1 if self._is_version_1 else self._residual_v2

  @classmethod
  def of(
    cls, family: ResNetFamily, settings: model_base.LayerSettings, data: DatasetInfo
  ) -> ResNetCifar10:
    """Returns the network that a family's options describe."""
    return cls(
      family.num_layers,
      settings.is_training,
      settings.batch_norm_decay,
      settings.batch_norm_epsilon,
      settings.data_format,
      version=family.resnet_version,
      bottleneck=family.bottleneck,
      num_classes=data.num_classes,
      dtype=settings.dtype,
    )

  def forward_pass(self, x: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    with tf.compat.v1.variable_scope('init'):
      x = self._conv(self._input(x, input_data_format), 3, _FILTERS[0], 1)
      if self._is_version_1:  # Else the first block begins with them.
        x = self._relu(self._batch_norm(x))
    for stage, (filters, stride) in enumerate(zip(_FILTERS, _STRIDES), 1):
      with tf.compat.v1.variable_scope(f'stage{stage}'):
        x = self._stage(x, filters * self._expansion, stride, is_first=stage == 1)
    if not self._is_version_1:  # Whose last block ends with a sum.
      with tf.compat.v1.variable_scope('final'):
        x = self._relu(self._batch_norm(x))
    x = self._global_avg_pool(x)  # [batch, channels] float32
    return self._fully_connected(x, self._num_classes)

  def _stage(self, x: tf.Tensor, filters: int, stride: int, *, is_first: bool) -> tf.Tensor:
    """Applies the n blocks of a stage; the first one changes the size and the width."""
    before = self._num_channels(x)
    x = self._residual(
      x, 3, before, filters, stride, activate_before_residual=is_first, name='block0'
    )
    for block in range(1, self._blocks_per_stage):
      x = self._residual(x, 3, filters, filters, 1, name=f'block{block}')
    return x
