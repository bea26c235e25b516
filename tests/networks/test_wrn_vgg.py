"""Wide ResNets and VGG networks: variable counts, Keras twins, formats, dtypes.

A twin is the same network, written in Keras's layers, named by our scopes with dots for slashes.
Keras makes and runs it eagerly, outside the graph that ours is built in.
"""

import numpy as np
import pytest
import tensorflow as tf
from test_model_base import DECAY, EPSILON, random_params, run_with

import model_base
from cifar10.data.manifest import CIFAR10
from cifar10.networks import vgg, wrn
from cifar10.options.families import VggFamily, WideResNetFamily

layers = tf.keras.layers
_VARIABLES = {
  layers.Conv2D: ('kernel',),
  layers.BatchNormalization: ('scale', 'offset', 'moving_mean', 'moving_variance'),
  layers.Dense: ('kernel', 'bias'),
}
THIN = (8, 12, 16, 24, 32)


class ThinVgg(vgg.Vgg):
  """With the channels that are quick to compute."""

  WIDTHS = THIN


def conv(x, name, filters, size, stride=1):
  padding = 'same'
  if stride > 1:
    x, padding = layers.ZeroPadding2D((size - 1) // 2)(x), 'valid'
  name = name.replace('/', '.')
  return layers.Conv2D(filters, size, stride, padding, use_bias=False, name=name)(x)


def bn_relu(x, name):
  x = layers.BatchNormalization(epsilon=EPSILON, name=name.replace('/', '.'))(x)
  return layers.ReLU()(x)


def vgg_twin(x):
  """Table 1's column D without its last layers, in Keras."""
  for group, (width, convs) in enumerate(zip(THIN, (2, 2, 3, 3, 3)), 1):
    for number in range(1, convs + 1):
      x = conv(x, f'group{group}/conv{number}', width, 3)
      x = bn_relu(x, f'group{group}/bn{number}')
    x = layers.MaxPooling2D(2)(x)
  return x


def wrn_twin(num_blocks, widen_factor):
  """Figure 1d and table 1, in Keras."""

  def block(x, scope, filters, stride):
    activated = bn_relu(x, f'{scope}/bn1')
    if x.shape[-1] != filters:
      x = conv(activated, f'{scope}/shortcut', filters, 1, stride)
    y = conv(activated, f'{scope}/conv1', filters, 3, stride)
    y = conv(bn_relu(y, f'{scope}/bn2'), f'{scope}/conv2', filters, 3)
    return layers.Add()([x, y])

  def network(x):
    x = conv(x, 'init/conv', 16, 3)
    for stage, stride in ((1, 1), (2, 2), (3, 2)):
      for number in range(num_blocks):
        scope, filters = f'stage{stage}/block{number}', 8 * 2**stage * widen_factor
        x = block(x, scope, filters, stride if number == 0 else 1)
    return bn_relu(x, 'final/batch_norm')

  return network


# The network's class, its options, and the twin. Two blocks in each stage, so that a stage's first
# and later blocks both occur; with k = 1 the first block adds its input, neither activated nor
# projected.
NETWORKS = {
  'vgg': (ThinVgg, VggFamily(), vgg_twin),
  'wrn': (wrn.WideResNet, WideResNetFamily(wrn_depth=16, wrn_widen_factor=2), wrn_twin(2, 2)),
  'narrow': (wrn.WideResNet, WideResNetFamily(wrn_depth=10, wrn_widen_factor=1), wrn_twin(1, 1)),
}


def build(
  network, family, images, is_training=False, *, data_format='channels_last', dtype='float32'
):
  """The logits in the default graph; a second network has the variables of the first."""
  settings = model_base.LayerSettings(is_training, data_format, DECAY, EPSILON, dtype)
  scope = tf.compat.v1.get_variable_scope()
  with tf.compat.v1.variable_scope(scope, reuse=tf.compat.v1.AUTO_REUSE):
    return network(family, settings, CIFAR10).forward_pass(images)


def trained(network, family):
  """The shapes of trained variables, by name, in the order in which they are made."""
  with tf.Graph().as_default():
    build(network, family, tf.zeros([1, 32, 32, 3]))
    return {each.op.name: each.shape for each in tf.compat.v1.trainable_variables()}


# A 3x3 convolution from a to b channels and its batch norm: 9ab + 2b.
#              convolutions of VGG-16, ab                                    channels
#   group 1:   3x64 + 64x64                     = 192 + 4,096     =     4,288     128
#   group 2:   64x128 + 128x128                 = 8,192 + 16,384  =    24,576     256
#   group 3:   128x256 + 2 x 256x256            = 32,768 + 131,072 =  163,840     768
#   group 4:   256x512 + 2 x 512x512            = 131,072 + 524,288 = 655,360   1,536
#   group 5:   3 x 512x512                                        =   786,432   1,536
#   together                                                        1,634,496   4,224
# 9 x 1,634,496 = 14,710,464; 2 x 4,224 = 8,448; dense 512x10 + 10 = 5,130: 14,724,042.
# VGG-19 has one more convolution in each of the last three groups:
# 9 x (65,536 + 2 x 262,144) + 2 x (256 + 2 x 512) = 5,308,416 + 2,560 = 5,310,976 more, 20,035,018,
# the number in logs/vgg_24208029 of the WRN authors' repository.
# VGG-13 has one less: 14,724,042 - 5,310,976 = 9,413,066; and VGG-11 without a second one in the
# first two groups: 9 x (4,096 + 16,384) + 2 x (64 + 128) = 184,704 less, 9,228,362.
@pytest.mark.parametrize(
  ('num_layers', 'expected'), [(11, 9228362), (13, 9413066), (16, 14724042), (19, 20035018)]
)
def test_parameters_of_vgg_by_hand(num_layers, expected):
  shapes = trained(vgg.Vgg, VggFamily(vgg_layers=num_layers))
  assert sum(shape.num_elements() for shape in shapes.values()) == expected


# A convolution k x k from a to b channels has kkab variables and no bias, batch norm has 2b.
#   first convolution: 3x3x3x16 = 432
#   a stage's first block, from a to b: 2a + 9ab + 2b + 9bb + ab = 2 (a + b) + 10ab + 9bb
#   each other block, from b to b:      2 (2b + 9bb)             = 4b + 18bb
#   last batch norm and dense layer, from c: 2c + 10c + 10       = 12c + 10
#
# WRN-16-4: one other block a stage.
#   stage 1, 16 to 64:   160 + 10,240 + 36,864   =    47,264, others     256 +    73,728 =    73,984
#   stage 2, 64 to 128:  384 + 81,920 + 147,456  =   229,760, others     512 +   294,912 =   295,424
#   stage 3, 128 to 256: 768 + 327,680 + 589,824 =   918,272, others   1,024 + 1,179,648 = 1,180,672
#   first and last: 432 + 3,072 + 10 = 3,514
#   47,264 + 229,760 + 918,272 + 73,984 + 295,424 + 1,180,672 + 3,514 = 2,748,890
#
# WRN-28-10: three other blocks a stage.
#   stage 1, 16 to 160:  352 + 25,600 + 230,400        =   256,352, others   640 +   460,800
#   stage 2, 160 to 320: 960 + 512,000 + 921,600       = 1,434,560, others 1,280 + 1,843,200
#   stage 3, 320 to 640: 1,920 + 2,048,000 + 3,686,400 = 5,736,320, others 2,560 + 7,372,800
#   first and last: 432 + 7,680 + 10 = 8,122
#   7,427,232 + 3 x (461,440 + 1,844,480 + 7,375,360) + 8,122 = 7,435,354 + 29,043,840 = 36,479,194
# The paper says 36.5 M, and 8.9 M of WRN-40-4: 1,195,296 + 5 x (73,984 + 295,424 + 1,180,672)
#   + 3,514 = 8,949,210
@pytest.mark.parametrize(
  ('depth', 'widen_factor', 'expected'), [(16, 4, 2748890), (28, 10, 36479194), (40, 4, 8949210)]
)
def test_parameters_of_wide_resnets_by_hand(depth, widen_factor, expected):
  family = WideResNetFamily(wrn_depth=depth, wrn_widen_factor=widen_factor)
  shapes = trained(wrn.WideResNet, family)
  assert sum(shape.num_elements() for shape in shapes.values()) == expected


def test_variable_names():
  """These are in checkpoints: a change here makes older ones unreadable."""
  names = [*trained(*NETWORKS['vgg'][:2])]
  first = ['group1/conv1/kernel', 'group1/bn1/scale', 'group1/bn1/offset', 'group1/conv2/kernel']
  last = ['group5/bn3/offset', 'fully_connected/kernel', 'fully_connected/bias']
  assert (names[:4], names[-3:]) == (first, last)
  names = [*trained(*NETWORKS['wrn'][:2])]
  block = ['bn1/scale', 'bn1/offset', 'shortcut/kernel', 'conv1/kernel', 'bn2/scale', 'bn2/offset']
  assert names[:7] == ['init/conv/kernel', *(f'stage1/block0/{name}' for name in block)]
  final = [f'final/batch_norm/{name}' for name in ('scale', 'offset')]
  assert names[-4:] == [*final, 'fully_connected/kernel', 'fully_connected/bias']


@pytest.mark.parametrize('name', ['vgg', 'wrn'])
def test_one_checkpoint_fits_all_formats_dtypes_and_modes(name):
  network, family, _ = NETWORKS[name]
  shapes = trained(network, family)
  with tf.Graph().as_default() as graph:
    zeros = tf.zeros([2, 32, 32, 3])
    logits = build(network, family, zeros, True, data_format='channels_first', dtype=tf.bfloat16)
    assert (logits.shape, logits.dtype) == ([2, 10], tf.float32)
    variables = tf.compat.v1.trainable_variables()
    tf.gradients(logits, variables)
  assert all(variable.dtype.base_dtype == tf.float32 for variable in variables)
  assert {variable.op.name: variable.shape for variable in variables} == shapes
  operations = [op for op in graph.get_operations() if 'data_format' in op.node_def.attr]
  assert {op.get_attr('data_format') for op in operations} == {b'NCHW'}


# bfloat16 rounds each activation and kernel by up to 2^-9, 0.2 %. Batch statistics enlarge that in
# every layer, and the more, the fewer images; a shortcut carries past it what it does not touch.
# Of 4 seeds: 0.013 and 0.06; 0.007 and 0.007.
@pytest.mark.bfloat16
@pytest.mark.parametrize(
  ('name', 'is_training', 'bound'),
  [
    ('vgg', False, 0.03),
    ('vgg', True, 0.15),
    ('wrn', False, 0.015),
    ('wrn', True, 0.03),
    ('narrow', False, 0.015),
  ],
)
def test_logits_equal_the_twins(name, is_training, bound):
  """Within 1e-4 of the largest logit, and in bfloat16 within `bound` of it.

  Seen over 4 seeds in float32: 0 in evaluation, where Keras runs the same kernels, and at most 2e-5
  in training.
  """
  network, family, twin = NETWORKS[name]
  images = np.random.RandomState(2).uniform(-1, 1, [8, 32, 32, 3]).astype(np.float32)
  with tf.Graph().as_default():
    exact = build(network, family, tf.constant(images), is_training)
    rounded = build(network, family, tf.constant(images), is_training, dtype=tf.bfloat16)
    variables = tf.compat.v1.trainable_variables()
    gradients = tf.gradients(rounded**2, variables) if is_training else []
    params = random_params(tf.compat.v1.global_variables())
    (exact, rounded), slopes = run_with(params, [(exact, rounded), gradients])
  for variable, slope in zip(variables, slopes):
    assert slope.dtype == np.float32, variable.op.name
    assert np.isfinite(slope).all(), variable.op.name
    assert np.abs(slope).max() > 0, variable.op.name
  inputs = layers.Input([32, 32, 3])
  x = layers.GlobalAveragePooling2D()(twin(inputs))
  model = tf.keras.Model(inputs, layers.Dense(10, name='fully_connected')(x))
  expected = copied(params, model)(images, training=is_training).numpy()
  largest = np.abs(expected).max()
  np.testing.assert_allclose(exact, expected, atol=1e-4 * largest)
  assert (exact.dtype, rounded.dtype) == (np.float32, np.float32)
  # 0 would mean that nothing was computed in bfloat16.
  assert 0 < np.abs(rounded - exact).max() < bound * largest


def copied(params, model):
  """The twin with our values in place of its weights, layer by layer; all of ours are used."""
  used = set()
  for layer in model.layers:
    scope = layer.name.replace('.', '/')
    names = [f'{scope}/{name}' for name in _VARIABLES.get(type(layer), ())]
    if names:
      layer.set_weights([params[name] for name in names])
    used.update(names)
  assert used == set(params)
  return model
