"""Layers that networks other than the default one need, in addition to those of model_base.py."""

from __future__ import annotations

import zlib
from typing import Any

import tensorflow as tf

import model_base
from cifar10.data.info import DatasetInfo


class MoreLayers(model_base.Layers):
  """Layers with dropout, concatenation and compositions of several layers."""

  def _conv_bn_relu(
    self,
    x: tf.Tensor,
    kernel_size: int | tuple[int, int],
    filters: int,
    number: int,
    strides: int = 1,
  ) -> tf.Tensor:
    """Applies convolution `number` of the enclosing scope, then batch norm and relu."""
    x = self._conv(x, kernel_size, filters, strides, name=f'conv{number}')
    return self._relu(self._batch_norm(x, name=f'bn{number}'))

  def _dropout(self, x: tf.Tensor, rate: float) -> tf.Tensor:
    """Sets each element to 0 with probability `rate`, divides the others by 1 - rate, in training.

    The expectation stays `x`, which evaluation returns. Srivastava et al. 2014, 'Dropout: A
    Simple Way to Prevent Neural Networks from Overfitting', section 10.

    Raises:
      ValueError: `rate` is not in 0 <= rate < 1.
    """
    if not 0 <= rate < 1:
      raise ValueError(f'dropout rate is {rate}; it must be at least 0 and less than 1')
    if rate == 0 or not self._is_training:
      return x
    # The seed depends on the step, not on a generator's state, which no checkpoint holds: a resumed
    # job drops the same elements as one that was not interrupted. And on the name, which layers and
    # towers do not share: TensorFlow's own seed would count the random operations before, of which
    # a resumed warm start has more.
    step = tf.compat.v1.train.get_or_create_global_step()
    seeds = list(tf.compat.v1.random.get_seed(zlib.crc32(x.op.name.encode()) & 0x7FFFFFFF))
    seed = tf.random.experimental.stateless_fold_in(seeds, tf.cast(step, tf.int32))
    # bfloat16 has 128 random numbers from 0 to 1: a rate of 0.3 would drop 39 of 128, 30.5 %.
    dropped = tf.nn.experimental.stateless_dropout(tf.cast(x, tf.float32), rate, seed)
    return tf.cast(dropped, x.dtype)

  def _concat(self, *branches: tf.Tensor) -> tf.Tensor:
    """Concatenates activations of the same height and width along the channels."""
    return tf.concat(branches, self._channel_axis)

  def _overlapping_max_pool(self, x: tf.Tensor, pool_size: int, stride: int) -> tf.Tensor:
    """Returns the maximum of each window; like in `_conv`, n pixels become ceil(n / stride).

    Pool and convolution outputs lie over the same pixels, so they can be concatenated.
    """
    after = self._zeros_after(x, pool_size, stride)
    x = self._pad_for_valid(x, pool_size, after, x.dtype.min)
    return tf.nn.max_pool2d(x, pool_size, stride, 'VALID', data_format=self._op_data_format)


class FamilyNetwork(MoreLayers):
  """A network that its family's options describe, for the classes of a data set."""

  def __init__(self, options: Any, settings: model_base.LayerSettings, data: DatasetInfo):
    super().__init__(*settings)
    self._options = options
    self._num_classes = data.num_classes
