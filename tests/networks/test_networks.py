"""Whole ResNets, wide ResNets and VGG networks: sizes and names, both formats, both dtypes.

Their logits are those of a reference in NumPy, in NCHW and float64, from the papers' figures.
"""

import functools
import math

import gpus
import numpy as np
import pytest
import tensorflow as tf
from graphs import after_steps
from test_model_base import DECAY, EPSILON, to_nchw

import model_base
from cifar10.data.manifest import CIFAR10
from cifar10.networks.resnet import FamilyResNet, WideResNet
from cifar10.networks.vgg import Vgg
from cifar10.options.families import ResNetFamily, VggFamily, WideResNetFamily

pytestmark = pytest.mark.usefixtures('graph')


class ThinVgg(Vgg):
  WIDTHS = (8, 12, 16, 24, 32)  # Quick to compute.


# The reference. Activations are [batch, channels, height, width]; `params` maps names to arrays.


def conv(x, kernel, stride=1):
  size = kernel.shape[0]
  padding = (size - 1) // 2, size // 2
  x = np.pad(x, [(0, 0), (0, 0), padding, padding])
  height, width = (math.ceil((n - size + 1) / stride) for n in x.shape[2:])
  y = np.zeros((x.shape[0], kernel.shape[3], height, width))
  for row in range(size):
    for column in range(size):
      seen = x[:, :, row::stride, column::stride][:, :, :height, :width]
      y += np.einsum('nihw,io->nohw', seen, kernel[row, column])
  return y


def bn_relu(x, params, name, is_training, has_relu=True):
  """Normalises by the batch's population variance, or by the moving averages."""
  mean = x.mean((0, 2, 3)) if is_training else params[f'{name}/moving_mean']
  variance = x.var((0, 2, 3)) if is_training else params[f'{name}/moving_variance']
  scale = params[f'{name}/scale'] / np.sqrt(variance + EPSILON)
  offset = params[f'{name}/offset'] - mean * scale
  y = x * scale[:, None, None] + offset[:, None, None]
  return np.maximum(y, 0) if has_relu else y


def shortcut(x, width, stride):
  batch, channels, height, _ = x.shape
  x = x.reshape(batch, channels, height // stride, stride, height // stride, stride).mean((3, 5))
  added = width - channels
  return np.pad(x, [(0, 0), (added // 2, added - added // 2), (0, 0), (0, 0)])


def block_v1(x, params, name, width, *, stride, is_first, is_training):
  y = conv(x, params[f'{name}/conv1/kernel'], stride)
  y = conv(bn_relu(y, params, f'{name}/bn1', is_training), params[f'{name}/conv2/kernel'])
  y = bn_relu(y, params, f'{name}/bn2', is_training, has_relu=False)
  return np.maximum(y + shortcut(x, width, stride), 0)


def block_v2(x, params, name, width, *, stride, is_first, is_training):
  """Any block that begins with bn and relu; a first one may have a convolution as its shortcut."""
  activated = y = bn_relu(x, params, f'{name}/bn1', is_training)
  if f'{name}/shortcut/kernel' in params:
    added = conv(activated, params[f'{name}/shortcut/kernel'], stride)
  else:
    added = shortcut(activated if is_first else x, width, stride)
  y = conv(activated, params[f'{name}/conv1/kernel'], stride)
  for number in (2, 3):
    if f'{name}/conv{number}/kernel' in params:
      y = bn_relu(y, params, f'{name}/bn{number}', is_training)
      y = conv(y, params[f'{name}/conv{number}/kernel'])
  return y + added


def resnet(images, params, is_training, *, block=block_v2, widths=(16, 32, 64), activates=True):
  x = conv(to_nchw(images), params['init/conv/kernel'])
  if block is block_v1:
    x = bn_relu(x, params, 'init/batch_norm', is_training)
  for stage, (width, stride) in enumerate(zip(widths, (1, 2, 2)), 1):
    for number in range(2):
      name = f'stage{stage}/block{number}'
      if f'{name}/conv1/kernel' in params:
        how = {'stride': 1 if number else stride, 'is_training': is_training}
        x = block(x, params, name, width, is_first=activates and name == 'stage1/block0', **how)
  if block is block_v2:
    x = bn_relu(x, params, 'final/batch_norm', is_training)
  return head(x, params)


def vgg(images, params, is_training):
  """Table 1's column D without its last layers."""
  x = to_nchw(images)
  for group, convs in enumerate((2, 2, 3, 3, 3), 1):
    for number in range(1, convs + 1):
      x = conv(x, params[f'group{group}/conv{number}/kernel'])
      x = bn_relu(x, params, f'group{group}/bn{number}', is_training)
    batch, channels, height, _ = x.shape
    x = x.reshape(batch, channels, height // 2, 2, height // 2, 2).max((3, 5))
  return head(x, params)


def head(x, params):
  return x.mean((2, 3)) @ params['fully_connected/kernel'] + params['fully_connected/bias']


BOTTLENECKS = {'resnet_version': 2, 'bottleneck': True}
BOTTLENECK = functools.partial(resnet, widths=(64, 128, 256))
WIDE = functools.partial(resnet, widths=(32, 64, 128), activates=False)
NARROW = functools.partial(resnet, activates=False)
# The network's class, its options, the reference. Two blocks in each stage, so that a stage's first
# and later blocks both occur; the narrow one's first block adds its input, neither activated nor
# projected.
NETWORKS = {
  'v1': (FamilyResNet, ResNetFamily(14), functools.partial(resnet, block=block_v1)),
  'v2': (FamilyResNet, ResNetFamily(14, resnet_version=2), resnet),
  'bottleneck': (FamilyResNet, ResNetFamily(20, **BOTTLENECKS), BOTTLENECK),
  'wrn': (WideResNet, WideResNetFamily(wrn_depth=16, wrn_widen_factor=2), WIDE),
  'narrow': (WideResNet, WideResNetFamily(wrn_depth=10, wrn_widen_factor=1), NARROW),
  'vgg': (ThinVgg, VggFamily(), vgg),
}


def build(
  network, family, images, is_training=False, *, data_format='channels_last', dtype='float32'
):
  """The logits in the default graph; a second network has the variables of the first."""
  settings = model_base.LayerSettings(is_training, data_format, DECAY, EPSILON, dtype)
  scope = tf.compat.v1.get_variable_scope()
  with tf.compat.v1.variable_scope(scope, reuse=tf.compat.v1.AUTO_REUSE):
    return network(family, settings, CIFAR10).forward_pass(images)


def trained(network, family, **options):
  """The shapes of trained variables, by name, in the order in which they are made."""
  with tf.Graph().as_default():
    build(network, family, tf.zeros([1, 32, 32, 3]), **options)
    return {each.op.name: each.shape.as_list() for each in tf.compat.v1.trainable_variables()}


def random_images(batch):
  """[batch, 32, 32, 3] float32, uniform in -1 to 1 like normalised images."""
  return np.random.RandomState(2).uniform(-1, 1, [batch, 32, 32, 3]).astype(np.float32)


def random_params(variables, seed=0):
  """Values by variable name: He kernels, and batch-norm values far from their initial 0 and 1."""
  random = np.random.RandomState(seed)
  params = {}
  for variable in variables:
    name, shape = variable.op.name, variable.shape.as_list()
    if name.endswith('kernel'):
      value = random.normal(0, math.sqrt(2 / np.prod(shape[:-1])), shape)
    elif name.endswith(('scale', 'moving_variance')):
      value = random.uniform(0.5, 1.5, shape)
    else:
      value = random.normal(0, 0.3, shape)
    params[name] = value.astype(np.float32)
  return params


def run_with(params, fetches):
  """Runs `fetches` of the default graph after setting its variables to `params`, by name."""
  variables = tf.compat.v1.global_variables()
  return after_steps([each.assign(params[each.op.name]) for each in variables], fetches, 1)[0]


# Variables. A convolution k x k from a to b channels has kkab and no bias, batch norm has 2b.
#
# ResNets. First layer 3x3x3x16 + 2x16 = 464; last 64x10 + 10 = 650; n blocks in each stage.
# stage 1, each block: 2 x 9x16x16 + 2 x 32 = 4,608 + 64               =   4,672
# stage 2, first: 9x16x32 + 9x32x32 + 2 x 64 = 4,608 + 9,216 + 128     =  13,952
#          others: 2 x 9x32x32 + 128 = 18,432 + 128                    =  18,560
# stage 3, first: 9x32x64 + 9x64x64 + 2 x 128 = 18,432 + 36,864 + 256  =  55,552
#          others: 2 x 9x64x64 + 256 = 73,728 + 256                    =  73,984
# The shortcuts have none. Together
# 464 + 650 + 4,672n + 13,952 + 18,560(n-1) + 55,552 + 73,984(n-1) = 97,216n - 21,926
# n = 3: 291,648 - 21,926; n = 7: 680,512 - 21,926; n = 18: 1,749,888 - 21,926. In He et al. 2015,
# table 6: 0.27, 0.66 and 1.7 million.
# Version 2 has as many. Each block's first bn is over its input instead of its output: 32 - 64 and
# 64 - 128 fewer in the two blocks that widen. The first layer's bn goes, 32, and the last one
# comes, 128. Sum 0.
#
# Bottlenecks. A block from a to b with width w = b / 4 has 2a + aw + 2w + 9ww + 2w + wb, and ab of
# projection.
# First blocks, 16 to 64, 64 to 128, 128 to 256: 4,704, 23,808 and 94,720; others 4,544, 17,792 and
# 70,400. First convolution 432, last bn 2 x 256 = 512, fully connected 256x10 + 10 = 2,570.
# Together 126,746 + 92,736(n-1); n = 18 gives 1,703,258: the 1.7 M of ResNet-164 in Identity
# Mappings, table 4.
#
# VGG. A 3x3 convolution from a to b channels and its batch norm: 9ab + 2b.
# VGG-16, ab: 192 + 4,096, 8,192 + 16,384, 32,768 + 131,072, 131,072 + 524,288 and 3 x 262,144 are
# 1,634,496; channels: 2 x 64 + 2 x 128 + 3 x 256 + 6 x 512 = 4,224.
# 9 x 1,634,496 = 14,710,464; 2 x 4,224 = 8,448; dense 512x10 + 10 = 5,130: 14,724,042.
# VGG-19 has one more convolution in each of the last three groups:
# 9 x (65,536 + 2 x 262,144) + 2 x (256 + 2 x 512) = 5,308,416 + 2,560 = 5,310,976 more, 20,035,018,
# the number in logs/vgg_24208029 of the WRN authors' repository.
# VGG-13 has one less: 14,724,042 - 5,310,976 = 9,413,066; and VGG-11 without a second one in the
# first two groups: 9 x (4,096 + 16,384) + 2 x (64 + 128) = 184,704 less, 9,228,362.
#
# Wide ResNets. First convolution 3x3x3x16 = 432; a block from a to b has 2a + 9ab + 2b + 9bb.
# A stage's first block has ab more; last batch norm and dense layer, from c: 2c + 10c + 10.
#
# WRN-28-10: three other blocks a stage.
#   stage 1, 16 to 160:  352 + 25,600 + 230,400        =   256,352, others   640 +   460,800
#   stage 2, 160 to 320: 960 + 512,000 + 921,600       = 1,434,560, others 1,280 + 1,843,200
#   stage 3, 320 to 640: 1,920 + 2,048,000 + 3,686,400 = 5,736,320, others 2,560 + 7,372,800
#   first and last: 432 + 7,680 + 10 = 8,122
#   7,427,232 + 3 x (461,440 + 1,844,480 + 7,375,360) + 8,122 = 7,435,354 + 29,043,840 = 36,479,194
# The paper says 36.5 M.
@pytest.mark.parametrize(
  ('network', 'family', 'expected'),
  [
    (FamilyResNet, ResNetFamily(20), 269722),
    (FamilyResNet, ResNetFamily(44), 658586),
    pytest.param(FamilyResNet, ResNetFamily(110), 1727962, marks=pytest.mark.slow),
    (FamilyResNet, ResNetFamily(20, resnet_version=2), 269722),
    (FamilyResNet, ResNetFamily(11, **BOTTLENECKS), 126746),
    pytest.param(FamilyResNet, ResNetFamily(164, **BOTTLENECKS), 1703258, marks=pytest.mark.slow),
    (Vgg, VggFamily(vgg_layers=11), 9228362),
    (Vgg, VggFamily(vgg_layers=13), 9413066),
    (Vgg, VggFamily(vgg_layers=16), 14724042),
    (Vgg, VggFamily(vgg_layers=19), 20035018),
    (WideResNet, WideResNetFamily(wrn_depth=28, wrn_widen_factor=10), 36479194),
  ],
)
def test_parameters_by_hand(network, family, expected):
  assert sum(math.prod(shape) for shape in trained(network, family).values()) == expected


def test_variable_names():
  """These are in checkpoints: a change here makes older ones unreadable."""
  dense = ['fully_connected/kernel', 'fully_connected/bias']
  norm = ('scale', 'offset')
  names = [*trained(*NETWORKS['v1'][:2])]
  first = ['init/conv/kernel', *(f'init/batch_norm/{each}' for each in norm)]
  for number in (1, 2):
    first.append(f'stage1/block0/conv{number}/kernel')
    first += [f'stage1/block0/bn{number}/{each}' for each in norm]
  assert (names[:9], names[-2:]) == (first, dense)
  names = [*trained(*NETWORKS['vgg'][:2])]
  first = ['group1/conv1/kernel', 'group1/bn1/scale', 'group1/bn1/offset', 'group1/conv2/kernel']
  assert (names[:4], names[-3:]) == (first, ['group5/bn3/offset', *dense])
  names = [*trained(*NETWORKS['wrn'][:2])]
  block = ['bn1/scale', 'bn1/offset', 'shortcut/kernel', 'conv1/kernel', 'bn2/scale', 'bn2/offset']
  assert names[:7] == ['init/conv/kernel', *(f'stage1/block0/{name}' for name in block)]
  assert names[-4:] == [*(f'final/batch_norm/{each}' for each in norm), *dense]


@pytest.mark.parametrize('name', NETWORKS)
def test_one_checkpoint_fits_all_formats_dtypes_and_modes(name, graph):
  network, family, _ = NETWORKS[name]
  zeros = tf.zeros([2, 32, 32, 3])
  logits = build(network, family, zeros, True, data_format='channels_first', dtype=tf.bfloat16)
  assert (logits.shape, logits.dtype) == ([2, 10], tf.float32)
  variables = tf.compat.v1.trainable_variables()
  tf.gradients(logits, variables)
  assert all(variable.dtype.base_dtype == tf.float32 for variable in variables)
  shapes = {variable.op.name: variable.shape.as_list() for variable in variables}
  assert list(shapes.items()) == list(trained(network, family).items())
  operations = [op for op in graph.get_operations() if 'data_format' in op.node_def.attr]
  assert {op.get_attr('data_format') for op in operations} == {b'NCHW'}
  expected = {'Conv2D', 'Conv2DBackpropInput', 'Conv2DBackpropFilter'}
  assert expected | {'FusedBatchNormV3', 'FusedBatchNormGradV3'} <= {op.type for op in operations}


# Logits and gradients.


@pytest.mark.parametrize('is_training', [True, False])
@pytest.mark.parametrize('name', NETWORKS)
def test_logits_equal_the_reference(name, is_training):
  network, family, reference = NETWORKS[name]
  images = random_images(2)
  logits = build(network, family, tf.constant(images), is_training)
  params = random_params(tf.compat.v1.global_variables())
  result = run_with(params, logits)
  assert result.dtype == np.float32
  expected = reference(images, params, is_training)
  # Largest difference seen of a ResNet: 2.3e-6 of the largest logit.
  np.testing.assert_allclose(result, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.gpu
@pytest.mark.bfloat16
@pytest.mark.parametrize('is_training', [True, False])
@pytest.mark.parametrize('name', NETWORKS)
def test_bfloat16_agrees_with_float32(name, is_training):
  """Logits within 1.5 % of the largest (3 % with batch statistics), gradients in direction.

  bfloat16 rounds each activation and kernel by up to 2^-9, 0.2 %. Seen over 4 seeds at 16 images:
  at most 0.6 % with moving statistics and 1.6 % with the batch's, whose means and variances come
  from rounded activations as well; cosine of the gradients at least 0.9998 and 0.953. VGG, without
  shortcuts that carry past a layer what it does not touch: 1.3 % and 6 %, 0.998 and 0.900.
  """
  network, family, _ = NETWORKS[name]
  images = tf.constant(random_images(16))
  labels = tf.constant(np.arange(16) % 10)
  layout = 'channels_first' if gpus.visible() else 'channels_last'
  logits = [
    build(network, family, images, is_training, data_format=layout, dtype=dtype)
    for dtype in (tf.float32, tf.bfloat16)
  ]
  variables = tf.compat.v1.trainable_variables()
  losses = [
    tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x))
    for x in logits
  ]
  gradients = [[tf.reshape(g, [-1]) for g in tf.gradients(loss, variables)] for loss in losses]
  params = random_params(tf.compat.v1.global_variables())
  (exact, rounded), (slopes, rounded_slopes) = run_with(params, [logits, gradients])
  error = np.abs(rounded - exact).max() / np.abs(exact).max()
  bound = {'vgg': (0.03, 0.15)}.get(name, (0.015, 0.03))[is_training]
  assert 0 < error < bound  # 0 would mean that nothing was computed in bfloat16.
  assert all(np.abs(slope).max() > 0 for slope in rounded_slopes)
  slope, rounded_slope = np.concatenate(slopes), np.concatenate(rounded_slopes)
  cosine = slope @ rounded_slope / np.linalg.norm(slope) / np.linalg.norm(rounded_slope)
  assert cosine > {'vgg': (0.995, 0.8)}.get(name, (0.999, 0.9))[is_training]


@pytest.mark.parametrize('name', NETWORKS)
def test_images_of_a_size_that_the_step_chooses(name):
  """With --resolutions: logits and gradients are those of a graph that knows the size."""
  network, family, _ = NETWORKS[name]
  images = random_images(4)[:, :21, :21]
  forms = tf.constant(images), tf.compat.v1.placeholder_with_default(images, [4, None, None, 3])
  logits = [build(network, family, x, is_training=True) for x in forms]
  params = random_params(tf.compat.v1.global_variables())
  variables = tf.compat.v1.trainable_variables()
  known, unknown = run_with(params, [[y, *tf.gradients(y**2, variables)] for y in logits])
  for expected, actual in zip(known, unknown, strict=True):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
