"""What jobs write while they train: events, curves, pictures."""

import json
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request

import numpy as np
import pytest
import tensorflow as tf
from outcome import events, followed, succeeded, until

from cifar10.callbacks.metrics import confusion_picture, to_png
from cifar10.data.manifest import CIFAR10
from cifar10.job import metrics_log

SMALL = ['--network', 'tiny_network:Tiny', '--train-batch-size', 8, '--eval-batch-size', 64]


@pytest.fixture(scope='module')
def job(run_main, data_dir, tmp_path_factory):
  """A job that ended at step 110, as if it had been killed there after a checkpoint at step 60.

  It was resumed with the rest of its files as they were, and ended at step 120.
  """
  folder = tmp_path_factory.mktemp('jobs') / 'job'
  every = ['--eval-every-steps', 60, '--save-every-steps', 40]
  for steps in (110, 120):
    where = ['--data-dir', data_dir, '--job-dir', folder]
    ran = run_main(*where, *SMALL, *every, '--train-steps', steps)
    succeeded(ran)
    changed = "train_steps 110 -> 120, tasks {'chief': 1, 'worker': 2, 'ps': 1} -> {}"
    assert (f'unlike before in this job: {changed}\n' in ran.stderr) == (steps == 120)
    if steps == 110:
      log = folder / 'metrics.jsonl'  # As if it had been a cluster's.
      of_cluster = '"cluster":{"chief":1,"worker":2,"ps":1}'
      log.write_text(log.read_text().replace('"cluster":{}', of_cluster))
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
  assert start['options']['train_batch_size'] == 8
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
def ask(job):
  """Asks a TensorBoard of the job's parent folder: (path, parameters) -> bytes."""
  words = [sys.executable, '-m', 'tensorboard.main', '--logdir', str(job.parent), '--port', '0']
  words += ['--host', '127.0.0.1', '--load_fast=false']
  process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)

  def get(path, **parameters):
    url = f'{address}data/plugin/{path}?{urllib.parse.urlencode(parameters)}'
    with urllib.request.urlopen(url, timeout=30) as response:
      return response.read()

  with followed(process):
    found = (re.search(r'http://127\.0\.0\.1:\d+/', line) for line in process.stderr)
    address = next(match for match in found if match).group()
    runs = {'job', 'job/validation', 'job/eval'}
    until(lambda: set(json.loads(get('scalars/tags'))) == runs, 60, process)
    yield get
    process.kill()  # Not SIGTERM: a TensorBoard that is reading files can ignore it for good.


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
  tags = json.loads(ask('images/tags'))
  for run in ('job/validation', 'job/eval'):
    assert set(tags[run]) == {'pictures/confusion_matrix'}
  tag = {'run': 'job/eval', 'tag': 'pictures/confusion_matrix', 'sample': 0}
  listed = json.loads(ask('images/images', **tag))
  assert [picture['step'] for picture in listed] == [110, 120]
  matrix = np.array(events(job, 'evaluate')[-1]['confusion_matrix'])
  png = ask(f'images/individualImage?{listed[-1]["query"]}&unused')
  assert png == to_png(confusion_picture(matrix, CIFAR10.classes))


def draw(matrix, classes=('cat', 'dog')):
  return np.asarray(confusion_picture(np.array(matrix), classes))


def test_rows_are_true_classes_and_columns_predicted_ones():
  """The more cats are taken for dogs, the darker is the cell at the right above.

  9 of 10, 1 of 10, and of no examples at all: from 255 to 8, 48, 107, 255 - 0.9 x 247 = 32.7.
  """
  picture = draw([[9, 1], [0, 0]])
  coloured = picture.max(2) != picture.min(2)  # Beside and above the cells all is black or white.
  left, top = (int(np.flatnonzero(coloured.any(axis))[0]) for axis in (0, 1))
  side = (picture.shape[1] - left) // 2
  places = [(top + y, left + x) for y in (0, side) for x in (0, side)]
  cells = [picture[y : y + side, x : x + side] for y, x in places]
  shades = [cell[1, 1].tolist() for cell in cells]
  assert shades == [[33, 69, 122], [230, 234, 240], [255] * 3, [255] * 3]
  # The digit is white on the dark cell, black on the other and grey where it is 0.
  assert [(cell == 0).all(2).any() for cell in cells] == [False, True, False, False]


@pytest.mark.parametrize(('num_classes', 'width'), [(100, 3300), (300, 301)])
def test_many_classes_fit_whatever_their_names(num_classes, width):
  names = [f'猫\n{n}' + 'a' * 50 for n in range(num_classes)]
  assert max(draw(np.eye(num_classes, dtype=int) * 100, names).shape) < width
