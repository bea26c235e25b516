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

import dataclasses
from typing import ClassVar

import model_base
from cifar10.core.errors import InputError
from cifar10.core.lazy_tf import tf
from cifar10.core.option import option
from cifar10.data.info import DatasetInfo
from cifar10.networks.family import DEPTH, Family, Recipe, check_depth

_FILTERS = (16, 32, 64)
_STRIDES = (1, 2, 2)
_BOTTLENECK_EXPANSION = 4
# The layers for each n, by `bottleneck`: three stages times the convolutions in a block.
_LAYERS_PER_N = {False: 6, True: 9}
_OTHER_LAYERS = 2  # Than those in blocks: the first convolution and the fully connected layer.


class ResNetCifar10(model_base.ResNet):
  """The ResNet that the options describe, for images of 32x32 pixels."""

  def __init__(self, options: ResNetFamily, settings: model_base.LayerSettings, data: DatasetInfo):
    super().__init__(settings)
    self._num_classes = data.num_classes
    self._is_version_1 = options.resnet_version == 1
    # The number of blocks in each stage.
    self._num_blocks = (options.num_layers - _OTHER_LAYERS) // _LAYERS_PER_N[options.bottleneck]
    expansion = _BOTTLENECK_EXPANSION if options.bottleneck else 1
    self._stage_filters = [filters * expansion for filters in _FILTERS]
    if options.bottleneck:
      self._residual = self._bottleneck_residual_v2
    else:
      self._residual = self._residual_v1 if self._is_version_1 else self._residual_v2

  def forward_pass(self, images: tf.Tensor) -> tf.Tensor:
    x = self._first_layer(self._input(images))
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


@dataclasses.dataclass(frozen=True)
class ResNetFamily(Family):
  """The options of a ResNet, and its recipes."""

  NAME: ClassVar[str] = 'resnet'
  TITLE: ClassVar[str] = 'the ResNets of He et al. 2015 and 2016 for 32x32 images'
  NETWORK: ClassVar[type] = ResNetCifar10

  num_layers: int = option(
    44, 'depth of the ResNet: 6n+2 layers, or 9n+2 with --bottleneck', check=DEPTH, fixed=True
  )
  resnet_version: int = option(
    1,
    'order in a residual block; 1: conv, bn, relu; 2: bn, relu, conv (pre-activation)',
    choices=(1, 2),
    fixed=True,
  )
  bottleneck: bool = option(
    False, 'residual blocks of 1x1, 3x3 and 1x1 convolutions; need --resnet-version 2', fixed=True
  )

  RECIPES: ClassVar[dict[str, Recipe]] = {
    'classic': Recipe(
      '92.45 % with --dtype bfloat16 (one seed)',
      '80,000 steps of 128 images, of 40,000; 6.5 hours on two cores with AVX-512 BF16 (computed)',
      {},
    ),
    # He et al. 2015, 'Deep Residual Learning', section 4.2. Unlike there, inputs are in -1 to 1 and
    # not less the mean of each pixel, and what a crop adds is black.
    'he2015': Recipe(
      '91.53 % with --num-layers 20 --dtype bfloat16 (the mean of 3 seeds: 91.62, 91.35, 91.62); '
      'in the paper 91.25 %, and 92.83 % with 44 and 93.03 % with 56',
      '64,000 steps of 128 images; with --num-layers 20 2.5 hours on two cores with AVX-512 BF16',
      {
        'train_on': 'train+validation',
        'train_steps': 64_000,
        'lr_values': (1.0, 0.1, 0.01),
        'lr_boundaries_steps': (32_000, 48_000),
        'weight_decay': 1e-4,
      },
    ),
  }

  def check(self) -> None:
    if self.bottleneck and self.resnet_version == 1:
      raise InputError('--bottleneck blocks are version 2 only; add --resnet-version 2')
    kind = ' (bottleneck)' if self.bottleneck else ''
    per_n = _LAYERS_PER_N[self.bottleneck]
    check_depth('--num-layers', self.num_layers, per_n, _OTHER_LAYERS, kind)

  def describe(self) -> str:
    return f'ResNet-{self.num_layers}'
