"""Layers that ResNets have no use for, by numbers worked out by hand."""

import numpy as np
import pytest
import tensorflow as tf
from graphs import run
from test_model_base import DECAY, EPSILON, image

from model_base import Layers

pytestmark = pytest.mark.usefixtures('graph')


def make_layers(is_training=False, data_format='channels_last', dtype=tf.float32):
  return Layers(is_training, data_format, DECAY, EPSILON, dtype)


def ones(shape, dtype=tf.float32, partition_info=None):
  return tf.ones(shape, dtype)


# Convolutions.


@pytest.mark.parametrize(
  'size, expected',
  [
    # 0 1 2    each pixel with its neighbours left and right: 0+1, 0+1+2, 1+2, ...
    # 3 4 5
    # 6 7 8    or above and below: 0+3, 1+4, 2+5; 0+3+6, ...
    ((1, 3), [[1, 3, 3], [7, 12, 9], [13, 21, 15]]),
    ((3, 1), [[3, 5, 7], [9, 12, 15], [9, 11, 13]]),
  ],
)
def test_an_asymmetric_kernel_is_height_and_width(size, expected):
  y = make_layers()._conv(tf.constant(image(3)), size, 1, 1, initializer=ones)
  (kernel,) = tf.compat.v1.global_variables()
  assert kernel.shape == [*size, 1, 1]
  np.testing.assert_array_equal(run(y)[0, :, :, 0], expected)


def test_an_asymmetric_kernel_of_stride_2_is_centred_on_pixels_0_and_2():
  y = make_layers()._conv(tf.constant(image(4)), (1, 3), 1, 2, initializer=ones)
  # Rows 0 and 2 of 4x4, columns -1..1 and 1..3: 0+1, 1+2+3; 8+9, 9+10+11.
  np.testing.assert_array_equal(run(y)[0, :, :, 0], [[1, 6], [17, 30]])


# Input.


@pytest.mark.bfloat16
def test_input_is_cast_and_transposed():
  x = tf.constant(np.arange(24).reshape(1, 2, 4, 3), tf.float32)
  y = make_layers(data_format='channels_first', dtype=tf.bfloat16)._input(x)
  assert (y.shape, y.dtype) == ([1, 3, 2, 4], tf.bfloat16)
  # Red of the first row: every third of 0..11.
  np.testing.assert_array_equal(run(tf.cast(y, tf.float32))[0, 0, 0], [0, 3, 6, 9])
  assert make_layers()._input(x).shape == [1, 2, 4, 3]
