"""Which callbacks a process has; what ends a training early, and whether that still holds later."""

import dataclasses

import pytest
from outcome import events, refused, succeeded

from cifar10.callbacks import registry, validation
from cifar10.callbacks.base import Evaluation, Step
from cifar10.cluster import roles
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tf_config import Cluster
from cifar10.job import control_requests, metrics_log, stop_record
from cifar10.job import run as job_run
from cifar10.options.hparams import from_values
from cifar10.options.run_options import RunOptions

ALWAYS = {'BestCheckpoint', 'Metrics', 'EarlyStopping', 'Control', 'Progress'}
CLUSTER = {name: ('a:1',) for name in ('chief', 'worker', 'ps', 'evaluator')}


@pytest.fixture
def run(tmp_path):
  """A process that trains, its task and the minutes before it chosen by the test."""

  def make(task='', minutes=0.0, **options):
    options = RunOptions(job_dir=str(tmp_path), data_dir=str(tmp_path), num_gpus=0, **options)
    role = roles.Role(Cluster(CLUSTER, task) if task else Cluster(), options, SignalMonitor())
    made = job_run.begin(from_values({}), options, role)
    return dataclasses.replace(made, seconds_before=60 * minutes)

  return make


@pytest.mark.parametrize(
  ('task', 'options', 'expected'),
  [
    ('', {}, ALWAYS),
    ('', {'keep_best': 0}, ALWAYS - {'BestCheckpoint'}),
    ('worker', {}, {'Progress'}),
    ('evaluator', {}, ALWAYS - {'Control'}),
  ],
)
def test_a_callback_is_made_if_it_has_something_to_do(run, task, options, expected):
  assert {type(each).__name__ for each in registry.make_all(run(task, **options))} == expected


def hear(run, *accuracies, split='validation', on_the_way=True):
  """A callback hears of these evaluations, beside the test set's and other views'."""
  callback = validation.EarlyStopping(run)
  for accuracy in accuracies:
    step = len(metrics_log.read(run.job_dir)) // 3  # A later one each time.
    for subset, found in (('eval', 0.9), (split, accuracy), (split, 0.8)):
      metrics_log.append(run.job_dir, 'evaluate', step, 'chief 0', subset=subset, accuracy=found)
    result = {'accuracy': accuracy}
    callback.on_evaluate_end(Evaluation(step, split, 'c', result, [[1]], on_the_way))


@pytest.mark.parametrize(
  ('options', 'before', 'last', 'reason'),
  [
    ({'stop_at_accuracy': 0.9}, [0.8999], 0.9, ('stop_at_accuracy', 0.9)),
    # An equal one is no gain.
    ({'stop_without_gain': 2}, [0.5, 0.4, 0.6, 0.6], 0.3, ('stop_without_gain', 2)),
  ],
)
def test_evaluations_end_it(run, options, before, last, reason):
  process = run(**options)
  hear(process, *before)
  assert process.stop_reason is None
  hear(process, last)
  assert process.stop_reason[::2] == reason


@pytest.mark.parametrize(('split', 'on_the_way'), [('eval', True), ('validation', False)])
def test_the_test_set_and_the_final_evaluation_end_nothing(run, split, on_the_way):
  process = run(stop_at_accuracy=0.1, stop_without_gain=1)
  hear(process, 0.9, 0.9, split=split, on_the_way=on_the_way)
  assert process.stop_reason is None


@pytest.mark.parametrize(
  ('at', 'ended', 'reason'),
  [
    (1, [], ('stop_without_gain', 1)),
    (0, [], None),  # Steps 1 and 2 are given up.
    (1, ['train_steps'], ('stop_without_gain', 1)),
    (1, ['stop_without_gain'], None),  # Lifted since.
  ],
)
def test_a_resumed_training_judges_the_evaluation_that_it_stands_at(run, at, ended, reason):
  hear(run(), 0.5, 0.4, 0.3)
  process = run(stop_without_gain=1)
  for each in ended:
    metrics_log.append(process.job_dir, 'end', at, 'chief 0', reason=each)
  process.step = at
  validation.EarlyStopping(process).judge_again()
  assert (process.stop_reason and process.stop_reason[::2]) == reason


@pytest.mark.parametrize(('minutes', 'ends'), [(1.9, False), (2.0, True)])
def test_minutes_end_it(run, minutes, ends):
  process = run(max_minutes=2.0, minutes=minutes)
  validation.EarlyStopping(process).on_step_end(Step(1, {}))
  assert bool(process.stop_reason) == ends


def test_an_evaluator_asks_the_chief_until_it_has_ended(run, tmp_path):
  """One that took the request may have been killed before it ended the job."""
  process = run('evaluator', stop_at_accuracy=0.5)
  for heard in (0.75, 0.8):
    hear(process, heard)
    [(_, order, reason)] = control_requests.take(str(tmp_path))
    assert (order, reason[::2]) == ('stop', ('stop_at_accuracy', heard))


@pytest.mark.parametrize(
  ('reason', 'options', 'holds'),
  [
    (('stop_at_accuracy', 'm', 0.9), {'stop_at_accuracy': 0.9}, True),
    (('stop_at_accuracy', 'm', 0.9), {'stop_at_accuracy': 0.91}, False),
    (('max_minutes', 'm', 60.2), {}, False),
    (('control', 'm', 0), {}, True),
  ],
)
def test_an_end_holds_as_long_as_its_reason(tmp_path, reason, options, holds):
  stop_record.write(str(tmp_path), stop_record.StopReason(*reason), 7)
  read, _ = found = stop_record.read(str(tmp_path))
  assert found == (stop_record.StopReason(*reason), 7)
  assert stop_record.holds(read, RunOptions(job_dir='j', **options)) == holds
  stop_record.lift(str(tmp_path))
  assert stop_record.read(str(tmp_path)) is None


def test_a_rule_ends_a_job_until_it_is_lifted(train, tmp_path):
  """An end without a checkpoint, as here at first, holds no more."""
  (tmp_path / 'job').mkdir()
  stop_record.write(str(tmp_path / 'job'), stop_record.StopReason('stop_at_accuracy', 'm', 0.9), 7)
  rule = ['--train-steps', 6, '--eval-every-steps', 1, '--stop-at-accuracy', 0]
  ended = succeeded(train(*rule))
  assert (ended['global_step'], ended['subset']) == (1, 'eval')
  [end] = events(tmp_path / 'job', 'end')
  assert ended['ended_by'] == end['reason'] == 'stop_at_accuracy'
  again = train(*rule)
  assert succeeded(again)['global_step'] == 1
  assert 'it goes on with a higher --stop-at-accuracy, or without it' in again.stderr
  on = train('--train-steps', 2)
  assert 'that no longer holds' in on.stderr
  went_on = succeeded(on)
  assert (went_on['global_step'], went_on['ended_by']) == (2, 'train_steps')


def test_no_split_chooses_that_is_trained_on(train, tmp_path):
  more = ['--train-on', 'train+validation', '--subset', 'validation']
  result = train(*more)
  succeeded(result)
  assert 'no best/: with --train-on train+validation no split is left' in result.stderr
  assert not (tmp_path / 'job' / 'best').exists()
  assert '--stop-at-accuracy 0.5' in refused(train(*more, '--stop-at-accuracy', 0.5))
