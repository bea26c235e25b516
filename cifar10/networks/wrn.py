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

import tensorflow as tf

from cifar10.networks.layers import FamilyNetwork
from cifar10.options.families import WRN_LAYERS_PER_N, WRN_OTHER_LAYERS

_FILTERS = (16, 32, 64)
_STRIDES = (1, 2, 2)
_FIRST_FILTERS = 16


class WideResNet(FamilyNetwork):
  """The WRN-d-k that the options describe."""

  def forward_pass(self, x: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    with tf.compat.v1.variable_scope('init'):
      x = self._conv(self._input(x, input_data_format), 3, _FIRST_FILTERS, 1)
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
    for block in range(1, (self._options.wrn_depth - WRN_OTHER_LAYERS) // WRN_LAYERS_PER_N):
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
