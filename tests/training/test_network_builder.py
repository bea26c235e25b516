"""Parameters and multiplications of networks, counted by hand and by TensorFlow's own profiler."""

import pytest
import tensorflow as tf

import model_base
from cifar10.data.manifest import CIFAR10
from cifar10.networks import families
from cifar10.options.families import BUILT_IN
from cifar10.options.hparams import from_values
from cifar10.training.network_builder import network_size

SMALL = {
  'resnet': {'num_layers': 29, 'resnet_version': 2, 'bottleneck': True},
  'fastnet': {'widths': (24, 32, 48), 'convs_per_group': 3},
  'wrn': {'wrn_depth': 10, 'wrn_widen_factor': 2},
  'vgg': {'vgg_layers': 11},
}


def test_resnet_20():
  """What He et al. 2015 call 0.27 M parameters, and the usual count of 41 M multiplications.

  Each layer's outputs are n x n pixels; each takes 3 x 3 x channels multiplications.

    init     32 x 32 x 16 x 9 x 3                             =    442,368
    stage1   6 x 32 x 32 x 16 x 9 x 16                        = 14,155,776
    stage2   16 x 16 x 32 x 9 x 16 + 5 x 16 x 16 x 32 x 9 x 32 = 12,976,128
    stage3   8 x 8 x 64 x 9 x 32 + 5 x 8 x 8 x 64 x 9 x 64     = 12,976,128
    dense    64 x 10                                          =        640

  Shortcuts have no parameters: they average and pad.
  """
  size = network_size(from_values({'num_layers': 20}), CIFAR10)
  assert size[1] == 442_368 + 14_155_776 + 2 * 12_976_128 + 640 == 40_551_040
  assert size[0] == 269_722  # By hand in test_networks.py.


def test_operations_of_others_networks(monkeypatch):
  """A 3 x 3 kernel a channel: 32 x 32 x 3 x 9; a product [2, 3, 4] by [2, 4, 5]: 2 x 3 x 5 x 4.

  With an operation that is not counted the sum is none.
  """
  hparams = from_values({'num_layers': 8})

  class Others(model_base.Layers):
    def forward_pass(self, images):
      kernel = tf.compat.v1.get_variable('kernel', [3, 3, 3, 1])
      x = tf.nn.depthwise_conv2d(images, kernel, [1, 1, 1, 1], 'SAME')
      for a, b in (([2, 3, 4], [2, 4, 5]), ([2, 4, 3], [2, 4, 5])):
        x += tf.reduce_sum(tf.matmul(tf.zeros(a), tf.zeros(b), transpose_a=a[1] == 4))
      return x + tf.einsum('abc,cd->', tf.zeros([2, 3, 4]), tf.zeros([4, 5])) if self.sums else x

  monkeypatch.setattr(families, 'build', lambda family, settings, *_: Others(*settings))
  Others.sums = False
  assert network_size(hparams, CIFAR10) == (27, 27_648 + 2 * 120)
  Others.sums = True
  assert network_size(hparams, CIFAR10) == (27, None)


@pytest.mark.parametrize('network', BUILT_IN)
def test_every_family_as_tensorflow_counts_it(network):
  """Its profiler counts two operations, a multiplication and an addition."""
  hparams = from_values({'network': network, **SMALL[network]})
  with tf.Graph().as_default() as graph:
    settings = model_base.LayerSettings(False, 'channels_last', 0.9, 1e-5, tf.float32)
    families.build(hparams, settings, CIFAR10).forward_pass(tf.zeros([1, 32, 32, 3]))
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options['output'] = 'none'
    profile = tf.compat.v1.profiler.profile(graph, cmd='op', options=options)
  counted = {}
  while profile.children:
    [profile] = profile.children  # A chain, each link with the sums of those below.
    counted[profile.name] = profile.float_ops
  products = counted['Conv2D'] + counted['MatMul']
  assert network_size(hparams, CIFAR10)[1] == products / 2 > 0
