"""Layers that ResNets have no use for, by numbers worked out by hand."""

import numpy as np
import pytest
import tensorflow as tf
from graphs import run
from test_model_base import BFLOAT16, DECAY, EPSILON, image

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


# Dropout.


@pytest.mark.parametrize('dtype', [tf.float32, BFLOAT16])
def test_dropout_drops_the_rate_and_multiplies_the_rest(dtype):
  tf.compat.v1.set_random_seed(1)
  x = tf.fill([200_000], tf.constant(3, dtype))
  y = make_layers(is_training=True, dtype=dtype)._dropout(x, 0.3)
  assert y.dtype == dtype
  values = run(tf.cast(y, tf.float32))
  # 60,000 expected, standard deviation sqrt(200,000 x 0.3 x 0.7) = 205. 39 of 128: 60,938.
  assert abs((values == 0).sum() - 60_000) < 4 * 205
  # 3 / 0.7 = 4.2857, rounded to 8 bits where it is bfloat16.
  np.testing.assert_allclose(
    values[values != 0], 3 / 0.7, rtol=1e-6 if dtype == tf.float32 else 2**-8
  )


def test_dropout_differs_by_step_and_layer_and_is_the_same_again():
  tf.compat.v1.set_random_seed(1)
  step = tf.compat.v1.train.get_or_create_global_step()
  layers = make_layers(is_training=True)
  first, second = (layers._dropout(tf.ones([1000]), 0.5) for _ in range(2))
  with tf.compat.v1.Session() as session:
    session.run(step.initializer)
    one, other, again = session.run(first), session.run(second), session.run(first)
    session.run(step.assign_add(1))
    later = session.run(first)
  np.testing.assert_array_equal(one, again)
  assert 400 < (one == other).sum() < 600  # Half of them, if they know nothing of each other.
  assert 400 < (one == later).sum() < 600


def test_dropout_is_the_same_whatever_else_is_random():
  """A resumed warm start has initializers that the first run took from a file."""
  dropped = []
  for before in (0, 3):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
      tf.compat.v1.set_random_seed(1)
      step = tf.compat.v1.train.get_or_create_global_step()
      for _ in range(before):
        tf.random.normal([])
      after = make_layers(is_training=True)._dropout(tf.ones([100], name='x'), 0.5)
      session.run(step.initializer)
      dropped.append(session.run(after).tolist())
  assert dropped[0] == dropped[1]


def test_dropout_of_nothing_is_its_input():
  x = tf.zeros([2, 3])
  assert make_layers(is_training=True)._dropout(x, 0) is x
  assert make_layers()._dropout(x, 0.5) is x  # In evaluation.
