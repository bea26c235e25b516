"""ResNets for 32x32 images: the 6n+2 networks of He et al. 2015, 9n+2 bottlenecks, and wide ones.

Widths, with n blocks a stage ('Deep Residual Learning', section 4.2; the bottleneck form is the
ResNet-164 and ResNet-1001 of 'Identity Mappings'; WRN-d-k has d = 6n+4 layers, k times as wide:
Zagoruyko and Komodakis 2016, 'Wide Residual Networks', arXiv 1605.07146, table 1):

  stage              output    6n+2    9n+2    WRN
  init (3x3 conv)    32 x 32     16      16     16
  stage1             32 x 32     16      64    16k
  stage2             16 x 16     32     128    32k
  stage3               8 x 8     64     256    64k
  mean, dense              1     10      10     10
"""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from cifar10.data.manifest import CIFAR10
from cifar10.options.families import ResNetFamily
from model_base import FamilyNetwork, LayerSettings, ResNet


class StagedResNet(FamilyNetwork, ResNet):
  """A ResNet of three stages, each after the first one with half the pixels."""

  def _stacked(
    self,
    x: tf.Tensor,
    residual: Callable[..., tf.Tensor],
    blocks: int,
    widths: Sequence[int],
    *,
    version: int = 2,
    activates_first: bool = False,
  ) -> tf.Tensor:
    """Returns the logits; each stage has one of the `widths`, and `blocks` blocks of `residual`.

    A block of `version` 1 ends with a ReLU (2015), one of 2 begins with bn and relu (2016); if it
    `activates_first`, the first block's shortcut starts after them.
    """
    with tf.compat.v1.variable_scope('init'):
      x = self._conv(x, 3, 16, 1)
      if version == 1:  # Else the first block begins with them.
        x = self._relu(self._batch_norm(x))
    before = 16
    for stage, width in enumerate(widths, 1):
      with tf.compat.v1.variable_scope(f'stage{stage}'):
        for block in range(blocks):
          first = {'activate_before_residual': activates_first and stage == 1 and block == 0}
          stride = 2 if stage > 1 and block == 0 else 1
          x = residual(x, 3, before, width, stride, name=f'block{block}', **first)
          before = width
    if version == 2:  # The last block ends with a sum.
      with tf.compat.v1.variable_scope('final'):
        x = self._relu(self._batch_norm(x))
    x = self._global_avg_pool(x)  # [batch, channels] float32
    return self._fully_connected(x, self._num_classes)


class FamilyResNet(StagedResNet):
  """The ResNet that the options describe."""

  def forward_pass(self, x: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    options = self._options
    residual = self._residual_v1 if options.resnet_version == 1 else self._residual_v2
    if options.bottleneck:
      residual = self._bottleneck_residual_v2
    blocks = (options.num_layers - 2) // (9 if options.bottleneck else 6)
    widths = (64, 128, 256) if options.bottleneck else (16, 32, 64)
    x = self._input(x, input_data_format)
    version = options.resnet_version
    return self._stacked(x, residual, blocks, widths, version=version, activates_first=True)


class WideResNet(StagedResNet):
  """The WRN-d-k that the options describe."""

  def forward_pass(self, x: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    blocks = (self._options.wrn_depth - 4) // 6  # And a shortcut's layer in each stage.
    widths = [width * self._options.wrn_widen_factor for width in (16, 32, 64)]
    # Figure 1b. The projection is as in the authors' code, models/wide-resnet.lua.
    residual = functools.partial(self._residual_v2, projects=True)
    return self._stacked(self._input(x, input_data_format), residual, blocks, widths)


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
