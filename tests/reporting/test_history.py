"""What is read from a job's metrics.jsonl, and from the event files of an older one."""

import os

import pytest
import tensorflow as tf
from outcome import succeeded

import cifar10.report
from cifar10.core.errors import StorageError
from cifar10.job import metrics_log
from cifar10.reporting import history


def test_curves_are_by_split(make_job):
  found = history.read(make_job())
  assert found.curve('train', 'accuracy') == [(2, 0.1), (4, 0.2), (6, 0.3), (8, 0.4)]
  assert found.curve('evaluate', 'accuracy', 'validation') == [(4, 0.25), (8, 0.5)]
  assert found.curve('evaluate', 'accuracy', 'eval') == []
  assert found.splits() == ['validation']
  assert (found.last_step, found.seconds) == (8, 80)


def test_moments_name_a_restart_and_what_was_lost(make_job):
  moments = history.read(make_job()).moments()
  assert [(each.step, each.what) for each in moments] == [
    (0, 'started'),
    (4, 'went on'),
    (5, 'control: learning_rate=0.05'),
    (8, 'ended (train_steps)'),
  ]
  assert moments[0].time == '2027-01-15 08:00:00'  # 1.8e9 seconds
  assert moments[1].detail.startswith('the run before has no recorded end')
  assert '1 steps' in moments[1].detail


def test_a_run_that_wrote_its_end_was_not_killed(tmp_path):
  for event in (
    {'event': 'start', 'step': 0},
    {'event': 'end', 'step': 4, 'reason': 'SIGTERM'},
    {'event': 'start', 'step': 4, 'resumed': True},
  ):
    metrics_log.append(str(tmp_path), event)
  *_, last = history.read(str(tmp_path)).moments()
  assert (last.what, last.detail) == ('went on', '')


def test_a_command_of_lost_steps_made_none(tmp_path):
  """Killed after a command at step 40, gone on from step 20: commands and starts are kept."""
  for event, step in (('start', 0), ('start', 35), ('control', 40), ('start', 20), ('train', 30)):
    metrics_log.append(str(tmp_path), {'event': event, 'step': step})
  assert history.read(str(tmp_path)).last_step == 30


def test_other_tasks_start_no_run(tmp_path):
  for task in ('chief 0', 'evaluator 0'):
    metrics_log.append(str(tmp_path), {'event': 'start', 'step': 0, 'task': task, 'time': 1})
  assert len(history.read(str(tmp_path)).moments()) == 1


def test_numbers_that_are_none_are_left_out(tmp_path):
  for step, loss in enumerate((1.0, None, 'high', True, 2.0)):
    metrics_log.append(str(tmp_path), {'event': 'train', 'step': step, 'loss': loss})
  assert history.read(str(tmp_path)).curve('train', 'loss') == [(0, 1.0), (4, 2.0)]


def write(folder, *steps_and_values):
  with tf.Graph().as_default():
    writer = tf.compat.v1.summary.FileWriter(str(folder))
    for step, values in steps_and_values:
      summary = tf.compat.v1.Summary()
      for tag, value in values.items():
        summary.value.add(tag=tag, simple_value=value)
      writer.add_summary(summary, step)
    writer.close()


@pytest.mark.parametrize('folder', ['validation', 'eval_validation'])  # Newer and older jobs'.
def test_without_metrics_a_job_has_its_event_files(tmp_path, folder):
  write(tmp_path, (100, {'loss': 2.0, 'examples_per_second': 50.0, 'gradient_norm': 1.0}))
  evaluation = {'accuracy': 0.5, 'accuracy/a cat': 0.25, 'cross_entropy': 1.0}
  write(tmp_path / folder, (100, {**evaluation, 'weight_penalty': 0.5, 'loss': 9.0}))
  found = history.read(str(tmp_path))
  assert found.is_from_event_files
  assert found.curve('train', 'images_per_second') == [(100, 50.0)]
  [evaluated] = found.of('evaluate')
  assert evaluated['subset'] == 'validation'
  assert evaluated['accuracy_by_class'] == {'a cat': 0.25}
  assert evaluated['loss'] == 1.5  # Not the Estimator's, a mean over batches.


def test_without_metrics_a_job_of_today_has_the_same_numbers(run_here, data_dir, tmp_path):
  """Those that a real training wrote for TensorBoard."""
  job, page = str(tmp_path / 'job'), tmp_path / 'report.html'
  flags = ['--num-layers', 8, '--train-batch-size', 16, '--eval-batch-size', 64, '--tta', 'mirror']
  flags += ['--train-steps', 4, '--eval-every-steps', 2, '--data-dir', data_dir]
  measured = succeeded(run_here(*flags, '--job-dir', job))
  recorded = history.read(job)
  os.remove(os.path.join(job, metrics_log.NAME))
  found = history.read(job)
  curves = [('train', name, None) for name in history._TRAINING]
  curves += [
    ('evaluate', name, split) for name in history._EVALUATION for split in ('validation', 'eval')
  ]
  for each in curves:
    steps, numbers = zip(*recorded.curve(*each))
    expected = about(numbers, 0.2 if each[1] == 'images_per_second' else 1e-5)  # By two clocks.
    assert tuple(zip(*found.curve(*each))) == (steps, expected), each
  assert found.last_evaluation('eval')['accuracy_by_class'] == about(measured['accuracy_by_class'])
  ran = run_here(job, '--table', '--out', page, command=cifar10.report)
  [reported] = succeeded(ran)['jobs']
  # Of how many examples is not known, and so no interval.
  for name in ('accuracy', 'accuracy_top5', 'accuracy_without_tta'):
    expected = {'value': about(measured[name]), 'low': None, 'high': None}
    assert reported['evaluation'][name] == expected
  assert '<span>test accuracy</span>' in page.read_text(encoding='utf-8')


def about(numbers, rel=1e-5):
  """As rounded to six digits, or to float32."""
  return pytest.approx(numbers, rel=rel, abs=1e-6)


def test_half_an_event_file_is_read_to_where_it_ends(tmp_path):
  write(tmp_path, (100, {'loss': 2.0}), (200, {'loss': 1.0}))
  [path] = tmp_path.iterdir()
  path.write_bytes(path.read_bytes()[:-5])
  assert [event['step'] for event in history.read_event_files(str(tmp_path))] == [100]


def test_folders_in_place_of_files(tmp_path):
  (tmp_path / 'events.out.tfevents.1').mkdir()
  assert history.read(str(tmp_path)).events == []
  (tmp_path / metrics_log.NAME).mkdir()
  with pytest.raises(StorageError, match=r'metrics.jsonl: Is a directory\); move it away'):
    history.read(str(tmp_path))


def test_metrics_come_before_event_files(make_job):
  path = make_job()
  write(path, (3, {'loss': 9.0}))
  assert history.read(path).curve('train', 'loss')[0] == (2, pytest.approx(2.8))
