"""Whole networks: depth, variable counts, both data formats, both compute dtypes.

The NumPy network is the reference of `test_model_base`, stacked; it computes in NCHW and float64.
"""

import concurrent.futures
import multiprocessing

import gpus
import numpy as np
import pytest
import tensorflow as tf
from test_model_base import (
  EPSILON,
  random_params,
  reference_batch_norm,
  reference_bottleneck,
  reference_conv,
  reference_v1,
  reference_v2,
  relu,
  run_with,
  to_nchw,
)

import model_base
from cifar10.data.manifest import CIFAR10
from cifar10.networks import families
from cifar10.options.families import ResNetFamily

pytestmark = pytest.mark.usefixtures('graph')

# Two blocks in each stage, so that a stage's first and later blocks both occur.
NETWORKS = {
  'v1': {'num_layers': 14, 'resnet_version': 1},
  'v2': {'num_layers': 14, 'resnet_version': 2},
  'bottleneck': {'num_layers': 20, 'resnet_version': 2, 'bottleneck': True},
}
# What v2 adds to v1, its bottleneck has, too.
ONE_MORE = [pytest.param(name, marks=pytest.mark.slow if name == 'v2' else ()) for name in NETWORKS]
REFERENCE_BLOCKS = {'v1': reference_v1, 'v2': reference_v2, 'bottleneck': reference_bottleneck}


def build(
  images,
  is_training=False,
  data_format='channels_last',
  reuse=False,
  dtype=tf.float32,
  **options,
):
  """The logits of a network in scope 'resnet' of the default graph."""
  settings = model_base.LayerSettings(is_training, data_format, 0.9, EPSILON, dtype)
  net = families.build(ResNetFamily(**options), settings, CIFAR10)
  with tf.compat.v1.variable_scope('resnet', reuse=reuse):
    return net.forward_pass(images)


def random_images(batch):
  """[batch, 32, 32, 3] float32, uniform in -1 to 1 like normalised images."""
  return np.random.RandomState(2).uniform(-1, 1, [batch, 32, 32, 3]).astype(np.float32)


def reference_logits(images, params, network, is_training):
  """[batch, 32, 32, 3] -> [batch, 10]: the NETWORKS entry, two blocks a stage, in NumPy."""
  params = {name.replace('resnet/', ''): value for name, value in params.items()}
  block = REFERENCE_BLOCKS[network]
  widths = [64, 128, 256] if network == 'bottleneck' else [16, 32, 64]
  x = reference_conv(to_nchw(images), params['init/conv/kernel'], 1)
  if network == 'v1':
    x = relu(reference_batch_norm(x, params, 'init/batch_norm', is_training))
  for stage, (width, stride) in enumerate(zip(widths, [1, 2, 2]), start=1):
    name = f'stage{stage}/block'
    first = stage == 1
    x = block(x, params, f'{name}0', width, stride, activate=first, is_training=is_training)
    x = block(x, params, f'{name}1', width, 1, activate=False, is_training=is_training)
  if network != 'v1':
    x = relu(reference_batch_norm(x, params, 'final/batch_norm', is_training))
  x = x.mean((2, 3))
  return x @ params['fully_connected/kernel'] + params['fully_connected/bias']


# Variables.


def count_trainable(**options):
  with tf.Graph().as_default():
    build(tf.zeros([1, 32, 32, 3]), is_training=True, **options)
    return sum(v.shape.num_elements() for v in tf.compat.v1.trainable_variables())


# A convolution k x k from a to b channels has kkab variables and no bias, batch norm has 2b.
#   first layer: 3x3x3x16 + 2x16 = 432 + 32 = 464;           last: 64x10 + 10 = 650
#   stage 1, each block: 2 x 9x16x16 + 2 x 32 = 4,608 + 64               =   4,672
#   stage 2, first: 9x16x32 + 9x32x32 + 2 x 64 = 4,608 + 9,216 + 128     =  13,952
#            others: 2 x 9x32x32 + 128 = 18,432 + 128                    =  18,560
#   stage 3, first: 9x32x64 + 9x64x64 + 2 x 128 = 18,432 + 36,864 + 256  =  55,552
#            others: 2 x 9x64x64 + 256 = 73,728 + 256                    =  73,984
# The shortcuts have none. Together, n blocks a stage:
#   464 + 650 + 4,672n + 13,952 + 18,560(n-1) + 55,552 + 73,984(n-1) = 97,216n - 21,926
@pytest.mark.parametrize(
  'num_layers, expected, millions',  # The last: He et al. 2015, table 6.
  [
    (20, 269722, '0.27'),  # n = 3: 291,648 - 21,926
    (44, 658586, '0.66'),  # n = 7: 680,512 - 21,926
    pytest.param(110, 1727962, '1.7', marks=pytest.mark.slow),  # n = 18: 1,749,888 - 21,926
  ],
)
def test_trainable_variables_equal_the_papers_table(num_layers, expected, millions):
  assert count_trainable(num_layers=num_layers) == expected
  decimals = len(millions) - 2
  assert f'{expected / 1e6:.{decimals}f}' == millions


def test_version_2_has_as_many_variables_as_version_1():
  # Each block's first bn is over its input instead of its output: 32 - 64 and 64 - 128 fewer in
  # the two blocks that widen. The first layer's bn goes, 32, and the last one comes, 128. Sum 0.
  assert count_trainable(num_layers=20, resnet_version=2) == 269722


@pytest.mark.parametrize(
  ('num_layers', 'expected'), [(11, 126746), pytest.param(164, 1703258, marks=pytest.mark.slow)]
)
def test_bottleneck_variables_equal_the_papers_table(num_layers, expected):
  # A block from a to b with width w = b / 4: 2a + aw + 2w + 9ww + 2w + wb, and ab of projection.
  #   stage 1, first (16 to 64, w 16): 32 + 256 + 32 + 2,304 + 32 + 1,024 + 1,024        =  4,704
  #            others (64 to 64):     128 + 1,024 + 32 + 2,304 + 32 + 1,024              =  4,544
  #   stage 2, first (64 to 128, w 32): 128 + 2,048 + 64 + 9,216 + 64 + 4,096 + 8,192    = 23,808
  #            others:                  256 + 4,096 + 64 + 9,216 + 64 + 4,096            = 17,792
  #   stage 3, first (128 to 256, w 64): 256 + 8,192 + 128 + 36,864 + 128 + 16,384
  #                                      + 32,768                                        = 94,720
  #            others:        512 + 16,384 + 128 + 36,864 + 128 + 16,384                 = 70,400
  # First convolution 432, last bn 2 x 256 = 512, fully connected 256x10 + 10 = 2,570.
  # Together 126,746 + 92,736(n-1); n = 18 gives 1,703,258: the 1.7 M of ResNet-164 in Identity
  # Mappings, table 4.
  counted = count_trainable(num_layers=num_layers, resnet_version=2, bottleneck=True)
  assert counted == expected


@pytest.mark.parametrize('network', ONE_MORE)
def test_names_and_shapes_are_the_same_in_every_format_dtype_and_mode(network):
  def variables(**options):
    with tf.Graph().as_default():
      build(tf.zeros([1, 32, 32, 3]), **NETWORKS[network], **options)
      return [(v.op.name, v.shape.as_list()) for v in tf.compat.v1.global_variables()]

  expected = variables(is_training=True)
  assert variables(is_training=False) == expected
  assert variables(data_format='channels_first') == expected
  assert variables(dtype=tf.bfloat16) == expected
  assert len(set(dict(expected))) == len(expected)


def test_variable_names_of_the_first_layers():
  build(tf.zeros([1, 32, 32, 3]), num_layers=8)
  names = [v.op.name for v in tf.compat.v1.trainable_variables()]
  # These are in checkpoints: a change here makes older ones unreadable.
  assert names[:9] == [
    'resnet/init/conv/kernel',
    'resnet/init/batch_norm/scale',
    'resnet/init/batch_norm/offset',
    'resnet/stage1/block0/conv1/kernel',
    'resnet/stage1/block0/bn1/scale',
    'resnet/stage1/block0/bn1/offset',
    'resnet/stage1/block0/conv2/kernel',
    'resnet/stage1/block0/bn2/scale',
    'resnet/stage1/block0/bn2/offset',
  ]
  assert names[-2:] == ['resnet/fully_connected/kernel', 'resnet/fully_connected/bias']


# Logits and gradients.


@pytest.mark.parametrize('is_training', [True, False])
@pytest.mark.parametrize('network', ONE_MORE)
def test_logits_equal_the_numpy_network(network, is_training):
  images = random_images(4)
  logits = build(tf.constant(images), is_training, **NETWORKS[network])
  params = random_params(tf.compat.v1.global_variables())
  result = run_with(params, logits)
  assert result.shape == (4, 10)
  assert result.dtype == np.float32
  expected = reference_logits(images, params, network, is_training)
  # Largest difference seen: 2.3e-6 of the largest logit.
  np.testing.assert_allclose(result, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize('network', NETWORKS)
def test_every_channels_first_op_says_so(graph, network):
  logits = build(tf.zeros([1, 32, 32, 3]), True, 'channels_first', **NETWORKS[network])
  tf.gradients(logits, tf.compat.v1.trainable_variables())
  formats = {
    (op.type, op.get_attr('data_format'))
    for op in graph.get_operations()
    if 'data_format' in op.node_def.attr
  }
  types = {'Conv2D', 'Conv2DBackpropInput', 'Conv2DBackpropFilter'}
  types |= {'FusedBatchNormV3', 'FusedBatchNormGradV3'}
  if network != 'bottleneck':
    types |= {'AvgPool', 'AvgPoolGrad'}
  assert formats == {(kind, b'NCHW') for kind in types}


def channels_first_logits(images):
  """Runs in a process of its own: every NETWORKS entry in NCHW, or None where the CPU cannot.

  TensorFlow's own CPU kernels are NHWC only; its oneDNN kernels, on by default on x86 Linux, take
  both. But in TensorFlow before 2.16 oneDNN's pooling forgets the format in its cache key: once a
  process has pooled in one format, the other comes out wrong (tensorflow issue 61482).
  """
  results = {}
  try:
    for network, options in NETWORKS.items():
      for is_training in (True, False):
        with tf.Graph().as_default():
          logits = build(tf.constant(images), is_training, 'channels_first', **options)
          params = random_params(tf.compat.v1.global_variables())
          results[network, is_training] = run_with(params, logits), params
  except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError) as error:
    if 'NHWC' not in str(error):
      raise
    return None
  return results


@pytest.mark.gpu
@pytest.mark.slow
def test_channels_first_logits_equal_the_numpy_network_where_the_cpu_runs_them():
  images = random_images(4)
  context = multiprocessing.get_context('spawn')
  with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
    results = executor.submit(channels_first_logits, images).result(timeout=120)
  if results is None:
    pytest.skip('this TensorFlow has no channels_first convolution for the CPU (oneDNN is off)')
  bound = 2e-4 if gpus.visible() else 2e-5  # Winograd's sums on a GPU are less exact.
  for (network, is_training), (result, params) in results.items():
    # The same kernels, untransposed, as in the channels_last comparison above.
    expected = reference_logits(images, params, network, is_training)
    np.testing.assert_allclose(result, expected, atol=bound * np.abs(expected).max())


@pytest.mark.gpu
@pytest.mark.bfloat16
@pytest.mark.parametrize('is_training', [True, False])
@pytest.mark.parametrize('network', ONE_MORE)
def test_bfloat16_agrees_with_float32(network, is_training):
  """Logits within 1.5 % of the largest (3 % with batch statistics), gradients in direction.

  bfloat16 rounds each activation and kernel by up to 2^-9, 0.2 %. Seen over 4 seeds at 16 images:
  at most 0.6 % with moving statistics and 1.6 % with the batch's, whose means and variances come
  from rounded activations as well; cosine of the gradients at least 0.9998 and 0.953.
  """
  images = tf.constant(random_images(16))
  labels = tf.constant(np.arange(16) % 10)
  logits = [
    build(images, is_training, gpus.data_format(), dtype != tf.float32, dtype, **NETWORKS[network])
    for dtype in (tf.float32, tf.bfloat16)
  ]
  assert [x.dtype for x in logits] == [tf.float32, tf.float32]
  variables = tf.compat.v1.trainable_variables()
  losses = [
    tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x))
    for x in logits
  ]
  gradients = [
    tf.concat([tf.reshape(g, [-1]) for g in tf.gradients(loss, variables)], 0) for loss in losses
  ]
  params = random_params(tf.compat.v1.global_variables())
  (exact, rounded), (slope, rounded_slope) = run_with(params, [logits, gradients])
  bound = 0.03 if is_training else 0.015
  error = np.abs(rounded - exact).max() / np.abs(exact).max()
  assert 0 < error < bound  # 0 would mean that nothing was computed in bfloat16.
  cosine = slope @ rounded_slope / np.linalg.norm(slope) / np.linalg.norm(rounded_slope)
  assert cosine > (0.9 if is_training else 0.999)
