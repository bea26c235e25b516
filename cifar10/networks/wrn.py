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

import functools

import tensorflow as tf

from cifar10.networks.resnet import StagedResNet


class WideResNet(StagedResNet):
  """The WRN-d-k that the options describe."""

  def forward_pass(self, x: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    blocks = (self._options.wrn_depth - 4) // 6  # And a shortcut's layer in each stage.
    widths = [width * self._options.wrn_widen_factor for width in (16, 32, 64)]
    # Figure 1b. The projection is as in the authors' code, models/wide-resnet.lua.
    residual = functools.partial(self._residual_v2, projects=True)
    return self._stacked(self._input(x, input_data_format), residual, blocks, widths)
