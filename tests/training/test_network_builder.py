"""Parameters and multiplications of networks, counted by hand."""

from cifar10.data.manifest import CIFAR10
from cifar10.options.hparams import from_values
from cifar10.training.network_builder import network_size


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
