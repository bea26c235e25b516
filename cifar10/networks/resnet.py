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

from cifar10.data.manifest import CIFAR10
from cifar10.options.families import ResNetFamily
from model_base import FamilyNetwork, LayerSettings, ResNet


class FamilyResNet(FamilyNetwork, ResNet):
  """The ResNet that the options describe."""

  def forward_pass(self, x: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    options = self._options
    is_version_1 = options.resnet_version == 1  # The order of 2015, not of 2016.
    residual = self._residual_v1 if is_version_1 else self._residual_v2
    if options.bottleneck:
      residual = self._bottleneck_residual_v2
    blocks = (options.num_layers - 2) // (9 if options.bottleneck else 6)
    with tf.compat.v1.variable_scope('init'):
      x = self._conv(self._input(x, input_data_format), 3, 16, 1)
      if is_version_1:  # Else the first block begins with them.
        x = self._relu(self._batch_norm(x))
    for stage, (filters, stride) in enumerate(((16, 1), (32, 2), (64, 2)), 1):
      width = 4 * filters if options.bottleneck else filters
      with tf.compat.v1.variable_scope(f'stage{stage}'):
        before = self._num_channels(x)
        is_first = stage == 1
        x = residual(x, 3, before, width, stride, activate_before_residual=is_first, name='block0')
        for block in range(1, blocks):
          x = residual(x, 3, width, width, 1, name=f'block{block}')
    if not is_version_1:  # Whose last block ends with a sum.
      with tf.compat.v1.variable_scope('final'):
        x = self._relu(self._batch_norm(x))
    x = self._global_avg_pool(x)  # [batch, channels] float32
    return self._fully_connected(x, self._num_classes)


class ResNetCifar10(FamilyResNet):
  """A ResNet with ten logits; arguments as in TensorFlow's old cifar10_estimator."""

  def __init__(
    self,
    num_layers: int,
    is_training: bool,
    batch_norm_decay: float,
    batch_norm_epsilon: float,
    data_format: str = 'channels_first',
  ):
    settings = LayerSettings(is_training, data_format, batch_norm_decay, batch_norm_epsilon)
    super().__init__(ResNetFamily(num_layers), settings, CIFAR10)
