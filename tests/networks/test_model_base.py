"""Layers by numbers that are worked out by hand."""

import math

import numpy as np
import pytest
import tensorflow as tf
from graphs import after_steps, run

import model_base

pytestmark = pytest.mark.usefixtures('graph')

EPSILON = 1e-3  # Large enough that a forgotten or doubled epsilon shows in float32.
DECAY = 0.9
BFLOAT16 = pytest.param(tf.bfloat16, marks=pytest.mark.bfloat16)


def make_net(is_training=False, data_format='channels_last', dtype=tf.float32):
  return model_base.ResNet(is_training, data_format, DECAY, EPSILON, dtype)


def run_layer(layer, x, params=None, **net_options):
  """The layer's value on x, every kernel 1 and everything else initial unless `params` says."""
  with tf.Graph().as_default():
    y = layer(make_net(**net_options), tf.constant(x))
    variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
    values = {name: np.ones(v.shape) for name, v in variables.items() if name.endswith('kernel')}
    values |= params or {}
    [value] = after_steps([variables[name].assign(values[name]) for name in values], y, 1)
    return value


def image(size):
  """[1, size, size, 1] holding 0, 1, 2, ... row by row."""
  return np.arange(size * size, dtype=np.float32).reshape(1, size, size, 1)


def to_nchw(x):
  return x.transpose(0, 3, 1, 2)


# Convolution.


@pytest.mark.parametrize(
  ('x', 'size', 'stride', 'expected'),
  [
    # Ones under a 3x3 kernel of ones: 4 at a corner, 6 at an edge, 9 in the middle.
    (np.ones([1, 3, 3, 1], np.float32), 3, 1, [[4, 6, 4], [6, 9, 6], [4, 6, 4]]),
    #  0  1  2  3    One zero before: rows and columns -1..1: 0+1+4+5 = 10;
    #  4  5  6  7    columns 1..3: 1+2+3+5+6+7 = 24; rows 1..3: 4+5+8+9+12+13 = 51;
    #  8  9 10 11    both: 5+6+7+9+10+11+13+14+15 = 90.
    # 12 13 14 15    SAME would begin with rows and columns 0..2, which sum to 45.
    (image(4), 3, 2, [[10, 24], [51, 90]]),
    # One zero before and one after: rows and columns -1..2 hold 3x3 pixels that sum to
    # 0+1+2+4+5+6+8+9+10 = 45; one column on adds 9, one row down 9 x 4 = 36.
    (image(4), 4, 2, [[45, 54], [81, 90]]),
    (image(4), 1, 2, [[0, 2], [8, 10]]),  # No padding; every second pixel.
    # 0 1 2    each pixel with its neighbours left and right: 0+1, 0+1+2, 1+2, ...
    # 3 4 5
    # 6 7 8    or above and below: 0+3, 1+4, 2+5; 0+3+6, ...
    (image(3), (1, 3), 1, [[1, 3, 3], [7, 12, 9], [13, 21, 15]]),
    (image(3), (3, 1), 1, [[3, 5, 7], [9, 12, 15], [9, 11, 13]]),
    # Rows 0 and 2 of 4x4, columns -1..1 and 1..3: 0+1, 1+2+3; 8+9, 9+10+11.
    (image(4), (1, 3), 2, [[1, 6], [17, 30]]),
  ],
)
def test_a_convolution_is_centred_on_its_pixels(x, size, stride, expected):
  y = run_layer(lambda net, x: net._conv(x, size, 1, stride), x)
  np.testing.assert_array_equal(y[0, :, :, 0], expected)


def test_conv_in_channels_first_pads_height_and_width_where_kernels_read(graph):
  x = tf.zeros([2, 5, 8, 7])
  assert make_net(data_format='channels_first')._conv(x, 3, 7, 2).shape == [2, 7, 4, 4]
  (kernel,) = tf.compat.v1.global_variables()
  assert kernel.shape == [3, 3, 5, 7]
  (pad,) = [op for op in graph.get_operations() if op.type == 'Pad']
  # The last kernel reads rows 5, 6, 7 of 0..7, and columns 5, 6, 7 of 0..6.
  assert tf.get_static_value(pad.inputs[1]).tolist() == [[0, 0], [0, 0], [1, 0], [1, 1]]


@pytest.mark.bfloat16
def test_conv_casts_its_float32_kernel_to_the_compute_dtype():
  # 1 + 2^-9 becomes 1 in bfloat16, which keeps 7 bits after the point.
  params = {'conv/kernel': np.full([1, 1, 1, 1], 1 + 2**-9, np.float32)}
  x = np.ones([1, 1, 1, 1], np.float32)

  def layer(net, x):
    y = net._conv(tf.cast(x, net._dtype), 1, 1, 1)
    assert y.dtype == net._dtype
    return tf.cast(y, tf.float32)

  assert run_layer(layer, x, params).item() == 1 + 2**-9
  assert run_layer(layer, x, params, dtype=tf.bfloat16).item() == 1


@pytest.mark.parametrize('dtype', [tf.float32, BFLOAT16])
@pytest.mark.parametrize(
  ('image', 'kernel_and_pool', 'rows_and_columns'),
  [
    ((7, 15), (3, 2), (6, 14)),
    ((8, 6), (3, 2), (8, 6)),
    ((8, 7), (3, 3), (7, 6)),  # The pool does not read two rows; one of zeros was added.
    ((15, 15), ((5, 1), 2), (14, 15)),  # A kernel of one column reads nothing beside it.
  ],
)
@pytest.mark.parametrize('is_training', [False, True])
def test_a_convolution_before_a_pool_leaves_out_what_that_does_not_read(
  image, kernel_and_pool, rows_and_columns, dtype, is_training
):
  """The pool's results, and all gradients, are those of the whole convolution."""
  tf.compat.v1.set_random_seed(0)  # Of near values the pool could take another in each form.
  x = tf.cast(tf.random.normal([2, *image, 3], seed=1), dtype)
  network = make_net(is_training, dtype=dtype)
  kernel_size, pool_size = kernel_and_pool
  results = []
  for size in (pool_size, 1):
    with tf.compat.v1.variable_scope('network', reuse=size == 1):
      y = network._conv(x, kernel_size, 4, 1, pool_size=size)
      assert tuple(y.shape[1:3]) == (image if size == 1 else rows_and_columns)
      pooled = tf.cast(network._max_pool(y, pool_size), tf.float32)
      results.append([pooled, *tf.gradients(pooled**2, [x, *tf.compat.v1.trainable_variables()])])
  results = run([[tf.cast(each, tf.float32) for each in form] for form in results])
  for trimmed, whole in zip(*results):
    scale = np.abs(whole).max()
    np.testing.assert_allclose(trimmed, whole, atol=scale * (1e-5 if dtype == tf.float32 else 0.03))


def test_only_training_on_small_images_in_bfloat16_takes_the_other_form():
  def gradient_ops(size, dtype, is_training):
    with tf.Graph().as_default() as graph:
      x = tf.zeros([2, size, size, 4], dtype)
      y = make_net(is_training, dtype=dtype)._conv(x, 3, 8, 1)
      tf.gradients(y, [x, *tf.compat.v1.trainable_variables()])
      kinds = ('Conv2DBackpropFilter', 'Conv2DBackpropInput')
      return sum(op.type in kinds for op in graph.get_operations())

  assert gradient_ops(7, tf.bfloat16, is_training=True) == 0
  others = [(8, tf.bfloat16, True), (7, tf.float32, True), (7, tf.bfloat16, False)]
  assert [gradient_ops(*other) for other in others] == [2, 2, 2]


@pytest.mark.bfloat16
def test_input_is_cast_and_transposed():
  x = tf.constant(np.arange(24).reshape(1, 2, 4, 3), tf.float32)
  y = make_net(data_format='channels_first', dtype=tf.bfloat16)._input(x)
  assert (y.shape, y.dtype) == ([1, 3, 2, 4], tf.bfloat16)
  # Red of the first row: every third of 0..11.
  np.testing.assert_array_equal(run(tf.cast(y, tf.float32))[0, 0, 0], [0, 3, 6, 9])
  assert make_net()._input(x).shape == [1, 2, 4, 3]


# Initialisation.


def test_conv_kernels_start_normal_with_variance_2_over_fan_in():
  tf.compat.v1.set_random_seed(1)
  make_net()._conv(tf.zeros([1, 4, 4, 32]), 3, 128, 1)
  (kernel,) = run(tf.compat.v1.global_variables())
  # Fan-in 3 x 3 x 32 = 288 (fan-out is 1152), 36,864 draws. Bounds are 4 standard errors.
  stddev = math.sqrt(2 / 288)
  assert abs(kernel.mean()) < 4 * stddev / math.sqrt(36864)
  assert kernel.std() == pytest.approx(stddev, rel=4 / math.sqrt(2 * 36864))
  # 0.27 % of a normal distribution lies beyond 3 stddev: 99.5 draws, standard error 10.
  assert 60 < (np.abs(kernel) > 3 * stddev).sum() < 140


def test_fully_connected_starts_with_variance_1_over_fan_in_and_no_bias():
  tf.compat.v1.set_random_seed(1)
  make_net()._fully_connected(tf.zeros([1, 64]), 500)
  kernel, bias = run(tf.compat.v1.global_variables())
  # 64 x 500 = 32,000 draws; 4 standard errors.
  assert kernel.std() == pytest.approx(1 / 8, rel=4 / math.sqrt(2 * 32000))
  np.testing.assert_array_equal(bias, np.zeros(500))


# Batch norm.


def test_batch_norm_in_training_normalises_by_the_batch_and_moves_the_averages():
  with tf.compat.v1.Session() as session:
    y = make_net(is_training=True)._batch_norm(tf.constant([1.0, 3.0], shape=[2, 1, 1, 1]))
    updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    moving = [v for v in tf.compat.v1.global_variables() if 'moving' in v.op.name]
    session.run(tf.compat.v1.global_variables_initializer())
    # Mean 2, population variance 1: 1 and 3 become -1 and 1 over sqrt(1 + epsilon).
    expected = 1 / math.sqrt(1 + EPSILON)
    np.testing.assert_allclose(session.run(y).ravel(), [-expected, expected], rtol=1e-6)
    assert session.run(moving) == [0, 1]  # The forward pass alone moves nothing.
    # Unbiased variance ((1-2)^2 + (3-2)^2) / (2-1) = 2.
    session.run(updates)  # 0 - 0.1 (0 - 2) = 0.2 and 1 - 0.1 (1 - 2) = 1.1
    np.testing.assert_allclose(np.ravel(session.run(moving)), [0.2, 1.1], rtol=1e-6)
    session.run(updates)  # 0.2 - 0.1 (0.2 - 2) = 0.38 and 1.1 - 0.1 (1.1 - 2) = 1.19
    np.testing.assert_allclose(np.ravel(session.run(moving)), [0.38, 1.19], rtol=1e-6)


def test_batch_norm_in_evaluation_normalises_by_the_moving_averages_and_moves_nothing():
  values = {'scale': [3], 'offset': [1], 'moving_mean': [2], 'moving_variance': [4 - EPSILON]}
  params = {f'batch_norm/{name}': value for name, value in values.items()}

  def layer(net, x):
    y = net._batch_norm(x)
    assert not tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    return y

  # (6 - 2) / 2 x 3 + 1 = 7 and (0 - 2) / 2 x 3 + 1 = -2, the batch's own statistics aside.
  y = run_layer(layer, np.array([6, 0], np.float32).reshape(2, 1, 1, 1), params)
  np.testing.assert_allclose(y.ravel(), [7, -2], rtol=1e-6)


@pytest.mark.bfloat16
def test_batch_norm_keeps_its_statistics_in_float32_under_bfloat16():
  # Mean 1 + 2^-8, which bfloat16 cannot hold; both values it can.
  x = tf.constant([1, 1 + 2**-7], tf.bfloat16, shape=[2, 1, 1, 1])
  assert make_net(is_training=True, dtype=tf.bfloat16)._batch_norm(x).dtype == tf.bfloat16
  assert all(v.dtype == tf.float32 for v in tf.compat.v1.global_variables())
  updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
  mean = [v for v in tf.compat.v1.global_variables() if v.op.name.endswith('moving_mean')]
  [after] = after_steps(updates, mean, 1)
  np.testing.assert_allclose(np.ravel(after), [0.1 * (1 + 2**-8)], rtol=1e-6)


# Blocks, pooling, shortcut, the last layers.


@pytest.mark.parametrize('name', ['_relu', '_add'])
def test_xla_ends_no_block_in_place_of_what_a_subclass_defines(name):
  own = type('Own', (model_base.ResNet,), {name: lambda net, x, shortcut=1: x - shortcut})
  net = own(True, 'channels_last', DECAY, EPSILON, 'bfloat16', compiles=True)
  y = net._residual_v1(tf.zeros([1, 1024, 1024, 1], tf.bfloat16), 3, 1, 1, 1)
  assert 'Sub' in {y.op.type, y.op.inputs[0].op.type}


@pytest.mark.parametrize(
  ('size', 'expected'),
  [
    (4, [[2.5, 4.5], [10.5, 12.5]]),  # (0+1+4+5) / 4 = 2.5; two columns add 2, two rows 8.
    (3, [[2, 3.5], [6.5, 8]]),  # (0+1+3+4) / 4 = 2, (2+5) / 2 = 3.5, (6+7) / 2 = 6.5 and 8 alone.
  ],
)
def test_avg_pool_averages_squares_and_leaves_padding_out_of_the_mean(size, expected):
  y = run_layer(lambda net, x: net._avg_pool(x, 2, 2), image(size))
  np.testing.assert_array_equal(y[0, :, :, 0], expected)


@pytest.mark.parametrize('data_format', ['channels_last', 'channels_first'])
def test_global_avg_pool_averages_each_channel_in_float32(data_format):
  # The mean of 1 and 1 + 2^-7 is 1 + 2^-8: exact in float32, 1 in bfloat16. 4 and 6: 5.
  x = np.array([[[[1, 4], [1 + 2**-7, 6]]]], np.float32)  # [1, 1, 2, 2] NHWC
  x = to_nchw(x) if data_format == 'channels_first' else x
  settings = {'data_format': data_format, 'dtype': tf.bfloat16}
  y = run_layer(lambda net, x: net._global_avg_pool(tf.cast(x, net._dtype)), x, **settings)
  assert y.dtype == np.float32
  np.testing.assert_array_equal(y, [[1 + 2**-8, 5]])


@pytest.mark.bfloat16
def test_fully_connected_multiplies_adds_and_stays_in_float32():
  kernel, bias, x = map(np.float32, ([[1, 10, 0.001], [2, 20, 0.002]], [0, 0, 7], [[3, 4]]))
  given = x, {'fully_connected/kernel': kernel, 'fully_connected/bias': bias}
  y = run_layer(
    lambda net, x: net._fully_connected(tf.cast(x, net._dtype), 3), *given, dtype=tf.bfloat16
  )
  assert y.dtype == np.float32
  # 3x1 + 4x2 = 11, 3x10 + 4x20 = 110, 0.003 + 0.008 + 7 = 7.011
  np.testing.assert_allclose(y, [[11, 110, 7.011]], rtol=1e-6)
