"""An exported network as a .keras file, in the Keras that is here."""

import json
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from outcome import refused, succeeded
from random_checkpoint import IMAGES, save

from cifar10.core.errors import InputError
from cifar10.data.manifest import CIFAR10
from cifar10.exporters import freeze_graph, keras_file
from cifar10.options.hparams import from_values

FASTNET = {'network': 'fastnet', 'widths': (24, 24, 32), 'convs_per_group': 3}
NETWORKS = {
  'resnet': {'num_layers': 8, 'batch_norm_decay': 0.9},
  'resnet v2': {'num_layers': 14, 'resnet_version': 2},
  'bottleneck': {'num_layers': 11, 'resnet_version': 2, 'bottleneck': True},
  'wrn': {'network': 'wrn', 'wrn_depth': 16, 'wrn_widen_factor': 1},
  'vgg': {'network': 'vgg', 'vgg_layers': 11},
  'fastnet': FASTNET,
  'fastnet of two': {'network': 'fastnet', 'widths': (24, 24, 24)},
}


def write(hparams, folder):
  """-> the file's path, the network that it was made from, and what that answers."""
  checkpoint, answers = save(hparams)
  made = freeze_graph.freeze(hparams, CIFAR10, checkpoint)
  path = f'{folder}/network.keras'
  keras_file.write(path, made, {'classes': ['a', 'b']})
  return path, made, answers


@pytest.mark.parametrize('name', NETWORKS)
def test_keras_answers_alike(name, tmp_path):
  path, made, (probabilities, features, logits) = write(from_values(NETWORKS[name]), tmp_path)
  model = tf.keras.models.load_model(path)  # In safe mode, where no Lambda is loaded.
  inner = model.get_layer('features').output, model.get_layer('probabilities').input
  answers = tf.keras.Model(model.input, [model.output, *inner])(IMAGES)
  np.testing.assert_allclose(answers[0], probabilities, rtol=0, atol=1e-5)
  np.testing.assert_allclose(answers[1], features, rtol=1e-5, atol=1e-4)
  np.testing.assert_allclose(answers[2], logits, rtol=1e-5, atol=1e-5)
  assert len(model.weights) == len(made.values)
  scopes = {variable.rpartition('/')[0].replace('/', '_') for variable in made.values}
  assert scopes <= {layer.name for layer in model.layers}
  norms = [each for each in model.layers if isinstance(each, keras.layers.BatchNormalization)]
  hparams = made.hparams
  expected = hparams.batch_norm_decay, pytest.approx(hparams.batch_norm_epsilon)
  assert norms
  assert all((norm.momentum, norm.epsilon) == expected for norm in norms)


def test_its_config_says_nothing_that_one_line_of_keras_alone_knows(tmp_path):
  """Keras 3.15 read such files of Keras 2.15; of other modules or a list of axes it reads none."""
  path, *_ = write(from_values(NETWORKS['resnet']), tmp_path)
  with zipfile.ZipFile(path) as file:
    config = json.loads(file.read('config.json'))
  layers = config['config']['layers']
  assert (config['module'], {layer['module'] for layer in layers}) == ('keras', {'keras.layers'})
  axes = [each['config']['axis'] for each in layers if each['class_name'] == 'BatchNormalization']
  assert axes == [-1] * 7


def test_what_is_fixed_in_a_fast_network_is_not_trained(tmp_path):
  path, *_ = write(from_values(FASTNET), tmp_path)
  model = tf.keras.models.load_model(path)
  assert not model.get_layer('fastnet_whitening').trainable_variables
  # Of 9 convolutions the kernels, of 9 batch norms the offsets, and the head's kernel.
  assert len(model.trainable_variables) == 9 + 9 + 1


@pytest.mark.bfloat16
def test_the_program_writes_it(run_here, data_dir, tmp_path):
  job = ['--job-dir', tmp_path, '--num-layers', 8, '--train-batch-size', 16, '--train-steps', 1]
  succeeded(run_here('--data-dir', data_dir, *job, '--mode', 'train', '--dtype', 'bfloat16'))
  export = ['--job-dir', tmp_path, '--mode', 'export', '--format', 'keras']
  said = refused(run_here(*export, '--tta', 'mirror'))
  assert 'error: --format keras has no --tta mirror; add --tta none' in said
  assert not (tmp_path / 'export').exists()
  exported = json.loads(run_here(*export).stdout)
  assert exported['dtype'] == 'float32'
  with zipfile.ZipFile(exported.pop('keras')) as file:
    made_from = json.loads(file.read('metadata.json'))['made_from']
  assert made_from == exported


def test_a_network_of_the_user_s_own_is_refused():
  own = freeze_graph.Frozen(from_values({'network': 'tiny_network:Tiny'}), CIFAR10, None, {})
  with pytest.raises(InputError, match='no layers for --network tiny_network:Tiny; use --format'):
    keras_file.write('unused', own, {})
