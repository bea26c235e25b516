"""Batch norm's moving averages warm up: values by hand, in which jobs, and in clusters."""

import json

import numpy as np
import pytest
import tensorflow as tf
from graphs import after_steps
from outcome import succeeded
from outside_parts import one_image
from recomputed import assert_equal, variables
from tasks import ALL_REDUCE, Tasks

from cifar10 import plan
from cifar10.job import metrics_log
from cifar10.training import evaluator, towers
from model_base import Layers


@pytest.mark.parametrize(
  ('decay', 'means', 'variances'),
  [
    # Of mean 4 and variance (1 + 1) / (2 - 1) = 2, from 0 and 1, with 1/10, 2/11 and 3/12:
    # 0.9 * 4, (2 * 3.6 + 9 * 4) / 11, ...; 0.1 + 0.9 * 2, (2 * 1.9 + 9 * 2) / 11, ...
    (0.999, [3.6, 3.927273, 3.981818], [1.9, 1.981818, 1.995455]),
    (0.15, [3.6, 3.94, 3.991], [1.9, 1.985, 1.99775]),  # From step 1 on 0.15.
    (0.0, [4, 4, 4], [2, 2, 2]),
  ],
)
def test_three_steps_by_hand(graph, decay, means, variances):
  step = tf.compat.v1.train.get_or_create_global_step()
  network = Layers(True, 'channels_last', towers.warmed_up(decay, step.read_value()), 1e-5)
  network._batch_norm(tf.constant([3.0, 5.0], shape=[2, 1, 1, 1]))
  averages = [v for v in tf.compat.v1.global_variables() if 'moving' in v.op.name]
  with tf.control_dependencies(graph.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)):
    apply = step.assign_add(1)
  found = np.reshape(after_steps(apply, averages, 3), [3, 2])
  np.testing.assert_allclose(np.transpose(found), [means, variances], rtol=1e-6)


# The network does not learn: its convolution says the same of each batch.
STILL = ['--train-steps', 3, '--train-batch-size', 32]
STILL += ['--source', 'outside_parts:one_image', '--examples-per-epoch', 32]
STILL += ['--no-use-distortion-for-training', '--mode', 'train', '--learning-rate', 1e-30]
STILL += ['--save-every-steps', 1, '--keep-checkpoints', 9, '--eval-every-steps', 100]
MOVING = 'tiny/batch_norm/moving_'


def check(job_dir, ways=(0.9, 1 - 0.1 * 2 / 11, 1 - 0.1 * 2 / 11 * 3 / 12), suffix=''):
  """After each step the averages are so far on their ways to what the layer makes."""
  kernel, (image, _) = variables(job_dir, 0)['tiny/conv/kernel'], next(one_image())
  padded = np.pad(image / np.float32(128) - 1, [(1, 0), (1, 0), (0, 0)])[np.newaxis]
  convolved = tf.nn.conv2d(padded, kernel, 4, 'VALID').numpy()
  mean, variance = convolved.mean((0, 1, 2)), convolved.var((0, 1, 2))
  assert max(np.abs(mean).max(), np.abs(variance - 1).max()) > 0.2
  for step, way in enumerate(ways, 1):
    found = variables(job_dir, step)
    np.testing.assert_allclose(found[f'{MOVING}mean{suffix}'], way * mean, atol=2e-3)
    expected = 1 + way * (variance - 1)
    np.testing.assert_allclose(found[f'{MOVING}variance{suffix}'], expected, atol=2e-3)


@pytest.mark.parametrize('more', [[], ['--num-cpu-towers', 2]])
def test_one_process(train, tmp_path, more):
  succeeded(train(*STILL, *more))
  check(tmp_path / 'job')


@pytest.mark.cluster
@pytest.mark.parametrize('more', [[], ['--sync'], ALL_REDUCE], ids=['async', 'sync', 'reduce'])
def test_clusters(data_dir, tmp_path, monkeypatch, more):
  """An asynchronous one's chief is alone with its server, so that its steps are its own.

  Each process in which TensorFlow's own train_and_evaluate runs adds a line.
  """
  monkeypatch.setenv('COUNTED_RUNS', str(tmp_path / 'runs'))
  counts = {'num_workers': int(bool(more)), 'num_ps': int(more != ALL_REDUCE)}
  flags = ['--data-dir', data_dir, '--job-dir', tmp_path / 'job', *STILL, *more]
  flags += ['--network', 'counted_runs:Tiny', '--mode', 'train_and_evaluate']
  with Tasks(tmp_path / 'job', flags, **counts) as tasks:
    tasks.start()
    tasks.succeeded()
  check(tmp_path / 'job')
  ran = sorted((tmp_path / 'runs').read_text().splitlines())
  assert ran == ['chief 0', 'worker 0'][: 1 + counts['num_workers']]


def test_lookahead_and_the_average_of_the_weights(train, tmp_path):
  """After step 1 of 3 lookahead takes 1 - 0.95 / 27 of 0.9, and --ema-decay 9/11 of that."""
  succeeded(train(*STILL, '--lookahead-steps', 1, '--ema-decay', 0.9))
  way = 0.9 * (1 - 0.95 / 27)
  check(tmp_path / 'job', [way], '/slow')
  check(tmp_path / 'job', [way])
  check(tmp_path / 'job', [way * 9 / 11], '/ExponentialMovingAverage')


@pytest.mark.parametrize(
  ('flags', 'warms_up'),
  [
    ({}, True),
    ({'batch_norm_decay': 0.5, 'network': 'fastnet'}, True),
    ({'recipe': 'fast94'}, False),
    ({'recipe': 'classic'}, False),
    ({'warm_start_from': ('resnet20',), 'num_layers': 20}, False),
  ],
)
def test_which_new_jobs_do(tmp_path, flags, warms_up):
  given = {'data_dir': str(tmp_path), 'job_dir': str(tmp_path / 'job'), **flags}
  assert plan.check(given).hparams.batch_norm_warmup == warms_up


def test_a_job_goes_on_as_it_began(run_here, data_dir, tmp_path, old_job):
  """An old one without, though a new one with its flags does; and a new one exactly."""
  run = ['--data-dir', data_dir, '--train-batch-size', 16, '--mode', 'train', '--deterministic']
  succeeded(run_here(*run, '--job-dir', old_job, '--train-steps', 9))
  run += ['--network', 'tiny_network:Tiny', '--num-intra-threads', 1, '--num-inter-threads', 1]
  for name, lengths in (('whole', [6]), ('parts', [2, 6])):
    for steps in lengths:
      succeeded(run_here(*run, '--job-dir', tmp_path / name, '--train-steps', steps))
  assert_equal(tmp_path / 'whole', tmp_path / 'parts', 6)
  configs = [(job / 'config.json').read_text() for job in (old_job, tmp_path / 'parts')]
  assert [json.loads(text)['batch_norm_warmup'] for text in configs] == [False, True]


@pytest.mark.parametrize(
  ('classes', 'trained', 'accuracy', 'is_low'),
  [
    # Above the chance of 0.1: 0.115 of 0.37, 0.56 of 0.83, 0.19 of 0.37; of 0.01: 0.24 of 0.46.
    (10, [0.1, 0.47], 0.215, True),
    (10, [0.93], 0.66, False),
    (10, [0.47], 0.29, False),
    (100, [0.47], 0.25, False),
    (10, [0.2], 0.07, False),  # As few images may say by chance.
    (10, [], 0.1, False),
  ],
)
def test_what_is_far_below_the_training(classes, trained, accuracy, is_low):
  events = [{'event': 'train', 'step': step, 'accuracy': each} for step, each in enumerate(trained)]
  events.append({'event': 'train', 'step': 8})  # As another program writes.
  events.append({'event': 'train', 'step': 9, 'accuracy': 1.0})  # After the evaluation.
  said = evaluator.low_accuracy(events, 8, accuracy, classes)
  assert bool(said) == is_low
  assert said.count(f'{trained[-1]:.4f}' if is_low else 'far') == is_low


def test_the_log_says_so_once(run_here, data_dir, old_job):
  """And the report: tests/reporting/test_command.py."""
  metrics_log.append(str(old_job), 'train', 8, 'chief 0', accuracy=0.99)
  result = run_here('--data-dir', data_dir, '--job-dir', old_job, '--mode', 'evaluate')
  assert result.stderr.count('is far below the accuracy in training, 0.9900: it may be') == 1
