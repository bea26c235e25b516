"""Synchronous training between processes: one update from the mean of every worker's gradient.

The scheme is TensorFlow's SyncReplicasOptimizer's (Chen et al. 2016, "Revisiting Distributed
Synchronous SGD", section 3, backup workers included): workers push gradients, stamped with the
step they belong to, into accumulators that live beside the variables and drop late ones; the chief
applies the mean and tells everyone to go on. Three things differ, each for a fault that hangs or
distorts the original:

- Every worker has a go queue of its own. In a shared one a live worker takes a dead one's token,
  and computes two batches of one step.
- The chief counts and updates in its own loop, not in a thread that is blocked while a worker is
  missing: so SIGTERM still ends in a checkpoint.
- A chief that (re)starts empties the accumulators and sends everyone on, so that gradients of a
  step that was rolled back are never applied, and nobody waits for a token that died with it.
  Workers push nothing before its first start, so that no batch is lost to a chief that is slow.
"""

import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cifar10.cluster import Cluster
from cifar10.towers import GradientsAndVariables
from cifar10.watch import Watch

_LOOK_SECONDS = 0.1


class SyncReplicas:
  """Applies the mean of `gradients_per_update` workers' gradients at each global step."""

  def __init__(self, optimizer: Any, cluster: Cluster, gradients_per_update: int):
    """Args:
    optimizer: from `optimizers.make_optimizer`; its `apply_gradients` makes the update.
    cluster: this replica and how many there are.
    gradients_per_update: all workers, or fewer by the backup workers. The chief looks after its
      own batch, so that its gradient is always among them, and others that have come meanwhile.
    """
    self._optimizer = optimizer
    self._cluster = cluster
    self.gradients_per_update = gradients_per_update

  def apply_gradients(self, gradients: GradientsAndVariables, global_step: Any) -> tf.Operation:
    """The op that pushes this replica's gradients. It needs `make_hook`'s hook to run.

    Args:
      gradients: (gradient, variable) pairs, dense.
      global_step: counts updates.
    """
    self.global_step = global_step
    self.local_step = tf.compat.v1.placeholder(tf.int64, [], 'local_step')
    with tf.device(global_step.device):
      # Notes to the chief, its word to each worker to go on, and that it has ever begun.
      self._arrivals = self._queue('arrivals')
      self._begun = self._queue('begun')
      self._go = [self._queue(f'go_{worker}') for worker in range(self._cluster.num_workers)]
    accumulators = [self._accumulator(variable) for _, variable in gradients]
    pushed = []
    for accumulator, (gradient, variable) in zip(accumulators, gradients):
      with tf.device(variable.device):
        pushed.append(accumulator.apply_grad(gradient, self.local_step))
    with tf.control_dependencies(pushed):
      pushed_all = self._arrivals.enqueue(True)
    if self._cluster.is_chief:
      self._build_chief(accumulators, [variable for _, variable in gradients])
    else:
      self._build_worker()
    return pushed_all

  def make_hook(self, last_step: int, watch: Watch) -> tf.compat.v1.train.SessionRunHook:
    """What this replica does after each of its batches, until `last_step` updates are made."""
    make = _ChiefHook if self._cluster.is_chief else _WorkerHook
    return make(self, last_step, watch)

  def _queue(self, name: str) -> Any:
    return tf.queue.FIFOQueue(-1, [tf.bool], [[]], shared_name=name, name=name)

  def _accumulator(self, variable: Any) -> Any:
    with tf.device(variable.device):
      return tf.compat.v1.ConditionalAccumulator(
        variable.dtype.base_dtype, variable.shape, shared_name=f'{variable.op.name}/gradients'
      )

  def _build_chief(self, accumulators: Sequence[Any], variables: Sequence[Any]) -> None:
    counts = tf.stack([accumulator.num_accumulated() for accumulator in accumulators])
    with tf.control_dependencies([self._arrivals.dequeue()]), tf.device(self.global_step.device):
      # Counted after the wait. A worker that died while it pushed left some variables' only.
      self.fewest_gradients = tf.reduce_min(
        tf.stack([accumulator.num_accumulated() for accumulator in accumulators])
      )
    means = [accumulator.take_grad(self.gradients_per_update) for accumulator in accumulators]
    updated = self._optimizer.apply_gradients(zip(means, variables), self.global_step)
    go_on = [queue.enqueue(True) for queue in self._go[1:]]
    with tf.control_dependencies([updated]):
      self.update = tf.group(
        *(queue.enqueue(True) for queue in self._go[1:]),
        self._arrivals.dequeue_many(self._arrivals.size()),  # Only the chief takes any out.
      )
    self.counts = counts
    self.empty = [accumulator.take_grad(1).op for accumulator in accumulators]
    self.set_step = [accumulator.set_global_step(self.global_step) for accumulator in accumulators]
    with tf.control_dependencies(go_on):  # A worker that begins now forgets them.
      self.send_on = self._begun.enqueue(True)
    self.wake = self._arrivals.enqueue(True)

  def _build_worker(self) -> None:
    queue = self._go[self._cluster.worker]
    first = queue.dequeue()
    with tf.control_dependencies([first]):
      rest = queue.dequeue_many(queue.size())  # Of steps that went on without this worker.
    # True: go on. False: look around.
    self.wait = tf.reduce_any(tf.concat([[first], rest], 0))
    self.chief_has_begun = self._begun.size() > 0
    self.forget = queue.dequeue_many(queue.size()).op
    self.wake = queue.enqueue(False)


class _SyncHook(tf.compat.v1.train.SessionRunHook):
  """Feeds the step that this replica's gradient belongs to, and then waits for the next."""

  def __init__(self, replicas: SyncReplicas, last_step: int, watch: Watch):
    self._replicas = replicas
    self._last_step = last_step
    self._watch = watch
    self._local_step = 0

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._begin(session)
    self._local_step = session.run(self._replicas.global_step)
    self._watch.call_on_stop(lambda: session.run(self._replicas.wake))

  def before_run(self, run_context: Any) -> Any:
    return tf.compat.v1.train.SessionRunArgs(None, {self._replicas.local_step: self._local_step})

  def after_run(self, run_context: Any, run_values: Any) -> None:
    session = run_context.session
    while not self._watch.stopping:
      if self._is_over(session):
        self._local_step = session.run(self._replicas.global_step)
        break
    if self._watch.stopping or self._local_step >= self._last_step:
      run_context.request_stop()

  def _begin(self, session: Any) -> None:
    raise NotImplementedError

  def _is_over(self, session: Any) -> bool:
    """Waits for something to happen; whether the step is over."""
    raise NotImplementedError


class _ChiefHook(_SyncHook):
  """Updates when enough gradients are there."""

  def _begin(self, session: Any) -> None:
    counts = session.run(self._replicas.counts)
    session.run([op for op, count in zip(self._replicas.empty, counts) if count])
    session.run(self._replicas.set_step)
    session.run(self._replicas.send_on)

  def _is_over(self, session: Any) -> bool:
    if session.run(self._replicas.fewest_gradients) < self._replicas.gradients_per_update:
      return False
    session.run(self._replicas.update)
    return True


class _WorkerHook(_SyncHook):
  """Waits until the chief has updated."""

  def _begin(self, session: Any) -> None:
    while not self._watch.stopping and not session.run(self._replicas.chief_has_begun):
      time.sleep(_LOOK_SECONDS)
    session.run(self._replicas.forget)

  def _is_over(self, session: Any) -> bool:
    return session.run(self._replicas.wait)
