"""Networks for inference alone say what those say that they were made from; folding by hand."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from random_checkpoint import IMAGES, save

from cifar10.data.manifest import CIFAR10
from cifar10.exporters import freeze_graph
from cifar10.options.hparams import from_values

FASTNET = {'network': 'fastnet', 'widths': (24, 24, 32)}
# And how many batch norms are left: those that no convolution comes before.
NETWORKS = {
  'resnet': ({'num_layers': 8}, 0),
  'averages': ({'num_layers': 8}, 0),
  # Of a block's two only the second follows a convolution, and in the first block of a ResNet the
  # first, too (`init`; a WRN's shortcut uses that as it is). And the last.
  'resnet v2': ({'num_layers': 8, 'resnet_version': 2}, 3),
  'wrn': ({'network': 'wrn', 'wrn_depth': 10, 'wrn_widen_factor': 1}, 4),
  'vgg': ({'network': 'vgg', 'vgg_layers': 11}, 0),
  'fastnet': (FASTNET, 0),
  'views': ({**FASTNET, 'tta': 'mirror+shift'}, 0),
  'views of some': ({**FASTNET, 'tta': 'mirror+shift', 'tta_below': 0.62}, 0),
}


def run(graph, images=IMAGES):
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tf.graph_util.import_graph_def(graph, name='')
    return session.run(['probabilities:0', 'features:0', 'classes:0'], {'images:0': images})


@pytest.mark.parametrize('name', NETWORKS)
def test_it_answers_alike_without_variables_and_batch_norms(name):
  values, batch_norms = NETWORKS[name]
  hparams, use_ema = from_values(values), name == 'averages'
  path, (expected, expected_features, _) = save(hparams, with_averages=use_ema)
  graph = freeze_graph.freeze(hparams, CIFAR10, path, use_ema=use_ema).graph
  probabilities, features, classes = run(graph)
  np.testing.assert_allclose(probabilities, expected, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(features, expected_features, rtol=1e-4, atol=1e-4)
  np.testing.assert_array_equal(classes, expected.argmax(1))
  found = [node.op for node in graph.node]
  assert found.count('FusedBatchNormV3') == batch_norms
  assert not {'VarHandleOp', 'VariableV2', 'ReadVariableOp', 'Assert'} & set(found)


def test_a_network_that_classifies_twice_has_its_kernels_once():
  values, _ = NETWORKS['views of some']
  hparams = from_values(values)
  graph = freeze_graph.freeze(hparams, CIFAR10, save(hparams)[0]).graph
  assert len([node for node in graph.node if node.name.endswith('/folded')]) == 6
  # Some of the images are doubtful; else this would not be about some.
  _, (probabilities, *_) = save(from_values({**values, 'tta_below': 0.0}))
  assert 0 < np.sum(probabilities.max(1) < values['tta_below']) < len(IMAGES)


@pytest.mark.bfloat16
def test_bfloat16():
  """Kernels are rounded to 8 bits: with their factor, or before it."""
  hparams = from_values({'num_layers': 8, 'dtype': 'bfloat16'})
  path, (expected, *_) = save(hparams)
  graph = freeze_graph.freeze(hparams, CIFAR10, path).graph
  np.testing.assert_allclose(run(graph)[0], expected, atol=0.05)
  assert 'FusedBatchNormV3' not in {node.op for node in graph.node}


def test_the_digest_is_of_the_variables():
  hparams = from_values({'num_layers': 8})
  path, _ = save(hparams)
  found = freeze_graph.freeze(hparams, CIFAR10, path)
  other = dataclasses.replace(hparams, tta='mirror')
  assert found.digest == freeze_graph.freeze(other, CIFAR10, path).digest
  name = 'resnet/fully_connected/bias'
  changed = {**found.values, name: np.nextafter(found.values[name], np.float32(9))}
  assert found._replace(values=changed).digest != found.digest


# Folding.

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
  frozen = graph.as_graph_def()
  freeze_graph.fold_batch_norms(frozen)
  return frozen


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
