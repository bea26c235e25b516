"""The average of the weights: values worked out by hand, and recomputed from checkpoints."""

import re

import checkout
import pytest
import tensorflow as tf
from graphs import after_steps, plain_sgd, untrained
from outcome import refused, succeeded
from recomputed import AVERAGED, STEPS, SUFFIX, check_averages, variables

from cifar10 import report
from cifar10.job import variable_files

SMALL = ['--network', 'tiny_network:Tiny', '--train-batch-size', 16, '--eval-batch-size', 32]
ONE_THREAD = ['--num-intra-threads', 1, '--num-inter-threads', 1]


def averages_after(variable, steps, update_ops=(), **hparams):
  """A variable's averages after each of so many updates of w = 10 by gradient 1 and rate 1."""
  _, apply = plain_sgd(update_ops, **hparams)
  [average] = [v for v in tf.compat.v1.global_variables() if v.op.name == variable + SUFFIX]
  assert average not in tf.compat.v1.trainable_variables()
  return after_steps(apply, average, steps)


@pytest.mark.parametrize(
  ('hparams', 'averages'),
  [
    # t = 1: 2/11: (2 * 10 + 9 * 9) / 11 = 101/11 = 9.181818.
    # t = 2: 0.2, as 3/12 is more: 0.2 * 9.181818 + 0.8 * 8 = 8.236364.
    # t = 3: 0.2 * 8.236364 + 0.8 * 7 = 7.247273.
    ({'ema_decay': 0.2}, [9.181818, 8.236364, 7.247273]),
    # At first 2/11, and then 3/12: 9.181818 / 4 + 8 * 3/4.
    ({'ema_decay': 0.999}, [9.181818, 8.295455]),
    # Lookahead comes first, with decay 0.95: w = 0.95 * 10 + 0.05 * 9 = 9.95; (2 * 10 + 9 w) / 11.
    ({'lookahead_steps': 1, 'train_steps': 1, 'ema_decay': 0.5}, [9.959091]),
  ],
)
def test_steps_by_hand(graph, hparams, averages):
  """w is 10, and then 9, 8, 7. The decay is min(decay, (1 + t) / (10 + t))."""
  assert averages_after('w', len(averages), **hparams) == pytest.approx(averages)


@pytest.mark.parametrize('more', [{}, {'lookahead_steps': 1, 'train_steps': 1}])
def test_a_counter_has_no_average(graph, more):
  untrained('seen', tf.constant(0, tf.int64))
  averages_after('w', 1, ema_decay=0.5, **more)
  names = [variable.op.name for variable in tf.compat.v1.global_variables()]
  assert [name for name in names if name.startswith('seen')] == ['seen']


def test_batch_norms_averages_are_averaged_after_their_update(graph):
  """It goes 0 -> 4 -> 8. t = 1: 9/11 * 4 = 3.272727; t = 2: 0.2 * 3.272727 + 0.8 * 8."""
  update = untrained('moving_mean', 0.0).assign_add(4.0, read_value=False)
  averages = averages_after('moving_mean', 2, [update], ema_decay=0.2)
  assert averages == pytest.approx([3.272727, 7.054545])


@pytest.fixture(scope='module')
def job(run_shared, data_dir, tmp_path_factory):
  """A job dir with averages, and what the run that used them printed."""
  folder = str(tmp_path_factory.mktemp('jobs') / 'job')
  flags = ['--data-dir', data_dir, '--job-dir', folder, *SMALL, *AVERAGED, *ONE_THREAD]
  return folder, run_shared(*flags, '--train-on', 'train+validation', '--use-ema')


def test_one_process_averages_every_variable_of_the_network(job):
  succeeded(job[1])
  check_averages(job[0])


def test_evaluations_use_the_averages(job, run_here, data_dir, tmp_path):
  """That on the way, which is the last one here, too, that of `evaluate` and that of a report."""
  folder, result = job
  kept, written_by_hand = variables(folder, STEPS), str(tmp_path / 'by_hand')
  averages = {name.removesuffix(SUFFIX): v for name, v in kept.items() if name.endswith(SUFFIX)}
  variable_files.write_checkpoint(written_by_hand, averages, STEPS)
  assert len(re.findall('evaluated at step', result.stderr)) == 1
  trained = succeeded(result)
  assert trained['weights'] == 'ema'
  evaluate = ['--data-dir', data_dir, '--job-dir', folder, '--mode', 'evaluate']
  by_hand = succeeded(run_here(*evaluate, '--checkpoint', written_by_hand))
  last = succeeded(run_here(*evaluate))
  assert 'weights' not in last
  for line in (trained, succeeded(run_here(*evaluate, '--use-ema'))):
    assert line['global_step'] == STEPS
    for key in ('cross_entropy', 'loss'):
      assert line[key] == pytest.approx(by_hand[key], rel=1e-5)
    # Rounding may decide about one image in 70.
    assert line['accuracy'] == pytest.approx(by_hand['accuracy'], abs=1.5 / 70)
  assert abs(last['cross_entropy'] - by_hand['cross_entropy']) > 1e-4
  [reported] = succeeded(run_here(folder, '--table', command=report))['jobs']
  assert reported['evaluation']['weights'] == 'ema'
  found = reported['evaluation']['cross_entropy']['value']
  assert found == pytest.approx(by_hand['cross_entropy'], rel=1e-4)


@pytest.mark.parametrize('mode', ['evaluate', 'predict', 'export'])
def test_a_job_without_averages_has_none_to_use(run_here, data_dir, old_job, mode):
  images = ['--images', f'{checkout.ROOT}/tests/hostile/grey.png'] if mode == 'predict' else []
  where = ['--data-dir', data_dir, '--job-dir', old_job, '--mode', mode, *images]
  line = refused(run_here(*where, '--use-ema'), at_once=True)
  assert re.search('^error: .*--use-ema.*trained without --ema-decay; leave', line)
  assert not (old_job / 'export').exists()
