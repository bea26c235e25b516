"""What TensorFlow's old `cifar10_estimator` called, called as it did: names, arguments, results."""

import argparse

import pytest
import tensorflow as tf
from outcome import succeeded
from recomputed import assert_equal

import cifar10
import model_base
from cifar10.core import devices
from cifar10.core.errors import InputError
from cifar10.options.hparams import HParams, from_params, from_values
from estimator_again import estimator as tf_estimator

# All that the old main put into `params`, and `is_chief`; first what are no hyper-parameters.
PARAMS = dict.fromkeys(('is_chief', 'data_dir', 'job_dir', 'variable_strategy', 'num_gpus'), 'any')
PARAMS |= dict.fromkeys(('sync', 'num_workers', 'num_intra_threads', 'num_inter_threads'), 'any')
PARAMS |= dict.fromkeys(('data_format', 'log_device_placement'), 'any')
PARAMS |= {'num_layers': 8, 'train_steps': 100, 'train_batch_size': 8, 'eval_batch_size': 10}
PARAMS |= {'learning_rate': 0.1, 'momentum': 0.9, 'weight_decay': 2e-4}
PARAMS |= {'batch_norm_decay': 0.997, 'batch_norm_epsilon': 1e-5}
PARAMS |= {'use_distortion_for_training': True}


@pytest.mark.slow
def test_a_hundred_steps_by_hand_are_those_of_the_command(run_here, data_dir, tmp_path):
  """An Estimator of model function and input function, which is stopped and goes on."""
  threads = ['--num-intra-threads', 1, '--num-inter-threads', 1]
  flags = ['--num-layers', 8, '--train-batch-size', 8, '--train-steps', 100, '--num-gpus', 0]
  flags += ['--recipe', 'classic']  # Without the warm-up of moving averages, as the old program.
  where = ['--data-dir', data_dir, '--job-dir', tmp_path / 'command']
  evaluated = succeeded(run_here(*where, *flags, *threads))
  params = argparse.Namespace(**PARAMS)
  for steps in (60, 100):
    config = tf_estimator.RunConfig(
      model_dir=str(tmp_path / 'by hand'), tf_random_seed=0, session_config=devices.session_config()
    )
    model_fn = cifar10.get_model_fn(0, 'CPU', 1)
    estimator = tf_estimator.Estimator(model_fn, config=config, params=params)
    estimator.train(
      lambda: cifar10.input_fn(data_dir, 'train', 1, params.train_batch_size, True),
      hooks=[cifar10.ExamplesPerSecondHook(params.train_batch_size, every_n_steps=10)],
      max_steps=steps,
    )
  assert_equal(tmp_path / 'command', tmp_path / 'by hand', 100)
  for shards in (1, 2):  # Three batches of 23 images, and one of which a tower has none.
    measured = estimator.evaluate(lambda n=shards: cifar10.input_fn(data_dir, 'eval', n, 23))
    assert measured['accuracy'] == pytest.approx(evaluated['accuracy'], abs=1e-6)


def test_params_are_hyper_parameters_a_dict_or_an_object():
  expected = from_values(
    {'num_layers': 8, 'train_steps': 100, 'train_batch_size': 8, 'eval_batch_size': 10}
  )
  assert from_params(PARAMS) == from_params(argparse.Namespace(**PARAMS)) == expected
  assert from_params(expected) is expected
  assert from_params({}) == HParams()
  with pytest.raises(InputError, match='learning_rat is no option'):
    from_params({'learning_rat': 0.1})


def test_a_data_set(data_dir, graph):
  data_set = cifar10.Cifar10DataSet(data_dir, 'train', True)
  assert data_set.get_filenames() == [f'{data_dir}/train.tfrecords']
  assert data_set.num_examples_per_epoch() == 256
  known = [cifar10.Cifar10DataSet.num_examples_per_epoch(each) for each in ('train', 'validation')]
  assert known == [40_000, 10_000]
  assert cifar10.Cifar10DataSet.num_examples_per_epoch() == 40_000
  own = type('Own', (cifar10.Cifar10DataSet,), {'num_examples_per_epoch': lambda self: 7})
  assert own(data_dir).num_examples_per_epoch() == 7
  with pytest.raises(ValueError, match="'test' is not one of"):
    cifar10.Cifar10DataSet.num_examples_per_epoch('test')
  images, labels = tf.compat.v1.data.make_one_shot_iterator(data_set.make_batch(4)).get_next()
  assert (images.shape, labels.shape) == ([4, 32, 32, 3], [4])


@pytest.mark.parametrize('input_data_format', ['channels_last', 'channels_first'])
def test_a_network(graph, input_data_format):
  network = cifar10.ResNetCifar10(8, False, 0.997, 1e-5, 'channels_last')
  images = tf.zeros([2, 32, 32, 3] if input_data_format == 'channels_last' else [2, 3, 32, 32])
  assert network.forward_pass(images, input_data_format).shape == [2, 10]


class OwnResNet(model_base.ResNet):
  def forward_pass(self, x):
    x = self._conv(x, 3, 4, 1)
    x = self._relu(self._batch_norm(x))
    x = self._residual_v1(x, 3, 4, 8, 2)
    x = self._residual_v1(x, 3, 8, 8, 1)
    return self._fully_connected(self._global_avg_pool(x), 11)


def test_layers_without_names_do_not_collide(graph):
  network = OwnResNet(True, 'channels_last', 0.9, 1e-5)
  assert network.forward_pass(tf.zeros([2, 8, 8, 3])).shape == [2, 11]
  names = [variable.op.name for variable in tf.compat.v1.trainable_variables()]
  assert len(names) == len(set(names)) == 3 + 2 * 6 + 2
  assert {'conv/kernel', 'residual_v1/conv1/kernel', 'residual_v1_1/conv1/kernel'} <= {*names}


def test_a_device_setter(graph):
  def devices(setter):
    with tf.compat.v1.device(setter):
      weights = [tf.compat.v1.get_variable(name, [size]) for name, size in (('a', 9), ('b', 3))]
      return [each.device for each in weights], (tf.constant(1.0) + 1).device

  assert devices(cifar10.local_device_setter(worker_device='/gpu:1')) == (
    ['/device:CPU:0'] * 2,
    '/device:GPU:1',
  )
  with tf.compat.v1.variable_scope('more'):
    setter = cifar10.local_device_setter(2, 'gpu', '/gpu:0')
    assert devices(setter) == (['/device:GPU:0', '/device:GPU:1'], '/device:GPU:0')
  with tf.compat.v1.variable_scope('own'):
    own = {'ps_ops': ['VarHandleOp'], 'ps_strategy': lambda op: 3}
    setter = cifar10.local_device_setter(ps_device_type='gpu', **own)
    assert devices(setter) == (['/device:GPU:3'] * 2, '/device:CPU:0')


@pytest.mark.parametrize('every', [{'every_n_steps': 2}, {'every_n_secs': 1e-9}])
def test_examples_a_second(graph, caplog, every):
  """Two steps a line: of 5 examples each, in 4 seconds and then in 1."""
  caplog.set_level('INFO', 'tensorflow')  # As `tf.logging.set_verbosity` does in old programs.
  count = tf.compat.v1.train.create_global_step().assign_add(1)
  hook = cifar10.ExamplesPerSecondHook(5, **every)
  hook._log_and_record(2, 4.0, 2)
  hook._log_and_record(2, 1.0, 1234)
  assert caplog.messages[-2:] == [  # Before them TensorFlow may say that its hooks are old.
    'Average examples/sec: 2.5 (2.5), step = 2',
    'Average examples/sec: 4 (10), step = 1,234',
  ]
  caplog.clear()
  with tf.compat.v1.train.SingularMonitoredSession(hooks=[hook]) as session:
    for _ in range(5):
      session.run(count)
  assert sum('Average' in line for line in caplog.messages) >= 2
