"""Batch norm's moving averages for given weights, over a split whose images are all the same."""

import os

import checkout
import numpy as np
import tensorflow as tf

from cifar10.core import devices
from cifar10.data import manifest, records
from cifar10.data.manifest import CIFAR10
from cifar10.options.hparams import from_values
from cifar10.training import checkpoint_tool, network_builder

WRN = {'network': 'wrn', 'wrn_depth': 10, 'wrn_widen_factor': 1, 'train_batch_size': 4}
MEAN = 'wrn/final/batch_norm/moving_mean'


def new_values(hparams):
  """The initial values of a network, by name."""
  with devices.side_graph(), tf.compat.v1.variable_scope('wrn'):
    built = network_builder.build(hparams, CIFAR10, is_training=True)
    built.forward_pass(tf.zeros([1, 32, 32, 3]))
    variables = {each.op.name: each for each in tf.compat.v1.global_variables()}
    with tf.compat.v1.Session() as session:
      session.run(tf.compat.v1.global_variables_initializer())
      return session.run({name: variables[name] for name in built.roles})


def moving_mean(hparams, values, folder, num_images):
  images = np.tile(np.arange(3072) % 251, [num_images, 1]).astype(np.uint8)
  records.write_records(manifest.record_path(str(folder), 'train'), images, [0] * num_images)
  return checkpoint_tool.with_moving_averages(hparams, CIFAR10, str(folder), values)[MEAN]


def test_variables_may_share_an_initial_value(tmp_path, monkeypatch):
  """As two that a function makes of one tensor of ones: the moving one stays 5, not 2."""
  monkeypatch.syspath_prepend(os.path.join(checkout.ROOT, 'tests', 'own'))
  hparams = from_values({'network': 'outside_parts:one_initial_value', 'train_batch_size': 4})
  shapes = {'scale': [3], 'variance': [3], 'both': [3], 'weights': [3, 10]}
  values = {f'network/{name}': np.full(shape, 2, np.float32) for name, shape in shapes.items()}
  values['network/variance'] += 3
  images = np.zeros([4, 3072], np.uint8)
  records.write_records(manifest.record_path(str(tmp_path), 'train'), images, [0] * 4)
  found = checkpoint_tool.with_moving_averages(hparams, CIFAR10, str(tmp_path), values)
  assert {name: value.flat[0] for name, value in found.items()} == {
    'network/scale': 2,
    'network/variance': 5,
    'network/both': 7,
    'network/weights': 2,
  }
