"""A batch waits on its tower's device for the step that takes it."""

import gpus
import pytest
import tensorflow as tf
from recomputed import assert_close, assert_equal

from cifar10.cluster import placement
from cifar10.training import towers


def staged_numbers(devices):
  """Batches 0, 1, ... of one number a tower, [batch, 10 * batch] -> what a step runs, its hooks."""
  numbers = tf.data.Dataset.range(100).map(lambda n: ((n, 10 * n), (n, 10 * n)))
  images, labels = tf.compat.v1.data.make_one_shot_iterator(numbers).get_next()
  shards, put, hook = towers.staged(list(zip(images, labels))[: len(devices)], devices)
  return [[images for images, _ in shards], put], [hook]


@pytest.mark.parametrize('devices', [['/cpu:0'], ['/cpu:0', '/cpu:1']], ids=['one', 'two'])
def test_each_step_takes_the_batch_that_the_step_before_put_there(devices):
  with tf.Graph().as_default():
    run, hooks = staged_numbers(devices)
    config = tf.compat.v1.ConfigProto(device_count={'CPU': 2})
    with tf.compat.v1.train.SingularMonitoredSession(hooks=hooks, config=config) as session:
      seen = [session.run(run)[0] for _ in range(20)]
  assert seen == [[step, 10 * step][: len(devices)] for step in range(20)]


def test_a_new_session_leaves_nothing_of_the_one_before():
  server = tf.distribute.Server.create_local_server()
  for _ in range(2):  # On one server, as a worker's sessions are.
    with tf.Graph().as_default():
      run, hooks = staged_numbers(['/cpu:0'])
      with tf.compat.v1.train.SingularMonitoredSession(
        hooks=hooks, master=server.target
      ) as session:
        assert [session.run(run)[0] for _ in range(3)] == [[0], [1], [2]]


@pytest.mark.gpu
@pytest.mark.long
def test_a_job_trains_on_the_same_batches(data_dir, run_here, tmp_path, monkeypatch):
  """Whole jobs, the second of them resumed; on a CPU, too, where they would not be staged."""
  flags = ['--data-dir', data_dir, '--num-layers', 8, '--train-batch-size', 8]
  flags += ['--eval-every-steps', 100, *gpus.flags(2)]
  monkeypatch.setattr(placement.Placement, 'prefetches_to_gpu', False)
  assert run_here(*flags, '--job-dir', tmp_path / 'without', '--train-steps', 7).returncode == 0
  monkeypatch.setattr(placement.Placement, 'prefetches_to_gpu', True)
  for steps in (3, 7):
    assert run_here(*flags, '--job-dir', tmp_path / 'with', '--train-steps', steps).returncode == 0
  assert_same = assert_close if gpus.visible() else assert_equal  # GPUs sum in any order.
  assert_same(tmp_path / 'without', tmp_path / 'with', 7)
