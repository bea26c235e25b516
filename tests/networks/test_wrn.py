"""Wide ResNets: depths, variable counts, a Keras twin, formats, dtypes."""

import pytest
import tensorflow as tf
import twins

from cifar10.networks import wrn
from cifar10.options.families import WideResNetFamily


def builder(**options):
  return twins.builder(wrn.WideResNet, WideResNetFamily, **options)


# Two blocks in each stage, so that a stage's first and later blocks both occur.
build = builder(wrn_depth=16, wrn_widen_factor=2)


def twin(num_blocks, widen_factor):
  """Figure 1d and table 1, in Keras."""

  def network(x):
    x = twins.conv(x, 'init/conv', 16, 3)
    for stage, stride in ((1, 1), (2, 2), (3, 2)):
      filters = 8 * 2**stage * widen_factor
      for block in range(num_blocks):
        scope = f'stage{stage}/block{block}'
        x = twin_block(x, scope, filters, stride if block == 0 else 1)
    return twins.bn_relu(x, 'final/batch_norm')

  return network


def twin_block(x, scope, filters, stride):
  activated = twins.bn_relu(x, f'{scope}/bn1')
  if x.shape[-1] != filters:
    x = twins.conv(activated, f'{scope}/shortcut', filters, 1, stride)
  y = twins.conv(activated, f'{scope}/conv1', filters, 3, stride)
  y = twins.bn_relu(y, f'{scope}/bn2')
  y = twins.conv(y, f'{scope}/conv2', filters, 3)
  return tf.keras.layers.Add()([x, y])


# Variables.


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
@pytest.mark.parametrize(
  'num_layers, widen_factor, expected, millions',  # The last: the paper's.
  [
    (16, 4, 2748890, None),
    (28, 10, 36479194, '36.5'),
    # Five other blocks a stage: 1,195,296 + 5 x (73,984 + 295,424 + 1,180,672) + 3,514
    (40, 4, 8949210, '8.9'),
  ],
)
def test_parameters_by_hand(num_layers, widen_factor, expected, millions):
  network = builder(wrn_depth=num_layers, wrn_widen_factor=widen_factor)
  assert twins.trainable_count(network) == expected
  assert millions in (None, f'{expected / 1e6:.1f}')


def test_variable_names_of_the_first_block():
  with tf.Graph().as_default():
    build(tf.zeros([1, 32, 32, 3]))
    names = [v.op.name for v in tf.compat.v1.trainable_variables()]
  # These are in checkpoints: a change here makes older ones unreadable.
  assert names[:8] == [
    'init/conv/kernel',
    'stage1/block0/bn1/scale',
    'stage1/block0/bn1/offset',
    'stage1/block0/shortcut/kernel',
    'stage1/block0/conv1/kernel',
    'stage1/block0/bn2/scale',
    'stage1/block0/bn2/offset',
    'stage1/block0/conv2/kernel',
  ]
  assert names[-4:] == [
    'final/batch_norm/scale',
    'final/batch_norm/offset',
    'fully_connected/kernel',
    'fully_connected/bias',
  ]


@pytest.fixture(scope='module')
def graph():
  return twins.training_graph(build)


def test_one_checkpoint_fits_all(graph):
  twins.assert_one_checkpoint_fits_all(build, graph)
  twins.assert_all_channels_first(graph)


# Logits.


# Of 4 seeds in bfloat16: 0.007 and 0.007.
@pytest.mark.bfloat16
@pytest.mark.parametrize('is_training, bound', [(False, 0.015), (True, 0.03)])
def test_logits_equal_the_twins(is_training, bound):
  twins.assert_equals_twin(build, twins.model(twin(2, 2)), is_training, bound)


@pytest.mark.bfloat16
def test_a_first_stage_as_wide_as_its_input_adds_it():
  """With k = 1 the first block adds its input, not activated and not projected."""
  narrow = builder(wrn_depth=10, wrn_widen_factor=1)
  twins.assert_equals_twin(narrow, twins.model(twin(1, 1)), False, bound=0.015)
