"""Parameter servers: what passes to them in a step, and how they end.

Each tensor that passes from process to process is a remote call. A ResNet-20 has 59 trained
variables of 18 KB on average, whose calls cost more than their bytes; so gradients pass in buckets,
each as one tensor. As in PyTorch's DistributedDataParallel (Li et al. 2020, arXiv 2006.15704,
section 3.2.2), a bucket is limited, so that some of a large network's gradients pass while others
are still being computed.

TensorFlow's own servers never exit. Here each server holds a queue, into which the chief puts a
word when it is done; the server ends when the workers have left, too. The queue is in the server's
memory, so no disk has to be shared.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.cluster.control import value_or
from cifar10.cluster.liveness import CHIEF, ENDED, LivenessMonitor, knock, reachable
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tf_config import Cluster
from cifar10.core.devices import session_config
from cifar10.core.errors import TaskLostError
from cifar10.core.logs import log, one_line

BUCKET_BYTES = 4 * 2**20  # At most; a larger tensor has a bucket of its own.
_LOOK_SECONDS = 0.25
# How long a server waits for the chief after SIGTERM or the loss of a task, of which all tasks hear
# at about the same time: the chief still saves the variables that are here.
_SAVE_SECONDS = 12

Gradients = list[tuple[tf.Tensor, tf.Variable]]


@dataclasses.dataclass
class Bucket:
  """Gradients of some variables of one device and dtype."""

  device: str
  dtype: tf.DType
  gradients: list[tf.Tensor] = dataclasses.field(default_factory=list)
  variables: list[tf.Variable] = dataclasses.field(default_factory=list)

  @property
  def size(self) -> int:
    """How many numbers it has in all."""
    return sum(variable.shape.num_elements() for variable in self.variables)

  def packed(self) -> tf.Tensor:
    """Returns all numbers, on the first gradient's device: [size]."""
    with tf.device(self.gradients[0].device):
      return tf.concat([tf.reshape(gradient, [-1]) for gradient in self.gradients], 0)

  def unpack(self, packed: tf.Tensor) -> Gradients:
    """Returns (gradient, variable) pairs of what `packed` made, or of a mean of it."""
    parts = tf.split(packed, [each.shape.num_elements() for each in self.variables])
    return [(tf.reshape(part, each.shape), each) for part, each in zip(parts, self.variables)]


def in_buckets(gradients: Sequence[tf.Tensor], variables: Sequence[tf.Variable]) -> list[Bucket]:
  """Returns the gradients in buckets, those of each variable's device in their order.

  All gradients are on one device, each of its variable's shape and dtype; the variables on servers.
  """
  buckets: list[Bucket] = []
  open_ones: dict[tuple[str, tf.DType], Bucket] = {}
  for gradient, variable in zip(gradients, variables):
    kind = device, dtype = variable.device, variable.dtype.base_dtype
    bucket, size = open_ones.get(kind), variable.shape.num_elements()
    if bucket is None or (bucket.size + size) * dtype.size > BUCKET_BYTES:
      bucket = open_ones[kind] = Bucket(device, dtype)
      buckets.append(bucket)
    bucket.gradients.append(gradient)
    bucket.variables.append(variable)
  return buckets


def push(gradients: Sequence[tf.Tensor], variables: Sequence[tf.Variable]) -> Gradients:
  """Brings gradients to their variables' devices; arguments as `in_buckets`, returns pairs."""
  arrived: Gradients = []
  for bucket in in_buckets(gradients, variables):
    packed = bucket.packed()
    with tf.device(bucket.device):
      arrived += bucket.unpack(packed)
  return arrived


def serve(cluster: Cluster, monitor: LivenessMonitor) -> dict[str, Any]:
  """Holds variables until the chief is done and all workers have left; returns what to print.

  Raises Terminated after a signal, when it has waited some seconds for the chief; TaskLostError
  where the chief is lost and no worker trains, or a needed task is cut off.
  """
  [chief], workers = cluster.addresses['chief'], cluster.addresses.get('worker', ())
  config = session_config(device_filters=cluster.device_filters)
  server = tf.distribute.Server(dict(cluster.addresses), 'ps', cluster.task_index, config=config)
  log.info('%s serves at %s', cluster.name, cluster.addresses['ps'][cluster.task_index])
  with tf.Graph().as_default(), tf.compat.v1.Session(server.target, config=config) as session:
    size = done_queue().size()
    while not (session.run(size) and not any(map(reachable, workers))):
      if monitor.stopping:
        deadline = time.monotonic() + _SAVE_SECONDS
        while time.monotonic() < deadline and reachable(chief):
          time.sleep(_LOOK_SECONDS)
        monitor.check()
      if monitor.is_lost(CHIEF) and not any(map(reachable, workers)):
        raise TaskLostError(f'nobody trains: {monitor.lost_tasks([CHIEF])}')
      time.sleep(_LOOK_SECONDS)
  return {'task': cluster.name}


def announce_done(cluster: Cluster) -> None:
  """The chief's: tells every parameter server that it no longer needs it."""
  for ps in range(cluster.num_ps if cluster.is_chief else 0):
    try:
      _at_server(cluster, ps, lambda: done_queue().enqueue(0))
    except tf.errors.OpError as error:
      log.info('ps %s does not hear that the chief is done: %s', ps, one_line(str(error)))


def chief_is_done(cluster: Cluster, monitor: SignalMonitor) -> bool:
  """A worker's, after its last step: waits until the chief says that it has saved that.

  Returns False where the chief has ended without, or `monitor` tells this process to stop.
  """
  [chief] = cluster.addresses['chief']
  while not monitor.stopping:
    has_ended = knock(chief) == ENDED  # Before the look: it may say so and end between the two.
    if _at_first_server(cluster, lambda: done_queue().size()):
      return True
    if has_ended:  # Of a cut cable the monitor hears.
      return False
    time.sleep(_LOOK_SECONDS)
  return False


def step_there(cluster: Cluster) -> int:
  """Returns the global step that servers still have while no chief trains; 0: they have none."""

  def step() -> tf.Tensor:
    handle = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name='global_step')
    return value_or(handle, np.array(0, np.int64))

  return _at_first_server(cluster, step)


def _at_first_server(cluster: Cluster, build: Callable[[], tf.Tensor]) -> int:
  """Returns a number that `build` reads at ps 0; 0 where that cannot be reached."""
  if reachable(cluster.addresses['ps'][0]):
    with contextlib.suppress(tf.errors.OpError):  # It may have ended this moment.
      return int(_at_server(cluster, 0, build))
  return 0


def _at_server(cluster: Cluster, ps: int, build: Callable[[], tf.Tensor | tf.Operation]) -> Any:
  """Runs what `build` makes at a server, without one of this process's own; returns its value."""
  config = session_config(device_filters=[f'/job:ps/task:{ps}'])
  config.operation_timeout_in_ms = 10_000
  with tf.Graph().as_default(), tf.device(f'/job:ps/task:{ps}/device:CPU:0'):
    built = build()
    with tf.compat.v1.Session(f'grpc://{cluster.addresses["ps"][ps]}', config=config) as session:
      return session.run(built)


def done_queue() -> tf.queue.FIFOQueue:
  """Returns a parameter server's queue, on its device: not empty once the chief is done."""
  return tf.queue.FIFOQueue(-1, [tf.int32], [[]], shared_name='done')
