"""Networks for inference alone say what the networks that they were made from say."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from random_checkpoint import IMAGES, save

from cifar10.data.info import CIFAR10
from cifar10.exporters import freeze_graph
from cifar10.options.hparams import from_values

FASTNET = {'network': 'fastnet', 'widths': (24, 24, 32)}
# And how many batch norms are left: those that no convolution comes before.
NETWORKS = {
  'resnet': ({'num_layers': 8}, 0),
  # Of a block's two only the second follows a convolution; the first block's follows `init`, but
  # so does the shortcut. And the last.
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


@pytest.mark.parametrize(
  'name',
  [
    pytest.param(name, marks=pytest.mark.slow if name in ('views', 'wrn') else ())
    for name in NETWORKS
  ],
)
def test_it_answers_alike_without_variables_and_batch_norms(name):
  values, batch_norms = NETWORKS[name]
  hparams = from_values(values)
  path, (expected, expected_features) = save(hparams)
  graph = freeze_graph.freeze(hparams, CIFAR10, path).graph
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
  _, (probabilities, _) = save(from_values({**values, 'tta_below': 0.0}))
  assert 0 < np.sum(probabilities.max(1) < values['tta_below']) < len(IMAGES)


@pytest.mark.bfloat16
def test_bfloat16():
  """Kernels are rounded to 8 bits: with their factor, or before it."""
  hparams = from_values({'num_layers': 8, 'dtype': 'bfloat16'})
  path, (expected, _) = save(hparams)
  graph = freeze_graph.freeze(hparams, CIFAR10, path).graph
  np.testing.assert_allclose(run(graph)[0], expected, atol=0.05)
  assert 'FusedBatchNormV3' not in {node.op for node in graph.node}


def test_averages_in_place_of_the_weights():
  hparams = from_values({'num_layers': 8})
  path, (expected, _) = save(hparams, with_averages=True)
  graph = freeze_graph.freeze(hparams, CIFAR10, path, use_ema=True).graph
  np.testing.assert_allclose(run(graph)[0], expected, rtol=1e-4, atol=1e-6)


def test_the_digest_is_of_the_variables():
  hparams = from_values({'num_layers': 8})
  path, _ = save(hparams)
  found = freeze_graph.freeze(hparams, CIFAR10, path)
  other = dataclasses.replace(hparams, tta='mirror')
  assert found.digest == freeze_graph.freeze(other, CIFAR10, path).digest
  name = 'resnet/fully_connected/bias'
  changed = {**found.values, name: np.nextafter(found.values[name], np.float32(9))}
  assert found._replace(values=changed).digest != found.digest
