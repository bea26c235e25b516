"""Inception v3: variable counts, a Keras twin, formats, dtypes, dropout."""

import collections

import pytest
import tensorflow as tf
import twins

from cifar10.core.errors import InputError
from cifar10.networks import inception
from cifar10.options.families import InceptionFamily

pytestmark = pytest.mark.slow

layers = tf.keras.layers
WIDTH = 1 / 4


def builder(**options):
  return twins.builder(inception.InceptionV3, InceptionFamily, **options)


build = builder(inception_width=WIDTH)


# The twin: TF-Slim's inception_v3 in Keras, stride 2 padded.


def twin(x):
  x = twin_branch(x, 'stem', [(32, 3), (32, 3), (64, 3), (80, 1), (192, 3)])
  x = twin_max_pool(x)
  for letter, pool in zip('bcd', (32, 64, 64)):
    x = twin_5(x, f'mixed_5{letter}', pool)
  x = twin_6a(x)
  for letter, inner in zip('bcde', (128, 160, 160, 192)):
    x = twin_6(x, f'mixed_6{letter}', inner)
  x = twin_7a(x)
  for letter in 'bc':
    x = twin_7(x, f'mixed_7{letter}')
  return x


def twin_branch(x, scope, convs, stride=1):
  for number, (filters, size) in enumerate(convs, 1):
    thin = max(int(WIDTH * filters), 16)
    last = number == len(convs)
    x = twins.conv_bn_relu(x, scope, number, (thin, size), stride if last else 1)
  return x


def twin_max_pool(x):
  # After a relu, zeros around the image change no maximum.
  return layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))


def twin_mean(x):
  return layers.AveragePooling2D(3, 1, 'same')(x)


def twin_5(x, name, pool):
  return layers.Concatenate()(
    [
      twin_branch(x, f'{name}/branch1x1', [(64, 1)]),
      twin_branch(x, f'{name}/branch5x5', [(48, 1), (64, 5)]),
      twin_branch(x, f'{name}/branch3x3', [(64, 1), (96, 3), (96, 3)]),
      twin_branch(twin_mean(x), f'{name}/branch_pool', [(pool, 1)]),
    ]
  )


def twin_6a(x):
  return layers.Concatenate()(
    [
      twin_branch(x, 'mixed_6a/branch3x3', [(384, 3)], 2),
      twin_branch(x, 'mixed_6a/branch3x3_twice', [(64, 1), (96, 3), (96, 3)], 2),
      twin_max_pool(x),
    ]
  )


def twin_6(x, name, inner):
  row, column = (1, 7), (7, 1)
  once = [(inner, 1), (inner, row), (192, column)]
  twice = [(inner, 1), (inner, column), (inner, row), (inner, column), (192, row)]
  return layers.Concatenate()(
    [
      twin_branch(x, f'{name}/branch1x1', [(192, 1)]),
      twin_branch(x, f'{name}/branch7x7', once),
      twin_branch(x, f'{name}/branch7x7_twice', twice),
      twin_branch(twin_mean(x), f'{name}/branch_pool', [(192, 1)]),
    ]
  )


def twin_7a(x):
  wide = [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)]
  return layers.Concatenate()(
    [
      twin_branch(x, 'mixed_7a/branch3x3', [(192, 1), (320, 3)], 2),
      twin_branch(x, 'mixed_7a/branch7x7', wide, 2),
      twin_max_pool(x),
    ]
  )


def twin_7(x, name):
  once = twin_branch(x, f'{name}/branch3x3', [(384, 1)])
  twice = twin_branch(x, f'{name}/branch3x3_twice', [(448, 1), (384, 3)])
  return layers.Concatenate()(
    [
      twin_branch(x, f'{name}/branch1x1', [(320, 1)]),
      twin_branch(once, f'{name}/branch3x3/row', [(384, (1, 3))]),
      twin_branch(once, f'{name}/branch3x3/column', [(384, (3, 1))]),
      twin_branch(twice, f'{name}/branch3x3_twice/row', [(384, (1, 3))]),
      twin_branch(twice, f'{name}/branch3x3_twice/column', [(384, (3, 1))]),
      twin_branch(twin_mean(x), f'{name}/branch_pool', [(192, 1)]),
    ]
  )


# Variables.


@pytest.fixture(scope='module')
def whole():
  """A network with the source's channels."""
  return twins.training_graph(builder())


def test_parameters_by_hand(whole):
  """Convolutions of h x w from a to b channels have hwab variables, batch norms 2b.

  stem: 9 (3x32 + 32x32 + 32x64 + 80x192) + 64x80 + 2 (32 + 32 + 64 + 80 + 192)
        = 9 x 18,528 + 5,120 + 800 = 172,672
  mixed_5, from a channels, with p of the pool's branch: 1x1s 64a + 48a + 64a + pa, 25x48x64 =
        76,800, 9 (64x96 + 96x96) = 138,240, batch norms 2 (64 + 48 + 64 + 64 + 96 + 96 + p):
        a (176 + p) + 215,040 + 864 + 2p
    5b: a = 192, p = 32:   39,936 + 215,904 + 64  = 255,904
    5c: a = 256, p = 64:   61,440 + 215,904 + 128 = 277,472
    5d: a = 288, p = 64:   69,120 + 215,904 + 128 = 285,152
  mixed_6a: 9x288x384 = 995,328, 64x288 = 18,432, 138,240, 2 (384 + 64 + 96 + 96): 1,153,280
  mixed_6, from 768 channels, i inside: 1x1s 768 (192 + i + i + 192), rows and columns 7 (ii + 192i)
        and 7 (3ii + 192i), batch norms 2 (4x192 + 6i): 294,912 + 4,224i + 28ii + 1,536 + 12i
    6b: i = 128:           296,448 +   540,672 +   458,752 + 1,536 = 1,297,408
    6c, 6d: i = 160:       296,448 +   675,840 +   716,800 + 1,920 = 1,691,008
    6e: i = 192:           296,448 +   811,008 + 1,032,192 + 2,304 = 2,141,952
  mixed_7a: 2x768x192 = 294,912, 9x192x320 = 552,960, 2x7x192x192 = 516,096, 9x192x192 = 331,776,
        2 (192 + 320 + 4x192) = 2,560: 1,698,304
  mixed_7, from a channels: 1x1s a (320 + 384 + 448 + 192), rows and columns 4x3x384x384 =
        1,769,472, 9x448x384 = 1,548,288, 2 (320 + 384 + 448 + 384 + 4x384 + 192) = 6,528
    7b: a = 1,280:       1,720,320 + 3,324,288 = 5,044,608
    7c: a = 2,048:       2,752,512 + 3,324,288 = 6,076,800
  dense: 2,048x10 + 10 = 20,490

  Together 21,806,058. Keras's own InceptionV3 has 23,817,352 with 1,000 classes, 990x2,049 =
  2,028,510 more, and without the scales of 17,216 batch norms: 23,817,352 - 2,028,510 + 17,216.
  """
  counts = collections.Counter()
  for variable in whole.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES):
    counts[variable.op.name.split('/')[0]] += variable.shape.num_elements()
  assert counts == {
    'stem': 172672,
    'mixed_5b': 255904,
    'mixed_5c': 277472,
    'mixed_5d': 285152,
    'mixed_6a': 1153280,
    'mixed_6b': 1297408,
    'mixed_6c': 1691008,
    'mixed_6d': 1691008,
    'mixed_6e': 2141952,
    'mixed_7a': 1698304,
    'mixed_7b': 5044608,
    'mixed_7c': 6076800,
    'fully_connected': 20490,
  }
  assert sum(counts.values()) == 23817352 - 990 * 2049 + 17216 == 21806058


def test_a_width_of_nothing_is_refused():
  with pytest.raises(InputError, match=r'--inception-width is 0\.0: it must be above 0'):
    InceptionFamily(inception_width=0.0)


def test_grids_are_half_of_the_sources(whole):
  joined = [op.outputs[0].shape for op in whole.get_operations() if op.type == 'ConcatV2']
  grids = [shape.as_list() for shape in joined if shape.rank == 4]
  # Channels come first.
  assert grids[:3] == [[2, 256, 16, 16], [2, 288, 16, 16], [2, 288, 16, 16]]
  assert grids[3:8] == [[2, 768, 8, 8]] * 5
  assert grids[8:] == [[2, 1280, 4, 4], [2, 2048, 4, 4], [2, 2048, 4, 4]]


def test_variable_names(whole):
  variables = whole.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
  shapes = {variable.op.name: variable.shape for variable in variables}
  # These are in checkpoints: a change here makes older ones unreadable.
  assert shapes['stem/conv1/kernel'] == [3, 3, 3, 32]
  assert shapes['mixed_6b/branch7x7/conv2/kernel'] == [1, 7, 128, 128]
  assert shapes['mixed_6b/branch7x7/bn2/scale'] == [128]
  assert shapes['mixed_7c/branch3x3/column/conv1/kernel'] == [3, 1, 384, 384]


def test_one_checkpoint_fits_all(whole):
  twins.assert_one_checkpoint_fits_all(builder(), whole)
  twins.assert_all_channels_first(whole)


def test_drops_before_the_dense_layer(whole):
  assert twins.dropped_shapes(whole) == [[2, 2048]]


# Logits.


@pytest.fixture(scope='module')
def keras_model():
  return twins.model(twin)


# Of 4 seeds in bfloat16: 0.013 and 0.27. The initial network enlarges any difference in training:
# in float32, too, kernels rounded to bfloat16 move its logits by 5 % and turn its gradient to a
# cosine of 0.45 (32 synthetic images).
@pytest.mark.bfloat16
@pytest.mark.parametrize('is_training, bound', [(False, 0.03), (True, 0.6)])
def test_logits_equal_the_twins(keras_model, is_training, bound):
  twins.assert_equals_twin(build, keras_model, is_training, bound)
