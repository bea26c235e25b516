"""Layers beside those of model_base.py, for networks other than the default one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import model_base
from cifar10.core.lazy_tf import tf


class MoreLayers(model_base.Layers):
  """Dropout, concatenation, and what is made of several layers."""

  def _conv_bn_relu(
    self,
    x: tf.Tensor,
    kernel_size: int | tuple[int, int],
    filters: int,
    number: int,
    strides: int = 1,
  ) -> tf.Tensor:
    """The enclosing scope's convolution of that number: conv, bn, relu."""
    x = self._conv(x, kernel_size, filters, strides, name=f'conv{number}')
    return self._relu(self._batch_norm(x, name=f'bn{number}'))

  def _dropout(self, x: tf.Tensor, rate: float) -> tf.Tensor:
    """In training each element is 0 with probability `rate`, and else divided by 1 - rate.

    So its expectation is `x`, which evaluation passes on. Srivastava et al. 2014, 'Dropout: A
    Simple Way to Prevent Neural Networks from Overfitting', section 10.

    Raises:
      ValueError: `rate` is not in 0 <= rate < 1.
    """
    if not 0 <= rate < 1:
      raise ValueError(f'dropout rate is {rate}, not 0 or more and less than 1')
    if rate == 0:
      return x
    if not self._is_training:
      place = tf.identity(x, 'dropout')
      self.dropouts[place.op.name] = rate
      return place
    # By the step and not by a generator's state, which no checkpoint has: a job that is resumed
    # drops what it would have dropped without the interruption.
    step = tf.compat.v1.train.get_or_create_global_step()
    seed = tf.random.experimental.stateless_fold_in(_next_seed(), tf.cast(step, tf.int32))
    # bfloat16 has 128 random numbers between 0 and 1: a rate of 0.3 would drop 39 of 128, 30.5 %.
    dropped = tf.nn.experimental.stateless_dropout(tf.cast(x, tf.float32), rate, seed)
    return tf.cast(dropped, x.dtype)

  def _concat(self, branches: Sequence[tf.Tensor]) -> tf.Tensor:
    """Activations of one height and width, side by side in the channels."""
    return tf.concat(branches, self._channel_axis)

  def _overlapping_max_pool(self, x: tf.Tensor, pool_size: int, stride: int) -> tf.Tensor:
    """The largest of each window; windows lie, and n pixels become ceil(n / stride), as in `_conv`.

    So the outputs of both stand over the same pixels, and can stand side by side.
    """
    after = self._zeros_after(x, pool_size, stride)
    x = self._pad_for_valid(x, pool_size, after, x.dtype.min)
    return tf.nn.max_pool2d(x, pool_size, stride, 'VALID', data_format=self._op_data_format)


def _next_seed() -> list[int]:
  """Of the graph's and its next operation's: two numbers; where no seed is set, at random."""
  seeds = tf.compat.v1.random.get_seed(None)
  return [random.getrandbits(31) if seed is None else seed for seed in seeds]
