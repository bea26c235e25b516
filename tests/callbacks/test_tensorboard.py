"""What TensorBoard itself makes of a job, asked over HTTP."""

import json
import os
import time
import urllib.parse
import urllib.request

import numpy as np
import pytest
from outcome import events, succeeded

from cifar10.callbacks.metrics import confusion_picture, to_png
from cifar10.data.manifest import CIFAR10

pytestmark = pytest.mark.slow

SMALL = ['--num-layers', 8, '--train-batch-size', 4, '--eval-batch-size', 64, '--num-gpus', 0]


@pytest.fixture(scope='module')
def job(run_main, data_dir, tmp_path_factory):
  """A job that ended at step 110, as if it had been killed there after a checkpoint at step 60.

  It was resumed with the rest of its files as they were, and ended at step 120.
  """
  folder = tmp_path_factory.mktemp('jobs') / 'job'
  flags = ['--data-dir', data_dir, '--job-dir', folder, *SMALL, '--eval-every-steps', 60]
  for steps in (110, 120):
    succeeded(run_main(*flags, '--train-steps', steps))
    if steps == 110:
      (folder / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt-60"\n')
      os.remove(folder / 'model.ckpt-110.index')
  return folder


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


def test_accuracy_and_loss_come_first(ask):
  tags = json.loads(ask('scalars/tags'))
  groups = sorted({tag.split('/')[0] for found in tags.values() for tag in found})
  others = ['loss_parts', 'optimizer', 'other_accuracies', 'per_class_accuracy', 'resources']
  assert groups == ['accuracy', 'loss', *others]
  for run in ('job/validation', 'job/eval'):
    assert {'accuracy', 'loss', 'other_accuracies/top5'} <= set(tags[run])
    assert len([tag for tag in tags[run] if tag.startswith('per_class_accuracy/')]) == 10


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


def test_evaluations_have_the_numbers_that_the_program_printed(job, ask):
  for event in events(job, 'evaluate'):
    if event['step'] != 110:
      shown = dict(curve(ask, f'job/{event["subset"]}', 'accuracy'))
      assert shown[event['step']] == pytest.approx(event['accuracy'], abs=1e-6)


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
