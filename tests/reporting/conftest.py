"""A job with a history."""

import json
import os
import shutil

import checkout
import pytest

from cifar10.core import files
from cifar10.data import manifest
from cifar10.job import checkpoints, metrics_log


def events(data_dir, checkpoint):
  """Of 8 steps: killed after step 5, gone on from step 4; one command; evaluations at 4 and 8."""
  start = {
    'event': 'start',
    'versions': {'python': '3.11.7', 'tensorflow': '2.15.1'},
    'hardware': {'processor': 'a processor', 'cores': 2, 'memory_gib': 8.0, 'gpus': []},
    'options': {'num_layers': 8, 'eval_every_steps': 4, 'data_dir': 'data', 'num_gpus': None},
    'command': ['cifar10_main.py', '--num-layers', '8'],
    'data_dir': data_dir,
  }
  evaluated = {'event': 'evaluate', 'subset': 'validation', 'checkpoint': checkpoint}
  same = {'event': 'train', 'learning_rate': 0.1, 'images_per_second': 100.0, 'loss': 2.5}
  trained = [{**same, 'step': n, 'accuracy': n / 20, 'seconds': 10.0 * n} for n in (2, 4, 6, 8)]
  return [
    {**start, 'step': 0, 'resumed': False, 'steps_lost': 0, 'seconds': 0.0},
    *trained[:2],
    {**evaluated, 'step': 4, 'accuracy': 0.25, 'loss': 2.2},
    {**start, 'step': 4, 'resumed': True, 'steps_lost': 1, 'seconds': 40.0},
    {'event': 'control', 'step': 5, 'command': 'learning_rate=0.05', 'answer': 'done'},
    *trained[2:],
    {**evaluated, 'step': 8, 'accuracy': 0.5, 'loss': 2.0},
    {'event': 'end', 'step': 8, 'reason': 'train_steps', 'message': 'the last step was made'},
  ]


@pytest.fixture(scope='module')
def make_job(tmp_path_factory, data_dir):
  """Makes a job dir of this name: 8 steps of ResNet-8, with or without metrics.jsonl -> its path.

  With `classes` it is a job of a data set with these, in a data dir of its own; other values are
  of its configuration.
  """

  def make(name='job', classes=None, has_metrics=True, **config):
    path, data = str(tmp_path_factory.mktemp('jobs') / name), data_dir
    shutil.copytree(f'{checkout.OLD_JOBS}/resnet8', path)
    checkpoint = os.path.join(path, 'model.ckpt-8')
    if classes:
      data = shutil.copytree(data_dir, str(tmp_path_factory.mktemp('data') / 'data'))
      config['data_set'] = manifest.CIFAR10.to_json() | {'name': 'a & b', 'classes': list(classes)}
      _change(os.path.join(data, 'cifar10.json'), format=2, **config['data_set'])
    _change(os.path.join(path, 'config.json'), **config)
    if has_metrics:
      for second, event in enumerate(events(data, checkpoint)):
        name, step = event.pop('event'), event.pop('step')
        metrics_log.append(path, name, step, 'chief 0', time=1.8e9 + second, **event)
      checkpoints.keep_best(path, checkpoint, {'accuracy': 0.5, 'global_step': 8}, 1)
    return path

  return make


def _change(path, **values):
  files.write_text(path, json.dumps(files.read_object(path) | values))
