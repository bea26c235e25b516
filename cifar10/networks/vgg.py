"""VGG networks for 32x32 images, with batch norm.

Simonyan and Zisserman 2014, 'Very Deep Convolutional Networks for Large-Scale Image Recognition'
(arXiv 1409.1556), table 1, in the usual form for CIFAR-10: batch norm after each 3x3 convolution,
and one dense layer instead of three (the paper's 224x224 images leave 7x7 pixels, these leave 1x1).

  convolutions of       VGG-11  VGG-13  VGG-16  VGG-19   output of the pool
  group1                     1       2       2       2   16 x 16 x  64
  group2                     1       2       2       2     8 x 8 x 128
  group3                     2       2       3       4     4 x 4 x 256
  group4                     2       2       3       4     2 x 2 x 512
  group5                     2       2       3       4     1 x 1 x 512

The names count the paper's layers: VGG-16 has 13 convolutions and, here, one dense layer.
"""

import tensorflow as tf

from cifar10.options.families import VGG_CONVS_PER_GROUP
from model_base import FamilyNetwork


class Vgg(FamilyNetwork):
  """Five groups of 3x3 convolutions, each with a max pool after it, and one dense layer."""

  WIDTHS = (64, 128, 256, 512, 512)  # Channels of the groups' convolutions.

  def forward_pass(self, x: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    x = self._input(x, input_data_format)
    groups = zip(VGG_CONVS_PER_GROUP[self._options.vgg_layers], self.WIDTHS)
    for group, (num_convs, width) in enumerate(groups, 1):
      with tf.compat.v1.variable_scope(f'group{group}'):
        for number in range(1, num_convs + 1):
          x = self._conv_bn_relu(x, 3, width, number)
        x = self._max_pool(x, 2, 'SAME')  # Smaller images (--resolutions) have odd sizes.
    x = self._global_avg_pool(x)  # [batch, 1, 1, width] -> [batch, width] float32
    return self._fully_connected(x, self._num_classes)
