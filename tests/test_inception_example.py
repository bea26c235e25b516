"""examples/inception_v3.py: its variables, grids and dropout, jobs of version 1 with it."""

import json

import numpy as np
import pytest
import tensorflow as tf
from inception_v3 import InceptionFamily
from outcome import refused, succeeded

import model_base
from cifar10.data.manifest import CIFAR10

OWN = 'inception_v3:InceptionFamily'


def network(data_format):
  settings = model_base.LayerSettings(True, data_format, 0.9, 1e-3)
  return InceptionFamily.NETWORK(InceptionFamily(), settings, CIFAR10)


@pytest.fixture(scope='module')
def whole():
  """The graph of a training step with the source's channels, channels first."""
  with tf.Graph().as_default() as graph:
    network('channels_first').forward_pass(tf.zeros([2, 32, 32, 3]))
  return graph


def test_it_has_keras_s_parameters_half_the_sources_grids_and_its_variables_names(whole):
  """Keras has 23,817,352 with 1,000 classes, 990x2,049 = 2,028,510 more than with ten.

  It lacks the scales of 17,216 batch norms: 23,817,352 - 2,028,510 + 17,216 = 21,806,058.
  """
  variables = whole.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
  assert sum(variable.shape.num_elements() for variable in variables) == 21806058
  joined = [op.outputs[0].shape for op in whole.get_operations() if op.type == 'ConcatV2']
  grids = [shape.as_list() for shape in joined if shape.rank == 4]
  # Channels come first.
  assert grids[:3] == [[2, 256, 16, 16], [2, 288, 16, 16], [2, 288, 16, 16]]
  assert grids[3:8] == [[2, 768, 8, 8]] * 5
  assert grids[8:] == [[2, 1280, 4, 4], [2, 2048, 4, 4], [2, 2048, 4, 4]]
  shapes = {variable.op.name: variable.shape for variable in variables}
  # These are in checkpoints: a change here makes older ones unreadable.
  assert shapes['stem/conv1/kernel'] == [3, 3, 3, 32]
  assert shapes['mixed_6b/branch7x7/conv2/kernel'] == [1, 7, 128, 128]
  assert shapes['mixed_6b/branch7x7/bn2/scale'] == [128]
  assert shapes['mixed_7c/branch3x3/column/conv1/kernel'] == [3, 1, 384, 384]


def test_odd_sizes_are_halved_as_by_a_convolution():
  """Those of --resolutions 28,0.5: 28, 14, 7, 4."""
  assert network('channels_last')._max_pool_3(tf.ones([1, 7, 5, 1])).shape == [1, 4, 3, 1]


def dropped(before=0, steps=(0, 0, 1)):
  """What two layers leave of ones at each of the steps, after other random operations."""
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tf.compat.v1.set_random_seed(1)
    step = tf.compat.v1.train.get_or_create_global_step()
    for _ in range(before):
      tf.random.normal([])
    layers = network('channels_last')
    both = [layers._dropout(tf.ones([100_000], name=name), 0.3) for name in ('x', 'y')]
    left = []
    for each in steps:
      step.load(each, session)
      left.append(session.run(both))
    return left


def test_dropout_differs_by_step_and_layer_and_is_the_same_again():
  """A resumed warm start has initializers that the first run took from a file."""
  (first, other), (again, _), (later, _) = dropped()
  # 30,000 expected, standard deviation sqrt(100,000 x 0.3 x 0.7) = 145.
  assert abs((first == 0).sum() - 30_000) < 4 * 145
  np.testing.assert_allclose(first[first != 0], 1 / 0.7, rtol=1e-6)
  np.testing.assert_array_equal(first, again)
  np.testing.assert_array_equal(first, dropped(before=3)[0][0])
  for unlike in (other, later):  # Alike where both drop or both keep: 0.3^2 + 0.7^2 = 0.58.
    assert (first == unlike).mean() == pytest.approx(0.58, abs=0.01)


@pytest.mark.slow
def test_a_job_of_version_1_goes_on_with_the_example(run_here, data_dir, tmp_path):
  """Its config.json names a network of the program, whose variables have the same names."""
  job = tmp_path / 'job'
  flags = ['--data-dir', data_dir, '--job-dir', job, '--train-batch-size', 8, '--mode', 'train']
  small = ['--network', OWN, '--inception-width', 0.01]
  succeeded(run_here(*flags, *small, '--train-steps', 1))
  config = json.loads((job / 'config.json').read_text())
  (job / 'config.json').write_text(json.dumps({**config, 'network': 'inception'}))
  said = refused(run_here(*flags, '--train-steps', 2))
  assert f'its network, inception, is an example since version 2; give --network {OWN}' in said
  assert succeeded(run_here(*flags, *small, '--train-steps', 2))['global_step'] == 2
  assert json.loads((job / 'config.json').read_text())['network'] == OWN
