"""Whole jobs: what they write while they train, how they end early, and how they go on."""

import json
import re

import pytest
import tensorflow as tf
from outcome import events, refused, succeeded

from cifar10.job import checkpoints

SMALL = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 64]


def flags(data_dir, job_dir, *more):
  return ['--data-dir', data_dir, '--job-dir', job_dir, *SMALL, *more]


def steps(job_dir, name):
  return [event['step'] for event in events(job_dir, name)]


@pytest.mark.slow
def test_a_job_writes_down_what_happens(run_here, data_dir, tmp_path):
  """Two events of training, at 100 and at the last step; 256 images make an epoch of 32 steps."""
  job = tmp_path / 'job'
  more = ['--train-steps', 110, '--eval-every-steps', 60, '--save-every-steps', 40]
  line = succeeded(run_here(*flags(data_dir, job, *more)))
  assert steps(job, 'start') == [0]
  assert steps(job, 'train') == [100, 110]
  assert steps(job, 'save') == [0, 40, 60, 80, 110]
  found = [(event['subset'], event['step']) for event in events(job, 'evaluate')]
  assert found == [('validation', 60), ('validation', 110), ('eval', 110)]
  [end] = events(job, 'end')
  assert (end['reason'], end['step']) == ('train_steps', 110)
  assert line['ended_by'] == 'train_steps'
  last = events(job, 'evaluate')[-1]
  assert last['accuracy'] == line['accuracy']
  matrix = last['confusion_matrix']
  assert [sum(row) for row in matrix] == [7] * 10  # 70 images of ten classes.
  assert sum(matrix[i][i] for i in range(10)) / 70 == pytest.approx(line['accuracy'], abs=1e-6)
  assert events(job, 'train')[0]['epoch'] == 100 / 32
  assert events(job, 'train')[1]['seconds'] > events(job, 'train')[0]['seconds'] > 0
  [start] = events(job, 'start')
  assert start['options']['num_layers'] == 8
  assert (start['examples_per_epoch'], start['examples_per_step']) == (256, 8)
  assert start['versions']['tensorflow'] == tf.__version__


def test_means_are_those_of_the_steps(run_here, data_dir, tmp_path):
  """One event after five steps: the mean of what five jobs with a last step each would print."""
  job = tmp_path / 'job'
  line = ['--mode', 'train', '--log-every', 1e-6, '--train-steps', 5]
  result = run_here(*flags(data_dir, job, *line))
  succeeded(result)
  losses = [float(loss) for loss in re.findall(r'step \d of 5  loss (\S+)', result.stderr)]
  assert len(losses) == 5
  [event] = events(job, 'train')
  assert event['loss'] == pytest.approx(sum(losses) / 5, rel=1e-3)


@pytest.mark.slow
def test_the_best_is_kept_and_can_be_evaluated(run_here, data_dir, tmp_path):
  """Also after a restart between; what falls afterwards stays behind."""
  job = tmp_path / 'job'
  train = flags(data_dir, job, '--eval-every-steps', 20, '--keep-checkpoints', 1)
  succeeded(run_here(*train, '--train-steps', 60))
  ruin = ['--learning-rate', 50, '--train-steps', 120]
  succeeded(run_here(*train, *ruin))
  on_the_way = [event for event in events(job, 'evaluate') if event['subset'] == 'validation']
  best = max(on_the_way, key=lambda event: event['accuracy'])  # The first of equals.
  [entry] = checkpoints.read_best(str(job))
  assert (entry['global_step'], entry['accuracy']) == (best['step'], best['accuracy'])
  assert best['accuracy'] > on_the_way[-1]['accuracy']
  evaluate = ['--mode', 'evaluate', '--checkpoint', 'best', '--subset', 'validation']
  again = succeeded(run_here(*flags(data_dir, job, *evaluate)))
  assert (again['accuracy'], again['global_step']) == (entry['accuracy'], entry['global_step'])
  exported = succeeded(run_here('--job-dir', job, '--mode', 'export', '--checkpoint', 'best'))
  assert exported['checkpoint'] == checkpoints.best(str(job))


@pytest.mark.parametrize('subset', [[], ['--subset', 'validation']], ids=['eval', 'validation'])
def test_no_split_chooses_that_is_the_test_set_or_trained_on(run_here, data_dir, tmp_path, subset):
  job = tmp_path / 'job'
  more = ['--train-steps', 4, '--train-on', 'train+validation', *subset]
  result = run_here(*flags(data_dir, job, *more))
  succeeded(result)
  assert 'no best/: with --train-on train+validation no split is left' in result.stderr
  assert not (job / 'best').exists()
  said = refused(run_here(*flags(data_dir, job, *more, '--stop-at-accuracy', 0.5)))
  assert '--stop-at-accuracy 0.5 needs evaluations of the validation split' in said


@pytest.mark.parametrize(
  ('limit', 'lifted'),
  [
    pytest.param(['--stop-at-accuracy', 0], ['--stop-at-accuracy', 1], marks=pytest.mark.long),
    pytest.param(['--stop-without-gain', 1], [], marks=pytest.mark.slow),
    pytest.param(['--max-minutes', 1e-4], ['--max-minutes', 60], marks=pytest.mark.long),
  ],
)
def test_a_rule_ends_a_job_until_it_is_lifted(run_here, data_dir, tmp_path, limit, lifted):
  """A learning rate of almost nothing: sooner or later an evaluation is no gain."""
  job = tmp_path / 'job'
  train = flags(data_dir, job, '--learning-rate', 1e-9, '--eval-every-steps', 2)
  name = limit[0].lstrip('-').replace('-', '_')
  line = succeeded(run_here(*train, '--train-steps', 400, *limit))
  assert (line['ended_by'], line['subset']) == (name, 'eval')
  step = line['global_step']
  assert step < 400
  [end] = events(job, 'end')
  assert (end['reason'], end['step']) == (name, step)

  again = run_here(*train, '--train-steps', 400, *limit)
  assert succeeded(again)['global_step'] == step
  assert f'the job ended at step {step}: ' in again.stderr
  assert f'it goes on with a higher {limit[0]}, or without it' in again.stderr

  on = run_here(*train, '--train-steps', step + 2, *lifted)
  assert (succeeded(on)['global_step'], json.loads(on.stdout)['ended_by']) == (
    step + 2,
    'train_steps',
  )
  assert 'that no longer holds' in on.stderr
