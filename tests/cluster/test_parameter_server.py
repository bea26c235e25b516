"""What replicas say to parameter servers; real ones are in tests/test_local_cluster.py."""

import tensorflow as tf

from cifar10.cluster import parameter_server
from cifar10.cluster.tasks import Cluster
from cifar10.core import logs


def test_what_a_server_does_not_hear_is_one_line(monkeypatch):
  """TensorFlow's message has several."""

  class Deaf:
    def __init__(self, *_, **__):
      raise tf.errors.DeadlineExceededError(None, None, 'Graph execution error:\n\nToo late')

  said = []
  monkeypatch.setattr(tf.compat.v1, 'Session', Deaf)
  monkeypatch.setattr(logs.log, 'info', lambda text, *values: said.append(text % values))
  parameter_server.announce_done(Cluster({'chief': ('a:1',), 'ps': ('b:1', 'c:1')}, 'chief', 0))
  assert said == [
    f'ps {index} does not hear that chief 0 is done: Graph execution error: Too late'
    for index in range(2)
  ]
