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


def pooled(x):
  return tf.nn.max_pool2d(x, 2, 2, 'SAME')


@pytest.mark.parametrize(
  ('given', 'is_folded', 'expected'),
  [
    ({}, True, [2, 32, 2, -28]),
    pytest.param({'dtype': tf.bfloat16}, True, [2, 32, 2, -28], marks=pytest.mark.bfloat16),
    ({'after': pooled}, True, [32]),  # max(30 x) + 2.
    # -3 (max(10 x) - 1) + 5: of the largest x; folded it would be that of the least.
    ({'after': pooled, 'scale': -6.0}, False, [-22]),
    ({'uses': 2}, False, [2, 42, 2, -38]),  # 30 x + 2 + 10 x.
    ({'after': tf.nn.relu}, False, [2, 32, 2, 2]),
    # By the batch's own mean 0 and variance 50.
    ({'is_training': True}, False, [5, 5 + 60 / 50.04**0.5, 5, 5 - 60 / 50.04**0.5]),
  ],
)
def test_a_batch_norm_after_a_convolution_is_folded(given, is_folded, expected):
  """The kernel takes the factor, 30, and a bias the rest, 2."""
  graph = frozen(**given)
  assert ('FusedBatchNormV3' not in {node.op for node in graph.node}) == is_folded
  nodes = [node for node in graph.node if node.name.endswith(('/folded', '/bias'))]
  constants = [float(tf.make_ndarray(node.attr['value'].tensor).squeeze()) for node in nodes]
  assert constants == ([30, 2] if is_folded else [])
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tf.graph_util.import_graph_def(graph, name='')
    y = session.run('y:0', {'x:0': np.reshape([0, 1, 0, -1], [-1, 2, 2, 1])})
  np.testing.assert_allclose(y.astype(np.float32).ravel(), expected, rtol=1e-5)
