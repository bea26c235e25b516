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

from model_base import FamilyNetwork


class WideResNet(FamilyNetwork):
  """The WRN-d-k that the options describe."""

  def forward_pass(self, x: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    blocks_per_stage = (self._options.wrn_depth - 4) // 6  # And a shortcut's in each stage.
    with tf.compat.v1.variable_scope('init'):
      x = self._conv(self._input(x, input_data_format), 3, 16, 1)
    for stage, (filters, stride) in enumerate(((16, 1), (32, 2), (64, 2)), 1):
      with tf.compat.v1.variable_scope(f'stage{stage}'):
        for block in range(blocks_per_stage):
          with tf.compat.v1.variable_scope(f'block{block}'):
            width = filters * self._options.wrn_widen_factor
            x = self._wide_residual(x, width, stride if block == 0 else 1)
    with tf.compat.v1.variable_scope('final'):
      x = self._relu(self._batch_norm(x))
    x = self._global_avg_pool(x)  # [batch, channels] float32
    return self._fully_connected(x, self._num_classes)

  def _wide_residual(self, x: tf.Tensor, filters: int, stride: int) -> tf.Tensor:
    """Applies bn, relu, conv, bn, relu, conv, + shortcut (figure 1b).

    A block that changes the shape has a 1x1 convolution of the activated input as its shortcut, as
    in the authors' code (models/wide-resnet.lua); any other block adds its input.
    """
    activated = self._relu(self._batch_norm(x, name='bn1'))
    if filters != self._num_channels(x) or stride != 1:
      shortcut = self._conv(activated, 1, filters, stride, name='shortcut')
    else:
      shortcut = x
    x = self._conv(activated, 3, filters, stride, name='conv1')
    x = self._relu(self._batch_norm(x, name='bn2'))
    return self._add(self._conv(x, 3, filters, 1, name='conv2'), shortcut)
