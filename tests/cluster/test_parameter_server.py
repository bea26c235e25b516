"""What passes between a worker and parameter servers; real ones: tests/test_local_cluster.py."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from graphs import ancestors

from cifar10.cluster import parameter_server, roles
from cifar10.cluster.tf_config import Cluster
from cifar10.options import hparams
from cifar10.options.run_options import RunOptions
from cifar10.training import model_fn
from estimator_again import estimator as tf_estimator


def member(size, device='/job:ps/task:0', dtype=tf.float32):
  return SimpleNamespace(device=device, dtype=dtype, shape=tf.TensorShape([size]))


def sizes(members):
  buckets = parameter_server.in_buckets([None] * len(members), members)
  return [[each.shape[0] for each in bucket.variables] for bucket in buckets]


def test_a_bucket_ends_before_it_is_too_large(monkeypatch):
  """Of float32: 3 + 2 numbers are 20 bytes, 4 + 1 too; 7 are 28, and have a bucket of their own."""
  monkeypatch.setattr(parameter_server, 'BUCKET_BYTES', 20)
  assert sizes([member(size) for size in (3, 2, 4, 1, 7, 1, 5)]) == [[3, 2], [4, 1], [7], [1], [5]]


def test_a_bucket_has_one_device_and_one_dtype():
  """The second server's variables stay together, though the first one's come between."""
  other = '/job:ps/task:1'
  mixed = [member(1), member(2, other), member(3), member(4, other), member(5, dtype=tf.float64)]
  assert sizes(mixed) == [[1, 3], [2, 4], [5]]


@pytest.mark.parametrize('limit', [4, 24, 1000])
def test_tensors_arrive_as_they_were(monkeypatch, limit):
  monkeypatch.setattr(parameter_server, 'BUCKET_BYTES', limit)
  given = [np.arange(6).reshape(2, 3), np.array(7), np.array([8, 9])]
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    variables = [tf.compat.v1.get_variable(f'v{i}', value.shape) for i, value in enumerate(given)]
    arrived = parameter_server.push([tf.constant(value, tf.float32) for value in given], variables)
    assert [variable.name for _, variable in arrived] == ['v0:0', 'v1:0', 'v2:0']
    for value, (tensor, _) in zip(given, arrived):
      np.testing.assert_array_equal(session.run(tensor), value)


def passing(servers, task='worker', **options):
  """Of a step of ResNet-8: the sizes of the tensors between hosts, by where they go."""
  ps = tuple(f'c:{i}' for i in range(servers))
  cluster = Cluster({'chief': ('a:1',), 'worker': ('b:1',), 'ps': ps}, task, 0)
  options = RunOptions('job', **options)
  chosen = hparams.from_values({'num_layers': 8, 'train_batch_size': 2})
  role = roles.Role(cluster, options)
  with tf.Graph().as_default() as graph, tf.device(cluster.job):
    with tf.device('/job:ps/task:0/device:CPU:0'):
      tf.compat.v1.train.get_or_create_global_step()
    images, labels = tf.zeros([2, 32, 32, 3], tf.uint8), tf.zeros([2], tf.int32)
    function = model_fn.get_model_fn(0, 'CPU', 1, training=model_fn.Training(role, 50_000))
    spec = function((images,), (labels,), tf_estimator.ModeKeys.TRAIN, chosen)
    counted = {}
    # A synchronous chief's update is an operation of its own: look at all.
    for op in ancestors(spec.train_op) if task == 'worker' else graph.get_operations():
      for tensor in op.inputs:
        ends = [each.device.split('/')[1:3] for each in (tensor.op, op)]
        # An operation without a device runs beside the variable that it reads.
        if all(ends) and ends[0] != ends[1] and tensor.dtype == tf.float32 and tensor.shape.rank:
          counted.setdefault(tuple('/'.join(end) for end in ends), set()).add(tensor)
  return {ends: sorted(math.prod(each.shape) for each in all_) for ends, all_ in counted.items()}


STATISTICS = [16] * 6 + [32] * 4 + [64] * 4  # A mean and a variance of each of 7 batch norms.


def test_the_gradients_pass_as_one_tensor():
  """And the statistics of batch norms by themselves, to where they are averaged.

  Convolutions: 3x3 of 3 to 16 channels, 2 of 16 to 16, 16 to 32, 32 to 32, 32 to 64, 64 to 64:
  432 + 4,608 + 4,608 + 9,216 + 18,432 + 36,864 = 74,160. Scales and offsets: 2 (3 * 16 + 2 * 32 +
  2 * 64) = 480. The dense layer: 650.
  """
  assert passing(1)['job:worker/task:0', 'job:ps/task:0'] == [*STATISTICS, 75_290]


@pytest.mark.parametrize('deterministic', [False, True])
def test_a_synchronous_chief_receives_no_gradients(deterministic):
  """Their mean is computed at the server, where the update is: only the chief's orders arrive."""
  assert passing(1, 'chief', sync=True, deterministic=deterministic) == {
    ('job:ps/task:0', 'job:chief/task:0'): [3],
    ('job:chief/task:0', 'job:ps/task:0'): [*STATISTICS, 75_290],
  }
