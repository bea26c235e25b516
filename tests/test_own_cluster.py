"""A user's own network, callback and source in a synchronous cluster with an evaluator."""

import numpy as np
import pytest
import tensorflow as tf
from tasks import Tasks

from cifar10.job import metrics_log

MODULE = """
import numpy as np
import cifar10

def shards(shard, num_shards):
  for number in range(shard, 96, num_shards):
    yield np.full([32, 32, 3], 20 * (number % 10), np.uint8), number % 10

class Noted(cifar10.Callback):
  def __init__(self, run):
    self.path = f'{run.options.job_dir}/noted'

  def on_evaluate_end(self, evaluation):
    with open(self.path, 'a') as file:
      print(evaluation.split, evaluation.step, file=file)
"""
FLAGS = [
  '--network',
  'outside_parts:net',
  '--callback',
  'beside:Noted',
  '--source',
  'beside:shards',
]
FLAGS += ['--examples-per-epoch', 96]
FLAGS += ['--train-batch-size', 16, '--eval-batch-size', 64]
FLAGS += ['--eval-every-steps', 2, '--train-steps', 4, '--sync', '--num-cpu-towers', 2]


@pytest.mark.cluster
def test_each_worker_reads_a_shard_and_the_evaluator_calls_back(data_dir, tmp_path, monkeypatch):
  (tmp_path / 'beside.py').write_text(MODULE)
  monkeypatch.setenv('PYTHONPATH', str(tmp_path), prepend=':')
  job = tmp_path / 'job'
  flags = ['--data-dir', data_dir, '--job-dir', job, *FLAGS]
  with Tasks(job, flags, num_workers=1, num_ps=1, evaluator=True) as tasks:
    tasks.start()
    assert set(tasks.ended()) == {0}, tasks.text()
  assert metrics_log.read(str(job))[-1]['step'] == 4
  assert np.abs(tf.train.load_checkpoint(str(job)).get_tensor('network/mean')).max() > 0
  assert (job / 'noted').read_text().splitlines()[-2:] == ['validation 4', 'eval 4']
