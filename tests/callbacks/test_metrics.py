"""What jobs write while they train: events, curves, pictures, traces; and the best checkpoint."""

import json
import os
import time
import urllib.parse
import urllib.request

import numpy as np
import pytest
import tensorflow as tf
from outcome import events, refused, succeeded

from cifar10.callbacks.metrics import confusion_picture, to_png
from cifar10.data.manifest import CIFAR10
from cifar10.job import checkpoints, metrics_log

SMALL = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 64, '--num-gpus', 0]


def flags(data_dir, job_dir, *more):
  return ['--data-dir', data_dir, '--job-dir', job_dir, *SMALL, *more]


@pytest.fixture(scope='module')
def job(run_main, data_dir, tmp_path_factory):
  """A job that ended at step 110, as if it had been killed there after a checkpoint at step 60.

  It was resumed with the rest of its files as they were, and ended at step 120.
  """
  folder = tmp_path_factory.mktemp('jobs') / 'job'
  train = flags(data_dir, folder, '--eval-every-steps', 60, '--save-every-steps', 40)
  for steps in (110, 120):
    succeeded(run_main(*train, '--train-steps', steps))
    if steps == 110:
      (folder / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-60"\n')
      os.remove(folder / 'model.ckpt-110.index')
  return folder


@pytest.mark.slow
def test_a_job_writes_down_what_happens(job):
  """Two events of training, at 100 and at the last step; 256 images make an epoch of 32 steps."""
  found = [(event['event'], event['step']) for event in metrics_log.read(str(job))]
  before = [('start', 0), ('save', 0), ('save', 40), ('save', 60), ('evaluate', 60)]
  resumed = [('start', 60), ('save', 80), ('train', 100), ('train', 120), ('save', 120)]
  assert found == [*before, *resumed, ('evaluate', 120), ('end', 120), ('evaluate', 120)]
  at_first, start = events(job, 'start')
  assert (at_first['resumed'], start['resumed'], start['steps_lost']) == (False, True, 50)
  assert start['options']['num_layers'] == 8
  assert (start['examples_per_epoch'], start['examples_per_step']) == (256, 8)
  assert start['versions']['tensorflow'] == tf.__version__
  trained, _ = events(job, 'train')
  assert trained['epoch'] == 100 / 32
  assert trained['seconds'] > start['seconds'] > 0
  last = events(job, 'evaluate')[-1]
  matrix = last['confusion_matrix']
  assert [sum(row) for row in matrix] == [7] * 10  # 70 images of ten classes.
  assert sum(matrix[i][i] for i in range(10)) / 70 == pytest.approx(last['accuracy'], abs=1e-6)
  assert (last['subset'], events(job, 'end')[0]['reason']) == ('eval', 'train_steps')


@pytest.fixture(scope='module')
def ask(job, serve_tensorboard):
  """Asks a TensorBoard of the job's parent folder: (path, parameters) -> bytes."""
  with serve_tensorboard('--logdir', str(job.parent)) as address:

    def get(path, **parameters):
      url = f'{address}data/plugin/{path}?{urllib.parse.urlencode(parameters)}'
      with urllib.request.urlopen(url, timeout=30) as response:
        return response.read()

    deadline = time.monotonic() + 60
    while set(json.loads(get('scalars/tags'))) != {'job', 'job/validation', 'job/eval'}:
      assert time.monotonic() < deadline, get('scalars/tags')
      time.sleep(0.5)
    yield get


def curve(ask, run, tag):
  """[step, value] of each point."""
  return [point[1:] for point in json.loads(ask('scalars/scalars', run=run, tag=tag))]


@pytest.mark.slow
def test_accuracy_and_loss_come_first(ask):
  tags = json.loads(ask('scalars/tags'))
  groups = sorted({tag.split('/')[0] for found in tags.values() for tag in found})
  others = ['loss_parts', 'optimizer', 'other_accuracies', 'per_class_accuracy', 'resources']
  assert groups == ['accuracy', 'loss', *others]
  for run in ('job/validation', 'job/eval'):
    assert {'accuracy', 'loss', 'other_accuracies/top5'} <= set(tags[run])
    assert len([tag for tag in tags[run] if tag.startswith('per_class_accuracy/')]) == 10


@pytest.mark.slow
def test_a_resumed_job_is_one_curve_of_the_means_in_metrics_jsonl(job, ask):
  """The first process wrote points at 100 and 110, the second at 100 and 120."""
  trained = events(job, 'train')
  assert [event['step'] for event in trained] == [100, 120]
  named = {'loss': 'loss', 'accuracy': 'accuracy', 'learning_rate': 'optimizer/learning_rate'}
  for name, tag in {**named, 'images_per_second': 'resources/images_per_second'}.items():
    expected = [[event['step'], pytest.approx(event[name], rel=1e-5)] for event in trained]
    assert curve(ask, 'job', tag) == expected
  for tag in ('optimizer/gradient_norm', 'loss_parts/cross_entropy'):
    assert [step for step, _ in curve(ask, 'job', tag)] == [100, 120]
  last = events(job, 'evaluate')[-1]
  assert curve(ask, 'job/eval', 'accuracy')[-1] == [120, pytest.approx(last['accuracy'], abs=1e-6)]


@pytest.mark.slow
def test_the_confusion_matrix_is_a_picture(job, ask):
  last = events(job, 'evaluate')[-1]
  tags = json.loads(ask('images/tags'))
  for run in ('job/validation', 'job/eval'):
    assert set(tags[run]) == {'pictures/confusion_matrix'}
  tag = {'run': 'job/eval', 'tag': 'pictures/confusion_matrix', 'sample': 0}
  listed = json.loads(ask('images/images', **tag))
  assert [picture['step'] for picture in listed] == [110, 120]
  png = ask(f'images/individualImage?{listed[-1]["query"]}&unused')
  matrix = np.array(last['confusion_matrix'])
  assert png == to_png(confusion_picture(matrix, CIFAR10.classes))


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
  return np.asarray(confusion_picture(np.array(matrix), classes))


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
