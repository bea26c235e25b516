"""Parameter-server training: the roles of chief, worker and parameter server.

TensorFlow's own servers never exit. Here each server holds a queue, into which the chief and every
worker put their number when they are done. The queue is in the server's memory, so no disk has to
be shared.
"""

import math
import time
from typing import Any

import tensorflow as tf

from cifar10.cluster import packing, sync
from cifar10.cluster.control import SharedControl, StopRequested, from_vector
from cifar10.cluster.liveness import CHIEF, LivenessMonitor
from cifar10.cluster.roles import AfterExchange, TaskRole
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.sockets import reachable
from cifar10.cluster.tasks import Cluster
from cifar10.core.devices import session_config
from cifar10.core.errors import TaskLostError
from cifar10.core.logs import log
from cifar10.options.run_options import RunOptions

_LOOK_SECONDS = 0.25
_FAREWELL_SECONDS = 60  # How long a server waits for slower workers after the chief is done.
# How long a server waits for the chief after SIGTERM or the loss of a task, of which all tasks hear
# at about the same time: the chief still saves the variables that are here.
_SAVE_SECONDS = 12


class Replica(TaskRole):
  """The chief or a worker of asynchronous training: its gradients are applied when they arrive."""

  def _spare_workers(self, options: RunOptions) -> int:
    return self.cluster.num_workers

  def _make_control(self) -> SharedControl:
    return SharedControl('/job:ps/task:0/device:CPU:0')

  def batches_done(self, global_step: Any) -> Any:
    """Returns about that many: each worker has its own pace."""
    return global_step // self.cluster.num_workers

  def optimizer(self, optimizer: Any) -> Any:
    return AfterExchange(optimizer, packing.push)

  def control_hooks(self, stop_request: StopRequested) -> list[Any]:
    if self.saves:
      return super().control_hooks(stop_request)
    return [_WorkerControlHook(self.control)]

  def announce_done(self) -> None:
    """Tells every parameter server that this replica no longer needs it.

    It connects to each server by itself: a replica without steps has started no server of its own.
    """
    name, worker = self.cluster.name, self.cluster.worker
    for index, address in enumerate(self.cluster.addresses.get('ps', ())):
      config = session_config(device_filters=[f'/job:ps/task:{index}'])
      config.operation_timeout_in_ms = 10_000
      with tf.Graph().as_default():
        enqueue = _done_queue(index).enqueue(worker)
        try:
          with tf.compat.v1.Session(f'grpc://{address}', config=config) as session:
            session.run(enqueue)
        except tf.errors.OpError as error:
          message = ' '.join(error.message.split())  # Some messages have several lines.
          log.info('ps %s does not hear that %s is done: %s', index, name, message)


class SyncReplica(Replica):
  """The chief or a worker of synchronous training: one update from several workers' gradients."""

  updates_later = True

  def __init__(self, cluster: Cluster, options: RunOptions, monitor: SignalMonitor | None = None):
    super().__init__(cluster, options, monitor)
    self._in_order = options.deterministic

  def _spare_workers(self, options: RunOptions) -> int:
    return options.backup_workers

  def batches_done(self, global_step: Any) -> Any:
    return global_step

  def optimizer(self, optimizer: Any) -> Any:
    """Returns the optimizer that gathers gradients; the chief's applies their mean."""
    return sync.SyncReplicas(
      optimizer, self.cluster, self.gradients_per_update, self.control, in_order=self._in_order
    )

  def training_hooks(self, optimizer: Any, last_step: int) -> list[Any]:
    return [optimizer.make_hook(last_step, self.monitor)]


def serve(role: Replica) -> dict[str, Any]:
  """Holds variables until the chief and all workers are done; returns the result to print.

  Raises:
    Terminated: the process received a signal; it has waited some seconds for the chief.
    TaskLostError: the chief is lost and no worker trains, or a needed task is cut off.
  """
  cluster, monitor = role.cluster, role.monitor
  assert isinstance(monitor, LivenessMonitor)
  config = session_config(device_filters=cluster.device_filters)
  server = tf.distribute.Server(
    tf.train.ClusterSpec(dict(cluster.addresses)), 'ps', cluster.task_index, config=config
  )
  log.info('%s serves at %s', cluster.name, cluster.addresses['ps'][cluster.task_index])
  with tf.Graph().as_default(), tf.compat.v1.Session(server.target, config=config) as session:
    queue = _done_queue(cluster.task_index)
    size, take = queue.size(), queue.dequeue()
    done: set[int] = set()
    leave_at = math.inf
    while not (0 in done and (_all_left(cluster, done) or time.monotonic() > leave_at)):
      if monitor.stopping:
        _wait_for_the_chief(cluster)
        monitor.check()
      if monitor.is_lost(CHIEF) and _all_left(cluster, done):
        raise TaskLostError(f'nobody trains: {monitor.lost_tasks([CHIEF])}')
      time.sleep(_LOOK_SECONDS)
      done.update(session.run(take) for _ in range(session.run(size)))
      if 0 in done:
        leave_at = min(leave_at, time.monotonic() + _FAREWELL_SECONDS)
  return {'task': cluster.name}


class _WorkerControlHook(tf.compat.v1.train.SessionRunHook):
  """A worker's hook: reads the chief's control state in every step and obeys it."""

  def __init__(self, control: SharedControl):
    self._control = control

  def before_run(self, run_context: Any) -> Any:
    return tf.compat.v1.train.SessionRunArgs(self._control.values)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self._control.state = from_vector(run_values.results)
    if self._control.state.ends:
      run_context.request_stop()


def _done_queue(ps: int) -> Any:
  with tf.device(f'/job:ps/task:{ps}/device:CPU:0'):
    return tf.queue.FIFOQueue(-1, [tf.int32], [[]], shared_name='done')


def _all_left(cluster: Cluster, done: set[int]) -> bool:
  """Tells whether each worker is done or gone."""
  workers = enumerate(cluster.addresses.get('worker', ()), start=1)
  return all(worker in done or not reachable(address) for worker, address in workers)


def _wait_for_the_chief(cluster: Cluster) -> None:
  deadline = time.monotonic() + _SAVE_SECONDS
  while time.monotonic() < deadline and reachable(cluster.addresses['chief'][0]):
    time.sleep(_LOOK_SECONDS)
