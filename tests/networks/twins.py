"""What the tests of whole networks share: Keras twins, and what holds for every network.

A twin is the same network, written in Keras's layers, named by our scopes with dots for slashes.
Keras makes and runs it eagerly, outside the graph that ours is built in. A `build` is what
`builder` returns.
"""

import numpy as np
import tensorflow as tf
from test_model_base import DECAY, EPSILON, random_params, run_with

import model_base
from cifar10.data.info import CIFAR10

layers = tf.keras.layers
_VARIABLES = {
  layers.Conv2D: ('kernel',),
  layers.BatchNormalization: ('scale', 'offset', 'moving_mean', 'moving_variance'),
  layers.Dense: ('kernel', 'bias'),
}


def builder(network, family, **own):
  """A function that builds the network in the default graph -> logits.

  Args:
    network: its class.
    family: the class of its options.
    own: values of options.
  """

  def build(
    images,
    is_training=False,
    data_format='channels_last',
    reuse=False,
    dtype=tf.float32,
  ):
    settings = model_base.LayerSettings(is_training, data_format, DECAY, EPSILON, dtype)
    net = network(family(**own), settings, CIFAR10)
    with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), reuse=reuse):
      return net.forward_pass(images)

  return build


# Twins.


def conv(x, name, filters, size, stride=1):
  """A convolution of `size` (height, width), or of that height and width."""
  padding = 'same'
  if stride > 1:
    x = layers.ZeroPadding2D((size - 1) // 2)(x)
    padding = 'valid'
  name = name.replace('/', '.')
  return layers.Conv2D(filters, size, stride, padding, use_bias=False, name=name)(x)


def bn_relu(x, name):
  x = layers.BatchNormalization(epsilon=EPSILON, name=name.replace('/', '.'))(x)
  return layers.ReLU()(x)


def conv_bn_relu(x, scope, number, filters_and_size, stride=1):
  x = conv(x, f'{scope}/conv{number}', *filters_and_size, stride)
  return bn_relu(x, f'{scope}/bn{number}')


def model(network):
  """The Keras model of a function from activations to activations, with mean and dense layer."""
  images = layers.Input([32, 32, 3])
  x = layers.GlobalAveragePooling2D()(network(images))
  return tf.keras.Model(images, layers.Dense(10, name='fully_connected')(x))


def copy_variables(params, twin):
  """Sets the twin's weights to ours, layer by layer -> the names of those that were used."""
  used = set()
  for layer in twin.layers:
    scope = layer.name.replace('.', '/')
    names = [f'{scope}/{name}' for name in _VARIABLES.get(type(layer), ())]
    if names:
      layer.set_weights([params[name] for name in names])
    used.update(names)
  return used


# Logits.


def assert_equals_twin(build, twin, is_training, bound):
  """Logits within 1e-4 of the largest, and in bfloat16 within `bound` of it.

  By the moving averages, or in training by the batch. Seen over 4 seeds in float32: 0 in
  evaluation, where Keras runs the same kernels, and
  at most 2e-5 in training.

  bfloat16 rounds each activation and kernel by up to 2^-9, 0.2 %. Batch statistics enlarge that in
  every layer, and the more, the fewer images; a shortcut carries past it what it does not touch.
  """
  images = np.random.RandomState(2).uniform(-1, 1, [8, 32, 32, 3]).astype(np.float32)
  (exact, rounded), params = _logits(build, images, is_training)
  assert copy_variables(params, twin) == set(params)
  expected = twin(images, training=is_training).numpy()
  largest = np.abs(expected).max()
  np.testing.assert_allclose(exact, expected, atol=1e-4 * largest)
  assert (exact.dtype, rounded.dtype) == (np.float32, np.float32)
  # 0 would mean that nothing was computed in bfloat16.
  assert 0 < np.abs(rounded - exact).max() < bound * largest


def _logits(build, images, is_training):
  """Logits in float32 and in bfloat16, and the variables; in training checks the gradients."""
  with tf.Graph().as_default():
    exact = build(tf.constant(images), is_training)
    rounded = build(tf.constant(images), is_training, reuse=True, dtype=tf.bfloat16)
    variables = tf.compat.v1.trainable_variables()
    gradients = tf.gradients(rounded**2, variables) if is_training else []
    params = random_params(tf.compat.v1.global_variables())
    logits, slopes = run_with(params, [(exact, rounded), gradients])
  for variable, slope in zip(variables, slopes):
    assert slope.dtype == np.float32, variable.op.name
    assert np.isfinite(slope).all(), variable.op.name
    assert np.abs(slope).max() > 0, variable.op.name
  return logits, params


# Graphs that are not run.


def training_graph(build):
  """A network in training, for two images, in the format and the dtype that are not the default."""
  with tf.Graph().as_default() as graph:
    logits = build(tf.zeros([2, 32, 32, 3]), True, 'channels_first', dtype=tf.bfloat16)
    assert (logits.shape, logits.dtype) == ([2, 10], tf.float32)
    tf.gradients(logits, tf.compat.v1.trainable_variables())
  return graph


def trainable_count(build):
  """How many trainable elements the network has."""
  with tf.Graph().as_default():
    build(tf.zeros([1, 32, 32, 3]))
    return sum(v.shape.num_elements() for v in tf.compat.v1.trainable_variables())


def assert_one_checkpoint_fits_all(build, graph):
  """Evaluation in the default format and dtype has the variables of a `training_graph`."""
  with tf.Graph().as_default() as evaluation:
    build(tf.zeros([1, 32, 32, 3]))
  assert _variables(evaluation) == _variables(graph)


def _variables(graph):
  everything = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
  variables = [variable for variable in everything if not variable.op.name.endswith('global_step')]
  assert all(variable.dtype.base_dtype == tf.float32 for variable in variables)
  return [(variable.op.name, variable.shape.as_list()) for variable in variables]


def assert_all_channels_first(graph):
  """Every operation that has a data format has this one, those of the gradients, too."""
  operations = [op for op in graph.get_operations() if 'data_format' in op.node_def.attr]
  assert {op.get_attr('data_format') for op in operations} == {b'NCHW'}
