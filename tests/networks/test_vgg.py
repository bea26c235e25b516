"""VGG: depths, variable counts, a Keras twin, formats, dtypes."""

import pytest
import tensorflow as tf
import twins

from cifar10.networks import vgg
from cifar10.options.families import VggFamily

THIN = (8, 12, 16, 24, 32)


class ThinVgg(vgg.Vgg):
  """With the channels that are quick to compute."""

  WIDTHS = THIN


build = twins.builder(ThinVgg, VggFamily)


def twin(x):
  """Table 1's column D without its last layers, in Keras."""
  for group, (width, convs) in enumerate(zip(THIN, (2, 2, 3, 3, 3)), 1):
    for number in range(1, convs + 1):
      x = twins.conv_bn_relu(x, f'group{group}', number, (width, 3))
    x = tf.keras.layers.MaxPooling2D(2)(x)
  return x


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
  'num_layers, expected', [(11, 9228362), (13, 9413066), (16, 14724042), (19, 20035018)]
)
def test_parameters_by_hand(num_layers, expected):
  network = twins.builder(vgg.Vgg, VggFamily, vgg_layers=num_layers)
  assert twins.trainable_count(network) == expected


def test_variable_names_of_the_first_and_last_layers():
  with tf.Graph().as_default():
    build(tf.zeros([1, 32, 32, 3]))
    names = [v.op.name for v in tf.compat.v1.trainable_variables()]
  # These are in checkpoints: a change here makes older ones unreadable.
  assert names[:4] == [
    'group1/conv1/kernel',
    'group1/bn1/scale',
    'group1/bn1/offset',
    'group1/conv2/kernel',
  ]
  assert names[-3:] == ['group5/bn3/offset', 'fully_connected/kernel', 'fully_connected/bias']


@pytest.fixture(scope='module')
def graph():
  return twins.training_graph(build)


def test_one_checkpoint_fits_all(graph):
  twins.assert_one_checkpoint_fits_all(build, graph)
  twins.assert_all_channels_first(graph)


# Of 4 seeds in bfloat16: 0.013 and 0.06.
@pytest.mark.bfloat16
@pytest.mark.parametrize('is_training, bound', [(False, 0.03), (True, 0.15)])
def test_logits_equal_the_twins(is_training, bound):
  twins.assert_equals_twin(build, twins.model(twin), is_training, bound)
