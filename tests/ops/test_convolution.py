"""The convolution for small images: its gradients by hand, and against the library's."""

import numpy as np
import pytest
import tensorflow as tf

from cifar10.ops import own_gradients


@pytest.mark.parametrize('after', [(1, 1), (0, 1), (0, 0)])
@pytest.mark.parametrize('batch', [3, 256, 600])
def test_small_convolution_has_the_gradients_of_conv2d(batch, after):
  """Against the library's in float32, where both differ by rounding only."""
  height, width = 4 + after[0], 6 + after[1]
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    x = tf.random.normal([batch, 5, 7, 4], seed=1)
    kernel = tf.random.normal([3, 3, 4, 6], seed=2)
    dy = tf.random.normal([batch, height, width, 6], seed=3)
    whole = tf.nn.conv2d(x, kernel, 1, 'SAME')
    forms = (own_gradients.small_conv2d(x, kernel, after), whole[:, :height, :width])
    small, library = session.run([[y, *tf.gradients(y, [x, kernel], dy)] for y in forms])
  for actual, expected in zip(small, library, strict=True):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-3)


def test_filter_gradient_by_hand():
  """x has a single 2 at (1, 1), dy a single 3 at (0, 1): 6 at row 1 - 0 + 1 = 2, column 1."""
  x, dy = np.zeros([1, 3, 3, 1], np.float32), np.zeros([1, 3, 3, 1], np.float32)
  x[0, 1, 1], dy[0, 0, 1] = 2, 3
  gradient = own_gradients.filter_gradient(tf.constant(x), tf.constant(dy)).numpy()
  expected = np.zeros([3, 3, 1, 1])
  expected[2, 1] = 6
  np.testing.assert_array_equal(gradient, expected)
