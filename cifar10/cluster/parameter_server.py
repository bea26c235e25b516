"""How a parameter server runs, and how it learns that training is over.

TensorFlow's own servers never exit. Here each holds a queue, into which the chief and every worker
put their number when they are done. The queue is in the server's memory, so that no disk has to be
shared.
"""

import math
import time
from typing import Any

import tensorflow as tf

from cifar10.cluster.liveness import LivenessMonitor, lost_tasks
from cifar10.cluster.tf_config import Cluster, reachable
from cifar10.core.errors import TaskLostError, Terminated
from cifar10.core.logs import log
from cifar10.core.sessions import session_config

_CHIEF = 'chief 0'
_LOOK_SECONDS = 0.25
_FAREWELL_SECONDS = 60  # How long a server stays after the chief is done, for a slower worker.
# How long it stays after SIGTERM, which often comes to all tasks at once: the chief still saves the
# variables that are here.
_SAVE_SECONDS = 12


def serve(cluster: Cluster, monitor: LivenessMonitor) -> None:
  """Holds variables until the chief and all workers are done.

  Raises:
    Terminated: SIGTERM came. Before that it waits for the chief to end, for some seconds.
    TaskLostError: the chief is lost, and no worker trains on without it.
  """
  config = session_config(device_filters=cluster.device_filters)
  server = tf.distribute.Server(
    tf.train.ClusterSpec(dict(cluster.addresses)), 'ps', cluster.task_index, config=config
  )
  monitor.keep_others_out()
  log.info('%s serves at %s', cluster.name, cluster.addresses['ps'][cluster.task_index])
  with tf.Graph().as_default(), tf.compat.v1.Session(server.target, config=config) as session:
    queue = _done_queue(cluster.task_index)
    size, take = queue.size(), queue.dequeue()
    done: set[int] = set()
    leave_at = math.inf
    while not (0 in done and (_all_left(cluster, done) or time.monotonic() > leave_at)):
      if monitor.stopping:
        _wait_for_the_chief(cluster)
        raise Terminated()
      if monitor.is_lost(_CHIEF) and _all_left(cluster, done):
        raise TaskLostError(f'nobody trains: {lost_tasks({_CHIEF: cluster.addresses["chief"][0]})}')
      time.sleep(_LOOK_SECONDS)
      done.update(session.run(take) for _ in range(session.run(size)))
      if 0 in done:
        leave_at = min(leave_at, time.monotonic() + _FAREWELL_SECONDS)


def announce_done(cluster: Cluster) -> None:
  """Tells every parameter server that this replica needs it no more.

  It asks each server itself: a replica that had nothing to train has started no server of its own.
  """
  for index, address in enumerate(cluster.addresses.get('ps', ())):
    config = session_config(device_filters=[f'/job:ps/task:{index}'])
    config.operation_timeout_in_ms = 10_000
    with tf.Graph().as_default():
      enqueue = _done_queue(index).enqueue(cluster.worker)
      try:
        with tf.compat.v1.Session(f'grpc://{address}', config=config) as session:
          session.run(enqueue)
      except tf.errors.OpError as error:
        said = ' '.join(error.message.split())  # It may have several lines.
        log.info('ps %s does not hear that %s is done: %s', index, cluster.name, said)


def _done_queue(ps: int) -> Any:
  with tf.device(f'/job:ps/task:{ps}/device:CPU:0'):
    return tf.queue.FIFOQueue(-1, [tf.int32], [[]], shared_name='done')


def _all_left(cluster: Cluster, done: set[int]) -> bool:
  """Whether each worker is done or gone."""
  workers = enumerate(cluster.addresses.get('worker', ()), start=1)
  return all(worker in done or not reachable(address) for worker, address in workers)


def _wait_for_the_chief(cluster: Cluster) -> None:
  deadline = time.monotonic() + _SAVE_SECONDS
  while time.monotonic() < deadline and reachable(cluster.addresses['chief'][0]):
    time.sleep(_LOOK_SECONDS)
