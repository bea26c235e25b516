"""What jobs write while they train: events, pictures, traces; and the best checkpoint."""

import json

import numpy as np
import pytest
import tensorflow as tf
from outcome import events, refused, succeeded

from cifar10.callbacks import metrics
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
  assert (end['reason'], end['step'], line['ended_by']) == ('train_steps', 110, 'train_steps')
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


@pytest.mark.slow
def test_each_step_that_was_asked_for_has_a_trace(run_here, data_dir, tmp_path):
  """Two towers'; the first step among them."""
  more = ['--mode', 'train', '--num-cpu-towers', 2, '--profile-steps', '1:2', '--train-steps', 4]
  succeeded(run_here(*flags(data_dir, tmp_path, *more)))
  traces = sorted((tmp_path / 'profile').glob('timeline-*.json'))
  assert [path.name for path in traces] == ['timeline-1.json', 'timeline-2.json']
  for path in traces:
    traced = json.loads(path.read_text())['traceEvents']
    named = {e['args']['name'] for e in traced if 'MatMul' in e['name'] and e['ph'] == 'X'}
    # Forward, by the weights and by the input, of two towers.
    assert len({name for name in named if 'fully_conn' in name}) == 3 * 2


@pytest.mark.parametrize('value', ['110:100', '5', '1:101'])
def test_what_cannot_be_profiled_is_refused(run_here, data_dir, tmp_path, value):
  more = ['--train-steps', 200, '--profile-steps', value]
  said = refused(run_here(*flags(data_dir, tmp_path / 'job', *more)), at_once=True)
  assert '--profile-steps' in said
  assert not (tmp_path / 'job').exists()


def draw(matrix, classes=('cat', 'dog')):
  return np.asarray(metrics.confusion_picture(np.array(matrix), classes))


def cells(picture):
  """The rows and columns at which the cells of two classes begin, and the length of a side."""
  coloured = picture.max(2) != picture.min(2)  # Beside and above them all is black or white.
  left, top = (int(np.flatnonzero(coloured.any(axis))[0]) for axis in (0, 1))
  side = (picture.shape[1] - left) // 2
  return (top, top + side), (left, left + side), side


def test_rows_are_true_classes_and_columns_predicted_ones():
  """What changes when cats are taken for dogs is one cell; it is the darker, the more are.

  9 of 10, 1 of 10, and of no examples at all: from 255 to 8, 48, 107, 255 - 0.9 x 247 = 32.7.
  """
  before, picture = draw([[9, 0], [5, 5]]), draw([[9, 1], [5, 5]])
  (top, _), (_, right), side = cells(picture)
  rows, columns = np.nonzero((before[:, right:] != picture[:, right:]).any(2))
  assert (rows.min(), rows.max(), columns.min()) == (top, top + side - 1, 0)
  picture = draw([[9, 1], [0, 0]])
  tops, lefts, _ = cells(picture)
  corners = [picture[top + 1, left + 1].tolist() for top in tops for left in lefts]
  assert corners == [[33, 69, 122], [230, 234, 240], [255] * 3, [255] * 3]


@pytest.mark.parametrize(('num_classes', 'width'), [(100, 3300), (300, 301)])
def test_many_classes_fit_whatever_their_names(num_classes, width):
  names = [f'猫\n{n}' + 'a' * 50 for n in range(num_classes)]
  assert max(draw(np.eye(num_classes, dtype=int) * 100, names).shape) < width
