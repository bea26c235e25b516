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

import abc
import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cifar10.cluster.control import ControlState, SharedControl
from cifar10.cluster.parameter_server import Bucket, done_queue, in_buckets
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tf_config import Cluster

_LOOK_SECONDS = 0.1
_WAKE, _RESTART = -1, -2  # Tokens that are no step.
Accumulators = list[tf.compat.v1.ConditionalAccumulator]
Stores = list[tuple[Bucket, Accumulators]]


@dataclasses.dataclass(eq=False)
class SyncReplicas(tf.compat.v1.train.SessionRunHook):
  """An optimizer that pushes a replica's gradients, and the session hook of its steps.

  The hook feeds the global step of these gradients and waits for the update of that step.
  """

  optimizer: Any  # makes the update
  cluster: Cluster  # all tasks, with this replica
  # How many gradients make an update, the chief's own among them. It pushes that first and then
  # waits, so it is always in the mean, like all others that have arrived by then.
  needed: int
  control: SharedControl  # the chief's, in this graph; a worker reads it with its token
  monitor: SignalMonitor  # ends the wait when this process is to stop
  last_step: int  # how many updates are made
  in_order: bool = False  # add gradients in the workers' order, on which floating-point sums depend

  def __post_init__(self) -> None:
    # Each accumulator has one worker's gradients, or all workers'.
    self._accumulators_of_a_bucket = self.cluster.num_workers if self.in_order else 1
    self._needed_in_each = 1 if self.in_order else self.needed
    self._local_step = 0

  def apply_gradients(
    self, gradients: Sequence[tuple[tf.Tensor, tf.Variable]], global_step: tf.Variable
  ) -> tf.Operation:
    """Returns the op that pushes this replica's gradients: dense (gradient, variable) pairs."""
    self._global_step = global_step
    self._step_fed = tf.compat.v1.placeholder(tf.int64, [], 'local_step')
    with tf.device(global_step.device):
      # `arrivals`: one element to the chief for each gradient that a worker pushed. `begun`: not
      # empty after a chief has started. `go`: each worker's tokens from the chief.
      self._arrivals = _queue('arrivals')
      self._begun = _queue('begun')
      self._go = [_queue(f'go_{worker}') for worker in range(self.cluster.num_workers)]
    stores = [(bucket, self._accumulators(bucket)) for bucket in in_buckets(*zip(*gradients))]
    packed = [bucket.packed() for bucket, _ in stores]
    own = self.cluster.worker if self.in_order else 0
    pushed = []
    # A worker whose step is ahead began its batch before a chief's restart rolled that step back.
    with tf.device(global_step.device), tf.control_dependencies(packed):
      is_ahead = self._step_fed > tf.cast(global_step.read_value(), tf.int64)
      step_of_push = tf.where(is_ahead, tf.constant(-1, tf.int64), self._step_fed)
    for (bucket, accumulators), gradient in zip(stores, packed):
      with tf.device(bucket.device):
        pushed.append(accumulators[own].apply_grad(gradient, step_of_push))
    return self._build(stores, pushed)

  @abc.abstractmethod
  def _build(self, stores: Stores, pushed: list[tf.Operation]) -> tf.Operation:
    """Adds what the hook runs; returns the op of a step."""

  def _accumulators(self, bucket: Bucket) -> Accumulators:
    name = f'{bucket.variables[0].op.name}/gradients_{bucket.size}'
    make = functools.partial(tf.compat.v1.ConditionalAccumulator, bucket.dtype, [bucket.size])
    with tf.device(bucket.device):
      return [make(shared_name=f'{name}_{i}') for i in range(self._accumulators_of_a_bucket)]

  def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
    self._begin(session)
    self._local_step = session.run(self._global_step)
    self.monitor.wake = lambda: session.run(self._wake)

  def before_run(self, run_context: Any) -> Any:
    return tf.compat.v1.train.SessionRunArgs(self._fetches, {self._step_fed: self._local_step})

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self._local_step = self._updated_step(run_context.session, run_values.results)
    # The chief writes its request to end before its last update, and so before that one's token.
    is_last = self._local_step >= self.last_step or self.control.state.ends
    if is_last:
      self._wait_for_save(run_context.session)
    if self.monitor.stopping or is_last:
      run_context.request_stop()

  def _wait_for_save(self, session: tf.compat.v1.Session) -> None:
    """A worker's, after its last step. The chief saves that itself."""

  @abc.abstractmethod
  def _begin(self, session: tf.compat.v1.Session) -> None:
    """Prepares accumulators and queues for a session's first batch."""

  @abc.abstractmethod
  def _updated_step(self, session: tf.compat.v1.Session, fetched: Any) -> int:
    """Waits for the step's update; returns the next step, or this one if the process is to stop."""


class SyncChief(SyncReplicas):
  """The chief: makes the update when enough gradients have arrived."""

  def _build(self, stores: Stores, pushed: list[tf.Operation]) -> tf.Operation:
    accumulators = [each for _, of_bucket in stores for each in of_bucket]
    self._counts = [accumulator.num_accumulated() for accumulator in accumulators]
    with tf.control_dependencies(pushed):  # In the step that pushes the chief's own gradients.
      self._fetches = self._present(accumulators)
    self._missing = tf.compat.v1.placeholder(tf.int32, [], 'missing')
    with tf.control_dependencies([self._arrivals.dequeue_many(self._missing)]):
      self._present_later = self._present(accumulators)
    means: list[tuple[tf.Tensor, tf.Variable]] = []
    for bucket, of_bucket in stores:
      with tf.device(bucket.device):
        taken = [accumulator.take_grad(self._needed_in_each) for accumulator in of_bucket]
        # Not `add_n`, which has its own order: it sorts its inputs by name and may begin with one
        # whose memory it can reuse.
        mean = taken[0] if len(taken) == 1 else tf.reduce_mean(tf.stack(taken), 0)
        means += bucket.unpack(mean)
    updated = self.optimizer.apply_gradients(means, self._global_step)
    go_on = [queue.enqueue(_RESTART) for queue in self._go[1:]]
    with tf.control_dependencies([updated]):
      self._next_step = self._global_step.read_value()
      self._update = tf.group(
        *(queue.enqueue(self._next_step) for queue in self._go[1:]),
        # Their gradients are in the next count; no other task dequeues here.
        self._arrivals.dequeue_many(self._arrivals.size()),
      )
    self._empty = [accumulator.take_grad(1).op for accumulator in accumulators]
    self._set_step = [each.set_global_step(self._global_step) for each in accumulators]
    with tf.control_dependencies(go_on):  # A worker waits for `begun`, then drops old tokens.
      self._send_on = self._begun.enqueue(0)
    self._wake = self._arrivals.enqueue_many([tf.zeros([self.needed], tf.int64)])
    return tf.group(*pushed)

  def _present(self, accumulators: Accumulators) -> tf.Tensor:
    """Returns how many of the gradients that an update needs are there for all buckets.

    It is the minimum over the buckets, because a worker that dies while it pushes leaves some of
    them only.
    """
    with tf.device(self._global_step.device):
      counts = tf.stack([accumulator.num_accumulated() for accumulator in accumulators])
      of_buckets = tf.reshape(counts, [-1, self._accumulators_of_a_bucket])
      return tf.reduce_sum(tf.minimum(tf.reduce_min(of_buckets, 0), self._needed_in_each))

  def _begin(self, session: tf.compat.v1.Session) -> None:
    counts = session.run(self._counts)
    session.run([op for op, count in zip(self._empty, counts) if count])
    session.run(self._set_step)
    session.run(self._send_on)

  def _updated_step(self, session: tf.compat.v1.Session, fetched: Any) -> int:
    present = fetched
    while not self.monitor.stopping:
      if present >= self.needed:
        return session.run([self._update, self._next_step])[1]
      # Each missing one sends an arrival; an earlier step or a second try sends some more.
      present = session.run(self._present_later, {self._missing: self.needed - present})
    return self._local_step


class SyncWorker(SyncReplicas):
  """A worker: waits until the chief has made the update.

  Its session is created again where a chief that was started again goes back to its checkpoint.
  """

  def _build(self, stores: Stores, pushed: list[tf.Operation]) -> tf.Operation:
    queue = self._go[self.cluster.worker]
    first = queue.dequeue()
    with tf.control_dependencies([first]):
      rest = queue.dequeue_many(queue.size())  # Tokens of steps made without this worker.
    tokens = tf.concat([[first], rest], 0)  # The steps that the chief has made, or the two others.
    self._wait = tf.reduce_min(tokens), tf.reduce_max(tokens)
    with tf.control_dependencies([rest]):
      self._state = self.control.read()
    self._chief_has_begun = self._begun.size() > 0
    with tf.device(self._global_step.device):
      self._chief_is_done = done_queue().size() > 0
    left = queue.dequeue_many(queue.size())
    self._forget, self._least_left = left.op, tf.reduce_min(left)
    self._wake = queue.enqueue(_WAKE)
    with tf.device(None):  # This task's own, set when a session begins, before the input begins.
      step = self._global_step.read_value()
      self._input_step = tf.compat.v1.get_local_variable('step_before_input', initializer=step)
    self._fetches: list[tf.Tensor] = []
    with tf.control_dependencies(pushed):
      return self._arrivals.enqueue(0)

  def _begin(self, session: tf.compat.v1.Session) -> None:
    while not self.monitor.stopping and not session.run(self._chief_has_begun):
      time.sleep(_LOOK_SECONDS)
    session.run(self._forget)
    # Forgotten, too: the token of a chief that went back after the input began at a later step.
    self._follow(session.run(self._global_step) < session.run(self._input_step))

  def _updated_step(self, session: tf.compat.v1.Session, fetched: Any) -> int:
    while not self.monitor.stopping:
      (least, step), state = session.run([self._wait, self._state])
      self.control.state = ControlState(*state)
      self._follow(least == _RESTART)
      if step > self._local_step:
        return step
    return self._local_step

  def _wait_for_save(self, session: tf.compat.v1.Session) -> None:
    """A chief that was killed before it had saved goes back, and needs this worker again."""
    is_saved = False
    while not (is_saved or self.monitor.stopping):
      is_saved, least = session.run([self._chief_is_done, self._least_left])
      self._follow(least == _RESTART)
      time.sleep(_LOOK_SECONDS)

  def _follow(self, chief_went_back: bool) -> None:
    if chief_went_back:  # A new session begins again with the batch of its step.
      raise tf.errors.AbortedError(None, None, 'the chief was started again')


def _queue(name: str) -> tf.queue.FIFOQueue:
  return tf.queue.FIFOQueue(-1, [tf.int64], [[]], shared_name=name, name=name)
