"""Networks that exist, and the nearest to those that do not."""

import pytest

from cifar10.core.errors import InputError
from cifar10.options.families import ResNetFamily, VggFamily, WideResNetFamily


def test_networks_that_exist():
  for num_layers in (8, 14, 20, 32, 44, 56, 110, 1202):  # 6n+2
    ResNetFamily(num_layers)
  for num_layers in (11, 20, 29, 164, 1001):  # 9n+2
    ResNetFamily(num_layers, resnet_version=2, bottleneck=True)
  for num_layers in (10, 16, 22, 28, 40):  # 6n+4
    WideResNetFamily(num_layers)


BOTTLENECK = {'resnet_version': 2, 'bottleneck': True}


@pytest.mark.parametrize(
  ('family', 'options', 'says'),
  [
    (ResNetFamily, {'num_layers': 45}, r'45 is not 6n\+2 with n of 1 or more; nearest: 44 or 50$'),
    (ResNetFamily, {'num_layers': 49}, '49 .*: 44 or 50$'),
    (ResNetFamily, {'num_layers': 2}, '2 .*: 8$'),  # 6 x 0 + 2: two layers and no block.
    (ResNetFamily, {'num_layers': -4}, '-4 .*: 8$'),
    (ResNetFamily, {'num_layers': 44, **BOTTLENECK}, r'44 is not 9n\+2 .*: 38 or 47$'),
    (ResNetFamily, {'num_layers': 163, **BOTTLENECK}, '163 .*: 155 or 164$'),
    (ResNetFamily, {'num_layers': 20, 'bottleneck': True}, 'version 2 only'),
    (ResNetFamily, {'num_layers': 20, 'resnet_version': 3}, '--resnet-version is 3'),
    (WideResNetFamily, {'wrn_depth': 20}, r'--wrn-depth 20 is not 6n\+4 .*: 16 or 22$'),
    (WideResNetFamily, {'wrn_depth': 4}, '4 .*: 10$'),  # 6 x 0 + 4: no block.
    (WideResNetFamily, {'wrn_widen_factor': 0}, '--wrn-widen-factor is 0'),
    (VggFamily, {'vgg_layers': 17}, '--vgg-layers is 17: it must be one of 11, 13, 16, 19'),
  ],
)
def test_others_are_refused(family, options, says):
  with pytest.raises(InputError, match=says):
    family(**options)
