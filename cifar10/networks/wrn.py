"""Wide residual networks for 32x32 images: WRN-d-k, with d = 6n+4 layers, k times as wide.

Zagoruyko and Komodakis 2016, 'Wide Residual Networks' (arXiv 1605.07146), table 1, with n blocks a
stage:

  stage              output    channels
  init (3x3 conv)    32 x 32         16
  stage1             32 x 32        16k
  stage2             16 x 16        32k
  stage3               8 x 8        64k
  bn, relu, mean           1        64k
  dense                    1         10
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from cifar10.core.lazy_tf import tf
from cifar10.core.option import BELOW_ONE, between, option
from cifar10.networks.family import DEPTH, Family, Recipe, check_depth
from cifar10.networks.layers import FamilyNetwork

_FILTERS = (16, 32, 64)
_STRIDES = (1, 2, 2)
_FIRST_FILTERS = 16
# The paper counts convolutions: two in each block, n blocks in each of three stages; and the first
# convolution, and one in the shortcut of each stage.
_PER_N, _OTHERS = 6, 4


class WideResNet(FamilyNetwork):
  """The WRN-d-k that the options describe."""

  def forward_pass(self, images: tf.Tensor) -> tf.Tensor:
    with tf.compat.v1.variable_scope('init'):
      x = self._conv(self._input(images), 3, _FIRST_FILTERS, 1)
    for stage, (filters, stride) in enumerate(zip(_FILTERS, _STRIDES), 1):
      with tf.compat.v1.variable_scope(f'stage{stage}'):
        x = self._stage(x, filters * self._options.wrn_widen_factor, stride)
    with tf.compat.v1.variable_scope('final'):
      x = self._relu(self._batch_norm(x))
    x = self._global_avg_pool(x)  # [batch, channels] float32
    return self._fully_connected(x, self._num_classes)

  def _stage(self, x: tf.Tensor, filters: int, stride: int) -> tf.Tensor:
    """Applies the n blocks of a stage; the first one changes the size and the width."""
    x = self._wide_residual(x, filters, stride, name='block0')
    for block in range(1, (self._options.wrn_depth - _OTHERS) // _PER_N):
      x = self._wide_residual(x, filters, 1, name=f'block{block}')
    return x

  def _wide_residual(self, x: tf.Tensor, filters: int, stride: int, name: str) -> tf.Tensor:
    """Applies bn, relu, conv, bn, relu, dropout, conv, + shortcut (figure 1d).

    A block that changes the shape has a 1x1 convolution of the activated input as its shortcut, as
    in the authors' code (models/wide-resnet.lua); any other block adds its input.
    """
    with tf.compat.v1.variable_scope(name):
      activated = self._relu(self._batch_norm(x, name='bn1'))
      if filters != self._num_channels(x) or stride != 1:
        shortcut = self._conv(activated, 1, filters, stride, name='shortcut')
      else:
        shortcut = x
      x = self._conv(activated, 3, filters, stride, name='conv1')
      x = self._relu(self._batch_norm(x, name='bn2'))
      x = self._dropout(x, self._options.wrn_dropout)
      return self._conv(x, 3, filters, 1, name='conv2') + shortcut


# Section 3: 200 epochs of SGD, 0.1 times 0.2 at epochs 60, 120 and 160. Padding by reflection and
# batch norm's constants are those of the authors' code. That code standardises images (here they
# are -1..1) and initialises kernels by their outputs (here by their inputs).
_WRN_28_10 = Recipe(
  '96.00 % (the paper, without dropout); not measured here',
  '200 epochs: 78,125 steps of 128 images, 5.2 billion multiplications each',
  {
    'wrn_depth': 28,
    'wrn_widen_factor': 10,
    'train_on': 'train+validation',
    'train_steps': 78_125,
    'lr_values': (1.0, 0.2, 0.04, 0.008),
    'lr_boundaries_epochs': (60, 120, 160),
    'nesterov': True,
    'weight_decay': 5e-4,
    'padding_mode': 'reflect',
    'batch_norm_decay': 0.9,
  },
)


@dataclasses.dataclass(frozen=True)
class WideResNetFamily(Family):
  """The options of a wide ResNet, and its recipe."""

  NAME: ClassVar[str] = 'wrn'
  TITLE: ClassVar[str] = 'wide ResNets (Zagoruyko and Komodakis 2016)'
  NETWORK: ClassVar[type] = WideResNet
  RECIPES: ClassVar[dict[str, Recipe]] = {'wrn-28-10': _WRN_28_10}

  wrn_depth: int = option(16, 'depth of the wide ResNet: 6n+4 layers', check=DEPTH, fixed=True)
  wrn_widen_factor: int = option(
    4,
    'width of the wide ResNet: the factor of the channels of a plain ResNet',
    check=between(1, 100),
    fixed=True,
  )
  wrn_dropout: float = option(
    0.0, 'dropout rate between the convolutions of each block', check=BELOW_ONE
  )

  def check(self) -> None:
    """Raises InputError if no wide ResNet has this depth."""
    check_depth('--wrn-depth', self.wrn_depth, _PER_N, _OTHERS)

  def describe(self) -> str:
    """Returns for example 'WRN-16-4'."""
    return f'WRN-{self.wrn_depth}-{self.wrn_widen_factor}'
