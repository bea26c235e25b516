"""A job with a history."""

import json
import os
import shutil

import checkout
import pytest

from cifar10.data import info
from cifar10.job import best_checkpoints, metrics_log

START = {
  'event': 'start',
  'step': 0,
  'resumed': False,
  'steps_lost': 0,
  'versions': {'python': '3.11.7', 'tensorflow': '2.15.1'},
  'hardware': {'processor': 'a processor', 'cores': 2, 'memory_gib': 8.0, 'gpus': []},
  'options': {'num_layers': 8, 'eval_every_steps': 4, 'data_dir': 'data', 'num_gpus': None},
  'command': ['cifar10_main.py', '--num-layers', '8'],
  'seconds': 0.0,
}


def events(data_dir, checkpoint, split='validation'):
  """Of 8 steps: killed after step 5, gone on from step 4; one command; evaluations at 4 and 8."""
  start = {**START, 'data_dir': data_dir}
  yield start
  for step in (2, 4):
    yield _train(step)
  yield {'event': 'evaluate', 'step': 4, 'subset': split, 'accuracy': 0.25, 'loss': 2.2}
  yield {**start, 'step': 4, 'resumed': True, 'steps_lost': 1, 'seconds': 40.0}
  yield {'event': 'control', 'step': 5, 'command': 'learning_rate=0.05', 'answer': 'done'}
  for step in (6, 8):
    yield _train(step)
  rest = {'accuracy': 0.5, 'loss': 2.0, 'cross_entropy': 1.9, 'examples': 64}
  yield {'event': 'evaluate', 'step': 8, 'subset': split, 'checkpoint': checkpoint, **rest}
  yield {'event': 'end', 'step': 8, 'reason': 'train_steps', 'message': 'the last step was made'}


def _train(step):
  return {
    'event': 'train',
    'step': step,
    'loss': 3 - step / 10,
    'accuracy': step / 20,
    'learning_rate': 0.1 if step < 5 else 0.05,
    'images_per_second': 100.0 + step,
    'seconds': 10.0 * step,
  }


@pytest.fixture(scope='module')
def make_job(tmp_path_factory, data_dir):
  """Makes a job dir of this name: 8 steps of ResNet-8, with or without metrics.jsonl -> its path.

  With `classes` it is a job of a data set with these, which then also is in a data dir of its own.
  With `has_data=False` its data dir is gone, and nothing can be evaluated.
  """
  folder = tmp_path_factory.mktemp('data_of_classes')

  def make(name='job', classes=None, has_metrics=True, has_data=True):
    path = str(tmp_path_factory.mktemp('jobs') / name)
    shutil.copytree(f'{checkout.OLD_JOBS}/resnet8', path)
    data = data_dir if has_data else '/gone'
    if classes:
      description = info.CIFAR10.to_json() | {'name': 'a & b', 'classes': list(classes)}
      data = _data_of_classes(data_dir, folder / 'data', description)
      _change(os.path.join(path, 'config.json'), data_set=description)
    if has_metrics:
      for second, event in enumerate(events(data, os.path.join(path, 'model.ckpt-8'))):
        timed = {'time': 1.8e9 + second, 'task': 'chief 0', **event}
        metrics_log.append(path, timed)
      chosen_by = {'accuracy': 0.5, 'global_step': 8}
      best_checkpoints.keep(path, os.path.join(path, 'model.ckpt-8'), chosen_by, 1)
    return path

  return make


def _data_of_classes(data_dir, folder, description):
  if not folder.exists():
    shutil.copytree(data_dir, folder)
    _change(folder / 'cifar10.json', format=2, **description)
  return str(folder)


def _change(path, **values):
  with open(path, encoding='utf-8') as file:
    content = json.load(file) | values
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(content, file)
