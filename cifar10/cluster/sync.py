"""Synchronous training between processes: each update uses the mean of all workers' gradients.

The scheme is that of TensorFlow's SyncReplicasOptimizer (Chen et al. 2016, "Revisiting Distributed
Synchronous SGD", section 3, with backup workers). Every worker pushes its gradients, with their
global step, into accumulators beside the variables; an accumulator drops gradients of earlier
steps. The chief applies the mean, then sends every worker a token, upon which the worker starts
its next batch. Three things differ, because in the original each makes training hang or update
wrongly:

- Every worker has its own queue of tokens. From a shared queue a live worker could take a dead
  worker's token and compute two batches of one step.
- The chief counts gradients and updates in its main thread, not in a thread that blocks while a
  worker is missing, so SIGTERM still ends in a checkpoint.
- A chief that starts or restarts empties the accumulators and sends every worker a token. So
  gradients of a step that was rolled back are never applied, and no worker waits for a token that
  was lost with the earlier chief. Workers push nothing before the chief's first start, so that no
  batch is lost when the chief starts after them.
"""

import itertools
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cifar10.cluster.control import SharedControl, from_vector
from cifar10.cluster.parameter_server import Bucket, in_buckets
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tf_config import Cluster

_LOOK_SECONDS = 0.1
_WAKE, _RESTART = -1, -2  # Tokens that are no step.

GradientsAndVariables = Sequence[tuple[tf.Tensor, Any]]


class SyncReplicas:
  """Applies the mean of `gradients_per_update` workers' gradients at each global step."""

  def __init__(
    self,
    optimizer: Any,
    cluster: Cluster,
    gradients_per_update: int,
    control: SharedControl,
    *,
    in_order: bool = False,
  ):
    """Args:
    optimizer: from `optimizers.make_optimizer`; its `apply_gradients` makes the update.
    cluster: all tasks, with this replica.
    gradients_per_update: how many gradients the chief waits for: one from each worker, minus the
      number of backup workers. It counts them after pushing its own, which is therefore always in
      the mean, like all others that have arrived by then.
    control: the chief's control state, in this graph; a worker reads it with its token.
    in_order: add gradients in the order of the workers, not as they arrive, because floating-point
      sums depend on the order. Then every worker's gradient must be in the mean.
    """
    assert not in_order or gradients_per_update == cluster.num_workers
    self._optimizer = optimizer
    self.control = control
    self._cluster = cluster
    self.needed = gradients_per_update
    # Each accumulator has one worker's gradients, or all workers'.
    self._accumulators_of_a_bucket = cluster.num_workers if in_order else 1
    self._needed_in_each = 1 if in_order else gradients_per_update

  def apply_gradients(self, gradients: GradientsAndVariables, global_step: Any) -> tf.Operation:
    """Returns the op that pushes this replica's gradients; it needs the hook of `make_hook`.

    Args:
      gradients: (gradient, variable) pairs, dense.
      global_step: counts updates.
    """
    self.global_step = global_step
    self.local_step = tf.compat.v1.placeholder(tf.int64, [], 'local_step')
    with tf.device(global_step.device):
      # `arrivals`: one element to the chief for each gradient that a worker pushed. `begun`: not
      # empty after a chief has started. `go`: each worker's tokens from the chief.
      self._arrivals = self._queue('arrivals')
      self._begun = self._queue('begun')
      self._go = [self._queue(f'go_{worker}') for worker in range(self._cluster.num_workers)]
    buckets = in_buckets(*zip(*gradients))
    packed = [bucket.packed() for bucket in buckets]
    accumulators = [self._accumulators(bucket) for bucket in buckets]
    own = self._cluster.worker if self._accumulators_of_a_bucket > 1 else 0
    pushed = []
    # A worker whose step is ahead began its batch before a chief's restart rolled that step back.
    with tf.device(global_step.device), tf.control_dependencies(packed):
      is_ahead = self.local_step > tf.cast(global_step.read_value(), tf.int64)
      step_of_push = tf.where(is_ahead, tf.constant(-1, tf.int64), self.local_step)
    for bucket, of_bucket, gradient in zip(buckets, accumulators, packed):
      with tf.device(bucket.device):
        pushed.append(of_bucket[own].apply_grad(gradient, step_of_push))
    if self._cluster.is_chief:
      self._build_chief(buckets, accumulators, pushed)
      return tf.group(*pushed)
    self._build_worker()
    with tf.control_dependencies(pushed):
      return self._arrivals.enqueue(0)

  def make_hook(self, last_step: int, monitor: SignalMonitor) -> tf.compat.v1.train.SessionRunHook:
    """Returns the hook that runs after each batch, until `last_step` updates are made."""
    make = _ChiefHook if self._cluster.is_chief else _WorkerHook
    return make(self, last_step, monitor)

  def _queue(self, name: str) -> Any:
    return tf.queue.FIFOQueue(-1, [tf.int64], [[]], shared_name=name, name=name)

  def _accumulators(self, bucket: Bucket) -> list[Any]:
    name = f'{bucket.variables[0].op.name}/gradients_{bucket.size}'
    with tf.device(bucket.device):
      return [
        tf.compat.v1.ConditionalAccumulator(
          bucket.dtype, [bucket.size], shared_name=f'{name}_{index}'
        )
        for index in range(self._accumulators_of_a_bucket)
      ]

  def _mean(self, accumulators: Sequence[Any]) -> tf.Tensor:
    means = [accumulator.take_grad(self._needed_in_each) for accumulator in accumulators]
    if len(means) == 1:
      return means[0]
    # Not `add_n`, which has its own order: it sorts its inputs by name and may begin with one
    # whose memory it can reuse.
    return tf.reduce_mean(tf.stack(means), 0)

  def _build_chief(
    self,
    buckets: Sequence[Bucket],
    accumulators_of_buckets: Sequence[Sequence[Any]],
    pushed: Sequence[tf.Operation],
  ) -> None:
    accumulators = list(itertools.chain.from_iterable(accumulators_of_buckets))
    self.counts = self._counts(accumulators)
    with tf.control_dependencies(pushed):  # In the step that pushes the chief's own gradients.
      self.present = self._present(accumulators)
    self.missing = tf.compat.v1.placeholder(tf.int32, [], 'missing')
    with tf.control_dependencies([self._arrivals.dequeue_many(self.missing)]):
      self.present_later = self._present(accumulators)
    means: list[tuple[tf.Tensor, Any]] = []
    for bucket, of_bucket in zip(buckets, accumulators_of_buckets):
      with tf.device(bucket.device):
        means += bucket.unpack(self._mean(of_bucket))
    updated = self._optimizer.apply_gradients(means, self.global_step)
    go_on = [queue.enqueue(_RESTART) for queue in self._go[1:]]
    with tf.control_dependencies([updated]):
      self.next_step = self.global_step.read_value()
      self.update = tf.group(
        *(queue.enqueue(self.next_step) for queue in self._go[1:]),
        # Their gradients are in the next count; no other task dequeues here.
        self._arrivals.dequeue_many(self._arrivals.size()),
      )
    self.empty = [accumulator.take_grad(1).op for accumulator in accumulators]
    self.set_step = [accumulator.set_global_step(self.global_step) for accumulator in accumulators]
    with tf.control_dependencies(go_on):  # A worker waits for `begun`, then drops old tokens.
      self.send_on = self._begun.enqueue(0)
    self.wake = self._arrivals.enqueue_many([tf.zeros([self.needed], tf.int64)])

  def _counts(self, accumulators: Sequence[Any]) -> tf.Tensor:
    with tf.device(self.global_step.device):
      return tf.stack([accumulator.num_accumulated() for accumulator in accumulators])

  def _present(self, accumulators: Sequence[Any]) -> tf.Tensor:
    """Returns how many of the gradients that an update needs are there for all buckets.

    It is the minimum over the buckets, because a worker that dies while it pushes leaves some of
    them only.
    """
    with tf.device(self.global_step.device):
      counts = tf.reshape(self._counts(accumulators), [-1, self._accumulators_of_a_bucket])
      return tf.reduce_sum(tf.minimum(tf.reduce_min(counts, 0), self._needed_in_each))

  def _build_worker(self) -> None:
    queue = self._go[self._cluster.worker]
    first = queue.dequeue()
    with tf.control_dependencies([first]):
      rest = queue.dequeue_many(queue.size())  # Tokens of steps made without this worker.
    tokens = tf.concat([[first], rest], 0)  # The steps that the chief has made, or the two others.
    self.wait = tf.reduce_min(tokens), tf.reduce_max(tokens)
    with tf.control_dependencies([rest]):
      self.state = self.control.read()
    self.chief_has_begun = self._begun.size() > 0
    self.forget = queue.dequeue_many(queue.size()).op
    self.wake = queue.enqueue(_WAKE)


class _SyncHook(tf.compat.v1.train.SessionRunHook):
  """Feeds the global step of this replica's gradient, and waits for the update of that step."""

  def __init__(self, replicas: SyncReplicas, last_step: int, monitor: SignalMonitor):
    self._replicas = replicas
    self._last_step = last_step
    self._monitor = monitor
    self._local_step = 0

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._begin(session)
    self._local_step = session.run(self._replicas.global_step)
    self._monitor.call_on_stop(lambda: session.run(self._replicas.wake))

  def before_run(self, run_context: Any) -> Any:
    feed = {self._replicas.local_step: self._local_step}
    return tf.compat.v1.train.SessionRunArgs(self._fetches(), feed)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    next_step = self._updated_step(run_context.session, run_values.results)
    if next_step is not None:
      self._local_step = next_step
    # The chief's request to end precedes its last update, and so the token of that.
    is_last = self._local_step >= self._last_step or self._replicas.control.state.ends
    if self._monitor.stopping or is_last:
      run_context.request_stop()

  def _begin(self, session: Any) -> None:
    raise NotImplementedError

  def _fetches(self) -> Any:
    """Returns what to fetch with each batch."""
    return []

  def _updated_step(self, session: Any, fetched: Any) -> int | None:
    """Waits for the step's update; returns the next step, or None if this process is to stop."""
    raise NotImplementedError


class _ChiefHook(_SyncHook):
  """The chief's hook: makes the update when enough gradients have arrived."""

  def _begin(self, session: Any) -> None:
    counts = session.run(self._replicas.counts)
    session.run([op for op, count in zip(self._replicas.empty, counts) if count])
    session.run(self._replicas.set_step)
    session.run(self._replicas.send_on)

  def _fetches(self) -> Any:
    return self._replicas.present

  def _updated_step(self, session: Any, fetched: Any) -> int | None:
    replicas, present = self._replicas, fetched
    while not self._monitor.stopping:
      if present >= replicas.needed:
        _, step = session.run([replicas.update, replicas.next_step])
        return step
      # Each missing one sends an arrival; an earlier step or a second try sends some more.
      feed = {replicas.missing: replicas.needed - present}
      present = session.run(replicas.present_later, feed)
    return None


class _WorkerHook(_SyncHook):
  """A worker's hook: waits until the chief has made the update.

  Its session is created again where a chief that was started again goes back to its checkpoint.
  """

  def _begin(self, session: Any) -> None:
    while not self._monitor.stopping and not session.run(self._replicas.chief_has_begun):
      time.sleep(_LOOK_SECONDS)
    session.run(self._replicas.forget)

  def _updated_step(self, session: Any, fetched: Any) -> int | None:
    replicas = self._replicas
    while not self._monitor.stopping:
      (least, step), state = session.run([replicas.wait, replicas.state])
      replicas.control.state = from_vector(state)
      if least == _RESTART:  # A new session begins again with the batch of its step.
        raise tf.errors.AbortedError(None, None, 'the chief was started again')
      if step > self._local_step:
        return step
    return None
