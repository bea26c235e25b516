"""The fast recipes' network: what its fixed and initial kernels do, and its shapes."""

import math

import gpus
import numpy as np
import pytest
import tensorflow as tf
from graphs import after_steps, run
from test_model_base import BFLOAT16

import model_base
from cifar10.data import input_pipeline
from cifar10.data.build import synthetic
from cifar10.data.manifest import CIFAR10
from cifar10.networks import fastnet
from cifar10.options.families import FastNetFamily

pytestmark = pytest.mark.usefixtures('graph')

WIDTHS = (24, 32, 48)


@pytest.fixture(scope='module')
def images():
  planes = synthetic.synthetic_images(np.arange(100) % 10, np.random.default_rng(0))
  return planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


@pytest.fixture(scope='module')
def noise():
  """Images whose patches vary alike in every pattern.

  Where a channel hardly varies, as the rarest patterns of the synthetic images, one batch norm
  after another enlarges the rounding: two forms' gradients differed by 1 %, and of noise by 5e-5.
  """
  return np.random.default_rng(0).integers(0, 256, [100, 32, 32, 3]).astype(np.uint8)


def network(whitening=None, divisor=None, settings=None, **options):
  """In training, with the same values each time; `settings` are other fields of LayerSettings."""
  tf.compat.v1.set_random_seed(0)
  plain = model_base.LayerSettings(True, 'channels_last', 0.6, 1e-12)
  family = FastNetFamily(**{'widths': WIDTHS, **options})
  return fastnet.FastNet(family, plain._replace(**settings or {}), CIFAR10, whitening, divisor)


def standardised(images):
  scale, shift = fastnet.standardisation(CIFAR10)
  normal = run(input_pipeline.normalise(tf.constant(images), tf.float32))
  return (normal * scale + shift).astype(np.float32)


def test_standardised_values_by_hand():
  """Byte 255 is 1: (1 - 0.4914) / 0.2470 = 2.0591; (1 - 0.4822) / 0.2435; (1 - 0.4465) / 0.2616."""
  white = np.full([1, 1, 1, 3], 255, np.uint8)
  np.testing.assert_allclose(standardised(white)[0, 0, 0], [2.0591, 2.1265, 2.1158], atol=1e-4)


def test_whitening_makes_patches_uncorrelated(images):
  """With variance 1 in each pattern that is not drowned by the 5e-4: eigenvalue / (it + 5e-4)."""
  kernel = fastnet.whitening_kernel(images, CIFAR10)
  assert (kernel.shape, kernel.dtype) == ((2, 2, 3, 24), np.float32)
  np.testing.assert_array_equal(kernel[..., 12:], -kernel[..., :12])
  outputs = run(tf.nn.conv2d(standardised(images), kernel[..., :12], 1, 'VALID')).reshape(-1, 12)
  moments = outputs.T @ outputs / len(outputs)
  variances = np.diag(moments)
  assert np.abs(moments - np.diag(variances)).max() < 1e-2
  patches = np.lib.stride_tricks.sliding_window_view(standardised(images), (2, 2), (1, 2))
  patches = patches.reshape(-1, 12)
  eigenvalues = np.linalg.eigvalsh(patches.T @ patches / len(patches))[::-1]  # The largest first.
  np.testing.assert_allclose(variances, eigenvalues / (eigenvalues + 5e-4), rtol=1e-2)


def test_first_outputs_of_a_new_convolution_are_its_inputs():
  tf.compat.v1.set_random_seed(1)
  x = tf.random.normal([2, 5, 5, 3], seed=1)
  kernel = fastnet.identity_initializer([3, 3, 3, 8])
  x_value, kernel_value, y = run([x, kernel, tf.nn.conv2d(x, kernel, 1, 'SAME')])
  np.testing.assert_allclose(y[..., :3], x_value, rtol=1e-6)
  # The others are uniform to 1 / sqrt(27) = 0.19245.
  assert 0.18 < np.abs(kernel_value[..., 3:]).max() <= np.float32(27**-0.5)
  square = run(fastnet.identity_initializer([3, 3, 4, 4]))
  assert square.sum() == 4
  assert (square[1, 1] == np.eye(4)).all()


def test_the_graph_holds_no_kernels(graph):
  """Event files have it several times: with its initial kernels fast96's were 150 MB."""
  network(widths=(128, 384, 512)).forward_pass(tf.zeros([4, 32, 32, 3]))
  assert len(graph.as_graph_def().SerializeToString()) < 100_000


@pytest.mark.parametrize(('convs', 'more'), [(2, 0), (3, 1)])
def test_parameters_by_hand(convs, more):
  """Bias 24; group of widths a -> b: 9 a b + b offset, and 9 b b + b for each further; 48 * 10.

  Groups 24 -> 24 -> 32 -> 48, first convolutions: 9 (576 + 768 + 1,536) + 104 = 26,024; each
  further: 9 (576 + 1,024 + 2,304) + 104 = 35,240; 26,024 + 35,240 + 24 + 480 = 61,768.
  """
  logits = network(convs_per_group=convs).forward_pass(tf.zeros([4, 32, 32, 3]))
  assert logits.shape == [4, 10]
  assert logits.dtype == tf.float32
  trainable = tf.compat.v1.trainable_variables()
  assert sum(v.shape.num_elements() for v in trainable) == 61_768 + more * 35_240
  names = {v.op.name for v in tf.compat.v1.global_variables()} - {v.op.name for v in trainable}
  assert 'whitening/kernel' in names
  assert not any(name.endswith('/scale') for name in names)


@pytest.mark.parametrize('dtype', [tf.float32, BFLOAT16])
def test_the_first_layer_whitens_standardised_images(images, dtype):
  """1.702 times the convolution of standardised images, though it reads -1..1."""
  kernel = fastnet.whitening_kernel(images, CIFAR10)
  raw = input_pipeline.normalise(tf.constant(images), dtype)
  y, bias = network(kernel, settings={'dtype': dtype})._whiten(raw)
  y = tf.cast(y + bias, tf.float32)
  [variable] = [v for v in tf.compat.v1.global_variables() if v.op.name == 'whitening/kernel']
  value, stored = run([y, variable])
  np.testing.assert_array_equal(stored, kernel)
  expected = 1.702 * run(tf.nn.conv2d(standardised(images), kernel, 1, 'VALID'))
  bound = 1e-4 if dtype == tf.float32 else 0.01
  assert np.abs(value - expected).mean() < bound * expected.std()


@pytest.mark.parametrize(
  ('width', 'divisor', 'expected'),
  [(256, 256, 1.0), (384, 384, 384 / 9 / math.sqrt(3 * 384)), (64, 512, 512 / 9 / math.sqrt(192))],
)
def test_the_head_starts_as_large_as_its_sources(width, divisor, expected):
  """airbench94: standard deviation 1, logits / 256; airbench95: 1 / sqrt(3 * 384), logits / 9.

  Logits of 64 channels that are divided by 512: 512 / 9 / sqrt(3 * 64), for the same at first.
  """
  network(divisor=divisor, widths=(24, 24, width))._head(tf.zeros([1, 1, 1, width]))
  [kernel] = run(tf.compat.v1.trainable_variables())
  assert kernel.std() == pytest.approx(expected, rel=0.05)


def assert_forms_agree(noise, one, other, is_training=True):
  """Two forms' logits and gradients are the same but for rounding, over one set of variables.

  That can make max pooling choose the other one of two near values, so norms are compared. A form
  is (compiles, data format, first_bias_steps).
  """
  tf.compat.v1.set_random_seed(0)
  kernel = fastnet.whitening_kernel(noise, CIFAR10)
  x = input_pipeline.normalise(tf.constant(noise[:16]), tf.float32)
  tf.compat.v1.train.create_global_step()
  results = []
  for compiles, data_format, steps in (one, other):
    settings = {'is_training': is_training, 'data_format': data_format, 'batch_norm_epsilon': 1e-3}
    settings['compiles'] = compiles
    with tf.compat.v1.variable_scope('network', reuse=bool(results)):
      logits = network(kernel, None, settings, first_bias_steps=steps).forward_pass(x)
    results.append([logits, *tf.gradients(logits**2, tf.compat.v1.trainable_variables())])
    calls = [op for op in logits.graph.get_operations() if op.type == 'PartitionedCall']
    # Seven activations and the gradients of six; the first one's is a condition's.
    assert len(calls) == (13 if compiles else 0)
  for expected, actual in zip(*run(results), strict=True):
    assert np.linalg.norm(actual - expected) < 0.01 * np.linalg.norm(expected)


def test_a_compiled_network_is_the_same_network(noise):
  assert_forms_agree(noise, (False, 'channels_last', 1), (True, 'channels_last', 1))


def test_channels_first_and_last_have_the_same_variables():
  def shapes(data_format):
    with tf.Graph().as_default():
      network(settings={'data_format': data_format}).forward_pass(tf.zeros([2, 32, 32, 3]))
      return {v.op.name: v.shape for v in tf.compat.v1.global_variables()}

  assert shapes('channels_first') == shapes('channels_last')


@pytest.mark.gpu
@pytest.mark.skipif(not gpus.ASKED, reason='a CPU has no kernels for channels_first')
@pytest.mark.parametrize('is_training', [False, True])
def test_channels_first_computes_what_channels_last_does(noise, is_training):
  """Of the first bias, too, whether it learns or stops to learn."""
  forms = (False, 'channels_last', 0), (False, 'channels_first', 1)
  assert_forms_agree(noise, *forms, is_training=is_training)


@pytest.mark.parametrize('dtype', [tf.float32, BFLOAT16])
@pytest.mark.parametrize('side', [24, 28])
def test_images_of_a_size_that_the_step_chooses(noise, side, dtype):
  """With --resolutions: logits and gradients are those of a graph that knows the size."""
  images = noise[:16, :side, :side]
  forms = tf.constant(images), tf.compat.v1.placeholder_with_default(images, [16, None, None, 3])
  kernel = fastnet.whitening_kernel(images, CIFAR10)
  settings = {'dtype': dtype, 'batch_norm_epsilon': 1e-3, 'compiles': True}
  results = []
  for x in forms:
    with tf.compat.v1.variable_scope('network', reuse=bool(results)):
      net = network(kernel, None, settings, first_bias_steps=1)
      logits = net.forward_pass(input_pipeline.normalise(x, dtype))
    results.append([logits, *tf.gradients(logits**2, tf.compat.v1.trainable_variables())])
  for expected, actual in zip(*run(results), strict=True):
    assert np.linalg.norm(actual - expected) < 0.01 * np.linalg.norm(expected)
  # Of three convolutions each; in bfloat16 those of the other three are forward convolutions.
  kinds = [op.type for op in logits.graph.get_operations()]
  assert kinds.count('Conv2DBackpropFilter') == 2 * (6 if dtype == tf.float32 else 3)


def test_a_third_convolution_has_a_shortcut():
  """With zeros in convs 2 and 3, what is left of a group is its first activation, activated."""
  x = tf.nn.relu(tf.random.normal([8, 4, 4, 24], seed=3))
  y = network(convs_per_group=3)._group(x, 1, 24)
  variables = {v.op.name: v for v in tf.compat.v1.trainable_variables()}
  kernels = [variables[f'conv{number}/kernel'] for number in (2, 3)]
  zeros = [kernel.assign(tf.zeros(kernel.shape)) for kernel in kernels]
  [(pooled, result)] = after_steps(zeros, [tf.nn.max_pool2d(x, 2, 2, 'VALID'), y], 1)
  mean, deviation = pooled.mean((0, 1, 2)), pooled.std((0, 1, 2))
  normal = 1.702 * (pooled - mean) / deviation
  first = normal / (1 + np.exp(-normal))
  # The shortcut is added before the last activation.
  np.testing.assert_allclose(result, first / (1 + np.exp(-first)), atol=1e-4)
