"""Networks that do not exist (test_networks.py has others); how each trainable variable learns."""

import pytest
import tensorflow as tf

import model_base
from cifar10.core.errors import InputError
from cifar10.data.manifest import CIFAR10
from cifar10.networks import families
from cifar10.options.families import BUILT_IN, Group, ResNetFamily, VggFamily, WideResNetFamily
from cifar10.options.hparams import from_values, recipe_values

BOTTLENECK = {'resnet_version': 2, 'bottleneck': True}


@pytest.mark.parametrize(
  ('family', 'options', 'says'),
  [
    (ResNetFamily, {'num_layers': 45}, r'45 is not 6n\+2 with n of 1 or more, at most 2000$'),
    (ResNetFamily, {'num_layers': 2}, r'2 is not 6n\+2'),  # 6 x 0 + 2: two layers and no block.
    (ResNetFamily, {'num_layers': 44, **BOTTLENECK}, r'44 is not 9n\+2 '),
    (ResNetFamily, {'num_layers': 20, 'bottleneck': True}, 'version 2 only'),
    (ResNetFamily, {'num_layers': 20, 'resnet_version': 3}, '--resnet-version is 3'),
    (WideResNetFamily, {'wrn_depth': 20}, r'--wrn-depth is 20: it must be 6n\+4'),
    (WideResNetFamily, {'wrn_widen_factor': 0}, '--wrn-widen-factor is 0'),
    (VggFamily, {'vgg_layers': 17}, '--vgg-layers is 17: it must be one of 11, 13, 16, 19'),
  ],
)
def test_networks_that_do_not_exist_are_refused(family, options, says):
  with pytest.raises(InputError, match=says):
    family(**options)


def groups(hparams):
  """The group of each trainable variable, by name."""
  with tf.Graph().as_default():
    settings = model_base.LayerSettings(True, 'channels_last', 0.9, 1e-5, tf.float32)
    network = families.build(hparams, settings, CIFAR10)
    network.forward_pass(tf.zeros([2, 32, 32, 3]))
    names = [variable.op.name for variable in tf.compat.v1.trainable_variables()]
  return {name: hparams.family.group(network.roles[name], hparams) for name in names}


def test_fast94():
  """Kernels by Muon, offsets 2.9 times as fast, the head 12.6 times, the first bias 10 steps."""
  expected = {'whitening/bias': Group(learns_until=10), 'fully_connected/kernel': Group(12.6)}
  for number in (1, 2, 3):
    for conv in (1, 2):
      expected[f'group{number}/conv{conv}/kernel'] = Group(uses_muon=True)
      expected[f'group{number}/bn{conv}/offset'] = Group(2.9)
  assert groups(from_values(recipe_values('fast94', {}))) == expected


@pytest.mark.parametrize('muon', [0.0, 0.1])
def test_a_resnet(muon):
  given = {'num_layers': 8, 'offset_lr_factor': 2.0, 'head_lr_factor': 3.0}
  layers = ['init/conv', 'init/batch_norm']
  for stage in (1, 2, 3):
    layers += [f'stage{stage}/block0/{layer}' for layer in ('conv1', 'bn1', 'conv2', 'bn2')]
  expected = {'fully_connected/kernel': Group(3.0), 'fully_connected/bias': Group(3.0)}
  for layer in layers:
    if 'conv' in layer:
      expected[f'{layer}/kernel'] = Group(uses_muon=muon > 0)
    else:
      expected.update({f'{layer}/scale': Group(), f'{layer}/offset': Group(2.0)})
  assert groups(from_values({**given, 'muon_learning_rate': muon})) == expected


@pytest.mark.parametrize('network', BUILT_IN)
def test_muon_is_for_the_kernels_of_every_family(network):
  for name, group in groups(from_values({'network': network, 'muon_learning_rate': 0.1})).items():
    is_kernel = name.endswith('/kernel') and 'fully_connected' not in name
    assert group.uses_muon == is_kernel, name
