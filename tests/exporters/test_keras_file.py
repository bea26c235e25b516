"""An exported network as a .keras file, in the Keras that is here."""

import hashlib
import json
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from outcome import refused, succeeded
from random_checkpoint import IMAGES, save

from cifar10.core.errors import InputError
from cifar10.data.info import CIFAR10
from cifar10.exporters import freeze_graph, keras_file, keras_layers
from cifar10.options.hparams import from_values
from cifar10.training import network_builder

IS_KERAS_2 = keras.__version__.startswith('2.')
NETWORKS = {
  'resnet': {'num_layers': 8, 'batch_norm_decay': 0.9},
  'resnet v2': {'num_layers': 8, 'resnet_version': 2},
  'bottleneck': {'num_layers': 11, 'resnet_version': 2, 'bottleneck': True},
  'wrn': {'network': 'wrn', 'wrn_depth': 10, 'wrn_widen_factor': 1, 'wrn_dropout': 0.3},
  'vgg': {'network': 'vgg', 'vgg_layers': 11, 'vgg_dropout': 0.5},
  'fastnet': {'network': 'fastnet', 'widths': (24, 24, 32), 'convs_per_group': 3},
}


def write(hparams, folder, batch=None):
  """-> the file's path, and the network that it was made from."""
  checkpoint, answers = save(hparams)
  made = freeze_graph.freeze(hparams, CIFAR10, checkpoint, batch=batch)
  path = f'{folder}/network.keras'
  keras_file.write(path, made, {'classes': ['a', 'b']})
  return path, checkpoint, made, answers


# They have the layers of the others.
IN_OTHERS = ('resnet v2', 'wrn', 'vgg')


@pytest.mark.parametrize(
  'name',
  [pytest.param(name, marks=pytest.mark.slow if name in IN_OTHERS else ()) for name in NETWORKS],
)
def test_keras_answers_alike(name, tmp_path):
  path, _, made, (probabilities, features) = write(from_values(NETWORKS[name]), tmp_path)
  model = tf.keras.models.load_model(path)  # In safe mode, where no Lambda is loaded.
  trunk = tf.keras.Model(model.input, model.get_layer('features').output)
  np.testing.assert_allclose(model(IMAGES), probabilities, rtol=0, atol=1e-5)
  np.testing.assert_allclose(trunk(IMAGES), features, rtol=1e-4, atol=1e-4)
  scopes = {variable.rpartition('/')[0].replace('/', '_') for variable in made.values}
  assert scopes <= {layer.name for layer in model.layers}


def averages_after_a_step(hparams, checkpoint):
  """The program's own moving averages, by their names, once it has been trained with IMAGES."""
  with tf.Graph().as_default():
    built = network_builder.build(hparams, CIFAR10, is_training=True)
    with tf.compat.v1.variable_scope(hparams.family.NAME):
      network_builder.infer(hparams, built, tf.constant(IMAGES))
    variables = {variable.op.name: variable for variable in tf.compat.v1.global_variables()}
    with tf.compat.v1.Session() as session:
      tf.compat.v1.train.Saver(variables).restore(session, checkpoint)
      session.run(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS))
      return session.run({name: v for name, v in variables.items() if 'moving_' in name})


@pytest.mark.parametrize('name', ['resnet', 'fastnet'])
def test_its_batch_norm_learns_alike(name, tmp_path):
  """Keras 3 takes the batch's variance and not, of n pixels, n / (n - 1) times that."""
  hparams = from_values(NETWORKS[name])
  path, checkpoint, made, _ = write(hparams, tmp_path)
  model = tf.keras.models.load_model(path)
  model(IMAGES, training=True)
  expected = averages_after_a_step(hparams, checkpoint)
  decay = hparams.batch_norm_decay
  for variable, value in expected.items():
    scope, _, kind = variable.rpartition('/')
    layer = model.get_layer(scope.replace('/', '_'))
    if kind == 'moving_variance' and not IS_KERAS_2:
      pixels = np.prod(layer.input.shape[1:3]) * len(IMAGES)
      before = made.values[variable]
      value = decay * before + (value - decay * before) * (pixels - 1) / pixels  # noqa: PLW2901
    np.testing.assert_allclose(getattr(layer, kind), value, rtol=1e-3, atol=1e-5, err_msg=variable)


def test_fit_lowers_the_loss(tmp_path):
  path, *_ = write(from_values(NETWORKS['resnet']), tmp_path)
  model = tf.keras.models.load_model(path)
  model.compile(tf.keras.optimizers.SGD(0.01), 'sparse_categorical_crossentropy')
  losses = model.fit(IMAGES, np.array([3, 1, 4, 1]), epochs=5, verbose=0).history['loss']
  assert losses[-1] < losses[0] / 2
  assert len(model.trainable_variables) == 7 * 3 + 2  # 7 convolutions with batch norm, the head.


def test_dropout_is_where_the_network_has_it(tmp_path):
  path, *_ = write(from_values(NETWORKS['wrn']), tmp_path)
  model = tf.keras.models.load_model(path)
  layers = [layer for layer in model.layers if isinstance(layer, tf.keras.layers.Dropout)]
  names = [f'wrn_stage{stage}_block0_dropout' for stage in (1, 2, 3)]
  assert [(layer.name, layer.rate) for layer in layers] == [(name, 0.3) for name in names]
  dropped = np.mean(layers[0](tf.ones([100, 100]), training=True) == 0)
  assert dropped == pytest.approx(0.3, abs=0.03)  # Six standard deviations of 10,000.


def test_what_is_fixed_in_a_fast_network_is_not_trained(tmp_path):
  path, *_ = write(from_values(NETWORKS['fastnet']), tmp_path)
  model = tf.keras.models.load_model(path)
  assert not model.get_layer('fastnet_whitening').trainable_variables
  scales = [layer.scale for layer in model.layers if layer.name.endswith('_scale')]
  assert scales == pytest.approx([1.702] * 9)
  # Of 9 convolutions the kernels, of 9 batch norms the offsets, and the head's kernel.
  assert len(model.trainable_variables) == 9 + 9 + 1


@pytest.mark.long
def test_both_lines_of_keras_write_the_same(tmp_path):
  """The digest is of the layers and of the order in which Keras numbers their weights.

  Inception's branches are what could be ordered in other ways.
  """
  hparams = from_values({'network': 'inception', 'inception_width': 0.1})
  path, *_, (probabilities, _) = write(hparams, tmp_path)
  with zipfile.ZipFile(path) as file:
    assert file.namelist() == ['metadata.json', 'config.json', 'model.weights.h5']
    assert json.loads(file.read('metadata.json'))['made_from'] == {'classes': ['a', 'b']}
    config = file.read('config.json')
  model = tf.keras.models.load_model(path)
  np.testing.assert_allclose(model(IMAGES), probabilities, rtol=0, atol=1e-5)
  order = [layer.name for layer in model.layers]
  digest = hashlib.sha256(config + json.dumps(order).encode()).hexdigest()
  assert digest[:16] == '0fa02cc80c4b6213'


def test_one_batch_size(tmp_path):
  path, *_ = write(from_values(NETWORKS['resnet']), tmp_path, batch=4)
  assert tf.keras.models.load_model(path).input_shape == (4, 32, 32, 3)


def weight(*shape):
  return tf.constant(np.ones(shape, np.float32))


@pytest.mark.parametrize(
  ('operation', 'make'),
  [
    ('Erf', lambda x: tf.math.erf(x, 'gate')),
    # One number for all channels, a convolution in groups, a pool's padding in pixels.
    ('AddV2', lambda x: tf.add(tf.nn.conv2d(x, weight(1, 1, 3, 4), 1, 'SAME'), weight(1), 'gate')),
    ('Conv2D', lambda x: tf.nn.conv2d(x, weight(1, 1, 1, 3), 1, 'SAME', name='gate')),
    ('MaxPool', lambda x: tf.nn.max_pool2d(x, 3, 2, [[0, 0], [1, 1], [1, 1], [0, 0]], name='gate')),
  ],
)
def test_an_operation_without_a_layer_is_refused(operation, make):
  with tf.Graph().as_default() as graph:
    images = tf.compat.v1.placeholder(tf.uint8, [None, 32, 32, 3], 'images')
    x = make(tf.cast(images, tf.float32))
    features = tf.identity(tf.reduce_mean(x, [1, 2]), 'features')
    tf.nn.softmax(features, name='probabilities')
  message = f'no layer for the operation {operation} as gate has it; export'
  with pytest.raises(InputError, match=message):
    keras_layers.from_graph(graph.as_graph_def(), {}, freeze_graph.Learning(0.9, {}))


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
