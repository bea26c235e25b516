"""Folding batch norm into convolutions, with values worked out by hand."""

import numpy as np
import pytest
import tensorflow as tf

from cifar10.exporters import fold_batch_norm

OFFSET, MEAN, VARIANCE, EPSILON = 5.0, 1.0, 3.96, 0.04  # The deviation is sqrt(4) = 2.


def frozen(after=lambda x: x, scale=6.0, dtype=tf.float32, uses=1, is_training=False):
  """[n, 2, 2, 1] -> conv by 10, `after`, batch norm: y = 3 (10 x - 1) + 5 = 30 x + 2."""
  with tf.Graph().as_default() as graph:
    x = tf.compat.v1.placeholder(dtype, [None, 2, 2, 1], 'x')
    kernel = tf.cast(tf.constant(10.0, tf.float32, [1, 1, 1, 1]), dtype)
    convolved = tf.nn.conv2d(x, kernel, 1, 'SAME')
    y, _, _ = tf.compat.v1.nn.fused_batch_norm(
      after(convolved),
      tf.fill([1], scale),
      [OFFSET],
      mean=None if is_training else tf.constant([MEAN]),
      variance=None if is_training else tf.constant([VARIANCE]),
      epsilon=EPSILON,
      is_training=is_training,
    )
    for _ in range(1, uses):
      y = y + convolved
    tf.identity(y, 'y')
  return fold_batch_norm.folded(graph.as_graph_def())


def run(graph, x):
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tf.graph_util.import_graph_def(graph, name='')
    return session.run('y:0', {'x:0': np.reshape(x, [-1, 2, 2, 1])}).astype(np.float32)


def operations(graph):
  return {node.op for node in graph.node}


def constants(graph):
  nodes = [node for node in graph.node if node.name.endswith(('/folded', '/bias'))]
  return [float(tf.make_ndarray(node.attr['value'].tensor).squeeze()) for node in nodes]


@pytest.mark.parametrize(
  'dtype', [tf.float32, pytest.param(tf.bfloat16, marks=pytest.mark.bfloat16)]
)
def test_the_kernel_takes_the_factor_and_a_bias_the_rest(dtype):
  graph = frozen(dtype=dtype)
  assert constants(graph) == pytest.approx([30, 2])
  assert 'FusedBatchNormV3' not in operations(graph)
  np.testing.assert_allclose(run(graph, [0, 1, 2, -1]).ravel(), [2, 32, 62, -28], rtol=1e-6)


def test_a_maximum_lets_a_positive_factor_through():
  """max(30 x) + 2."""
  graph = frozen(lambda x: tf.nn.max_pool2d(x, 2, 2, 'SAME'))
  assert 'FusedBatchNormV3' not in operations(graph)
  np.testing.assert_allclose(run(graph, [0, 1, 2, -1]).ravel(), [62], rtol=1e-6)


def test_and_no_negative_one():
  """-3 (max(10 x) - 1) + 5: of the largest x, 2, -52; folded it would be that of the least."""
  graph = frozen(lambda x: tf.nn.max_pool2d(x, 2, 2, 'SAME'), scale=-6.0)
  assert 'FusedBatchNormV3' in operations(graph)
  np.testing.assert_allclose(run(graph, [0, 1, 2, -1]).ravel(), [-52], rtol=1e-6)


def test_a_convolution_that_others_use_stays():
  """30 x + 2 + 10 x."""
  graph = frozen(uses=2)
  assert 'FusedBatchNormV3' in operations(graph)
  np.testing.assert_allclose(run(graph, [0, 1, 2, -1]).ravel(), [2, 42, 82, -38], rtol=1e-6)


def test_one_that_takes_each_batch_s_own_mean_stays():
  """10 and -10 have the mean 0 and the variance 100: 6 / sqrt(100.04) x 10 + 5."""
  graph = frozen(is_training=True)
  assert 'FusedBatchNormV3' in operations(graph)
  factor = 60 / 100.04**0.5
  expected = [5 + factor, 5 - factor] * 2
  np.testing.assert_allclose(run(graph, [1, -1, 1, -1]).ravel(), expected, rtol=1e-5)


def test_what_is_no_convolution_stays():
  graph = frozen(tf.nn.relu)
  assert 'FusedBatchNormV3' in operations(graph)
  np.testing.assert_allclose(run(graph, [0, 1, 2, -1]).ravel(), [2, 32, 62, 2], rtol=1e-6)
