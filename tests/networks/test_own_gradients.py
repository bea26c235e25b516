"""Operations with gradients of their own: by hand, and against the plain operations."""

import numpy as np
import pytest
import tensorflow as tf
from graphs import ancestors, run

from cifar10.ops import own_gradients

pytestmark = pytest.mark.usefixtures('graph')


def test_compiled_silu_by_hand():
  """2 sigmoid(2) = 2 / (1 + e^-2) = 1.76159; derivative s + y (1 - s) = 0.88080 + 0.20998."""
  x = tf.constant([2.0, 0.0, 1e-8, -200.0, 200.0])
  y = own_gradients.compiled_silu(x)
  value, gradient = run([y, tf.gradients(y, x)[0]])
  np.testing.assert_allclose(value, [1.76159, 0, 5e-9, 0, 200], atol=1e-5)
  np.testing.assert_allclose(gradient, [1.09078, 0.5, 0.5, 0, 1], atol=1e-5)


@pytest.mark.bfloat16
def test_compiled_silu_of_bfloat16_rounds_once():
  """Its value is the exact one, rounded to 8 bits; its gradient is off by less than 4 of 256."""
  x = tf.cast(tf.linspace(-6.0, 6.0, 97), tf.bfloat16)
  y = own_gradients.compiled_silu(x)
  exact = tf.cast(x, tf.float64)
  exact_y = exact * tf.sigmoid(exact)
  tensors = [y, exact_y, tf.gradients(y, x)[0], tf.gradients(exact_y, exact)[0]]
  assert y.dtype == tf.bfloat16
  value, expected, gradient, slope = (v.astype(np.float64) for v in run(tensors))
  np.testing.assert_allclose(value, expected, rtol=2**-8)
  np.testing.assert_allclose(gradient, slope, atol=4 / 256)


@pytest.mark.bfloat16
def test_the_end_of_a_block_by_hand():
  """Sums 2, -1, 0 and 3. The last one's gradients 256 and 1 are 257, which bfloat16 rounds to 256.

  The sum of two gradients is made within the loop, and nowhere else; of one or three, before it.
  """
  x, shortcut = (tf.constant(v, tf.bfloat16) for v in ([1, -2, 5, 1], [1, 1, -5, 2]))
  y = own_gradients.compiled_relu_of_sum(x, shortcut)
  dys = [tf.constant(v, tf.bfloat16) for v in ([3, 3, 3, 256], [4, 4, 4, 1], [8, 8, 8, 0])]
  for count, expected in ((1, [3, 0, 0, 256]), (2, [7, 0, 0, 256]), (3, [15, 0, 0, 256])):
    gradients = tf.gradients([tf.identity(y) for _ in dys[:count]], [x, shortcut], dys[:count])
    assert any(op.type == 'AddN' for op in ancestors(gradients[0].op)) == (count == 3)
    value, *both = run([tf.cast(each, tf.float32) for each in (y, *gradients)])
    np.testing.assert_array_equal([value, *both], [[2, 0, 0, 3], expected, expected])


@pytest.mark.parametrize('after', [(1, 1), (0, 1), (0, 0)])
@pytest.mark.parametrize('compiles', [False, True])
@pytest.mark.parametrize('learns', [True, False])
def test_the_gradients_of_a_convolution_of_silu(learns, compiles, after):
  """Those of the same expression, but 0 for a bias that does not learn."""
  rng = np.random.default_rng(0)
  x, bias, kernel = (
    tf.constant(rng.normal(size=shape), tf.float32) for shape in ([2, 5, 7, 3], [3], [3, 3, 3, 4])
  )
  given = x, bias, kernel, tf.constant(learns), 'NHWC'
  gated = own_gradients.conv_of_silu(*given, after=after, compiles=compiles)
  plain = tf.nn.conv2d(tf.nn.silu(x + bias), kernel, 1, 'SAME')
  plain = plain[:, : 4 + after[0], : 6 + after[1]]
  ours, theirs = run([[y, *tf.gradients(y**2, [bias, kernel])] for y in (gated, plain)])
  if not learns:
    theirs[1] = np.zeros(3)
  for actual, expected in zip(ours, theirs, strict=True):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.bfloat16
@pytest.mark.parametrize('compiles', [False, True])
def test_the_gradient_of_a_bias_of_many_pixels_in_bfloat16(compiles):
  """silu has slope 1/2 at 0: 10 images of 31x31 pixels have the gradient 4,805 for each bias."""
  x, bias = tf.zeros([10, 31, 31, 4], tf.bfloat16), tf.zeros([4], tf.bfloat16)
  kernel = np.zeros([3, 3, 4, 4])
  kernel[1, 1] = np.eye(4)
  settings = tf.cast(kernel, tf.bfloat16), tf.constant(True), 'NHWC'
  y = own_gradients.conv_of_silu(x, bias, *settings, compiles=compiles)
  gradient = run(tf.cast(tf.gradients(y, bias)[0], tf.float32))
  np.testing.assert_allclose(gradient, [4805] * 4, rtol=0.01)


def test_a_bias_that_does_not_learn_leaves_its_gradient_uncomputed(graph):
  """In the graph the convolution's input gradient stands inside the condition, and nowhere else."""
  bias, kernel = tf.zeros([3]), tf.zeros([3, 3, 3, 4])
  y = own_gradients.conv_of_silu(tf.zeros([2, 5, 5, 3]), bias, kernel, tf.constant(False), 'NHWC')
  tf.gradients(y, [bias, kernel])
  kinds = [op.type for op in graph.get_operations()]
  assert kinds.count('Conv2DBackpropFilter') == 1
  assert 'Conv2DBackpropInput' not in kinds
  assert {'If', 'StatelessIf'} & set(kinds)


def test_xla_compiles_here():
  """Else the program would train without it and nobody would notice."""
  assert own_gradients.can_compile(tf.compat.v1.ConfigProto())


@pytest.mark.parametrize('after', [(1, 1), (0, 1), (0, 0)])
@pytest.mark.parametrize(('batch', 'is_tensor'), [(3, False), (3, True), (200, False)])
def test_small_convolution_has_the_gradients_of_conv2d(batch, is_tensor, after):
  """Against the library's in float32, where both differ by rounding only."""
  height, width = 4 + after[0], 6 + after[1]
  shapes = [batch, 5, 7, 4], [3, 3, 4, 6], [batch, height, width, 6]
  x, kernel, dy = (tf.random.normal(shape, seed=seed) for seed, shape in enumerate(shapes, 1))
  whole = tf.nn.conv2d(x, kernel, 1, 'SAME')
  zeros = tuple(map(tf.constant, after)) if is_tensor else after
  forms = (own_gradients.small_conv2d(x, kernel, zeros), whole[:, :height, :width])
  small, library = run([[y, *tf.gradients(y, [x, kernel], dy)] for y in forms])
  for actual, expected in zip(small, library, strict=True):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-3)


def test_filter_gradient_by_hand():
  """x has a single 2 at (1, 1), dy a single 3 at (0, 1): 6 at row 1 - 0 + 1 = 2, column 1."""
  x, dy = np.zeros([2, 1, 3, 3, 1], np.float32)
  x[0, 1, 1], dy[0, 0, 1] = 2, 3
  gradient = run(own_gradients.filter_gradient(tf.constant(x), tf.constant(dy)))
  np.testing.assert_array_equal(gradient[..., 0, 0], [[0, 0, 0], [0, 0, 0], [0, 6, 0]])
