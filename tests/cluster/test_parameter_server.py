"""What replicas say to parameter servers; real ones are in tests/test_local_cluster.py."""

import tensorflow as tf

from cifar10.cluster import parameter_server, roles
from cifar10.cluster.tasks import Cluster
from cifar10.core import logs
from cifar10.options.run_options import RunOptions


def test_what_a_server_does_not_hear_is_one_line(monkeypatch):
  """TensorFlow's message has several."""

  class Deaf:
    def __init__(self, *_, **__):
      raise tf.errors.DeadlineExceededError(None, None, 'Graph execution error:\n\nToo late')

  said = []
  monkeypatch.setattr(tf.compat.v1, 'Session', Deaf)
  monkeypatch.setattr(logs.log, 'info', lambda text, *values: said.append(text % values))
  cluster = Cluster({'chief': ('a:1',), 'ps': ('b:1', 'c:1')}, 'chief', 0)
  parameter_server.Replica(cluster, RunOptions('job')).announce_done()
  assert said == [
    f'ps {index} does not hear that chief 0 is done: Graph execution error: Too late'
    for index in range(2)
  ]


def test_workers_ask_each_second_whether_the_chief_is_there():
  """TensorFlow's sessions of a worker ask every 30 s, and are given no interval."""
  roles._shorten_waits()
  assert tf.compat.v1.train.SessionManager()._recovery_wait_secs == 1
