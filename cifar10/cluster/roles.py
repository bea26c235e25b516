"""The role of a process in its job: alone, or a task that trains in one of three ways.

What each way does differently is in its class: how it connects, how gradients become an update, and
the session hooks for that. `choose` chooses the class, once.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from cifar10.cluster import all_reduce, parameter_server, sync
from cifar10.cluster.control import (
  ChiefControlHook,
  SharedControl,
  StopRequested,
  WorkerControlHook,
)
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tf_config import Cluster
from cifar10.core.errors import TaskLostError
from cifar10.core.logs import log, one_line
from cifar10.options.run_options import RunOptions

ALONE = Cluster()
_DEFAULTS = RunOptions(job_dir='.')
Hooks = list[tf.compat.v1.train.SessionRunHook]


class Role:
  """The role of a single process: it trains, saves and evaluates. Also an evaluator's.

  Attributes:
    cluster: all tasks, this process's among them.
    monitor: hears SIGTERM and, in a cluster, watches the other tasks.
    control: the orders that the chief gives between steps.
    gradients_per_update: of workers, in synchronous training; 0: each is applied as it comes.
    saves: whether it writes the job dir: configuration, checkpoints, summaries.
    evaluates_on_the_way: whether training in this process evaluates its checkpoints.
    evaluates_at_the_end: whether this process makes the last evaluation.
    updates_moving_averages: whether this process updates batch norm's moving averages.
    counts_steps: whether each run of this process's session makes one global step.
    updates_later: whether a hook after a step makes its update, as in synchronous training.
    ends_by_itself: whether it may end at a step of its own choice.
  """

  updates_later = False
  ends_by_itself = True

  def __init__(
    self,
    cluster: Cluster = ALONE,
    options: RunOptions = _DEFAULTS,
    monitor: SignalMonitor | None = None,
  ):
    """`options` say how the tasks share an update; `monitor`: one that the process already has."""
    self.cluster = cluster
    waits = cluster.num_workers > 1 and (options.sync or options.distribute)
    self.gradients_per_update = cluster.num_workers - options.backup_workers if waits else 0
    if not monitor and cluster.addresses:
      spare = options.backup_workers if waits else cluster.num_workers
      monitor = LivenessMonitor(cluster, spare, options.start_timeout)
    self.monitor = monitor or SignalMonitor()
    server = '/job:ps/task:0' if cluster.is_distributed and cluster.num_ps else ''
    self.control = SharedControl(f'{server}/device:CPU:0')
    self._in_order = options.deterministic
    self.saves = cluster.is_chief
    self.evaluates_on_the_way = not (cluster.is_distributed or cluster.has_evaluator)
    self.evaluates_at_the_end = self.saves and not cluster.has_evaluator
    self.updates_moving_averages = self.saves or not self.gradients_per_update
    self.counts_steps = not cluster.is_distributed or (self.saves and self.gradients_per_update > 0)

  def examples_per_step(self, batch_size: int) -> int:
    """Returns how many examples one global step learns from, all workers together.

    In synchronous training a step takes a batch from every worker, N fewer with N backup workers
    (further batches that arrive in time are used, but not counted). In asynchronous training each
    worker's batch is a step of its own. The schedule and the examples/s counter both call this.
    """
    return batch_size * (self.gradients_per_update or 1)

  def described(self) -> str:
    """Returns ', as worker 0 of 3 workers and 1 parameter server(s), updating asynchronously'."""
    cluster, gradients = self.cluster, self.gradients_per_update
    if not cluster.is_distributed:
      return ''
    updates = f'every {gradients} gradients' if gradients else 'asynchronously'
    servers = f' and {cluster.num_ps} parameter server(s)' if cluster.num_ps else ''
    return f', as {cluster.name} of {cluster.num_workers} workers{servers}, updating {updates}'

  def batches_done(self, global_step: Any) -> Any:
    """Returns how many batches this process has taken at a global step.

    Of asynchronous training about that many: each worker has its own pace.
    """
    is_async = self.cluster.is_distributed and not self.gradients_per_update
    return global_step // self.cluster.num_workers if is_async else global_step

  def scaffold(self) -> tf.compat.v1.train.Scaffold | None:
    """How the training's session begins; None: as the Estimator does, a worker after the chief."""
    return None if self.cluster.is_distributed else _scaffold_of_all()

  def optimizer(self, optimizer: Any, last_step: int) -> Any:
    """Returns what makes updates with `apply_gradients(gradients, global_step)`.

    Where `updates_later`, it is a session hook, too.
    """
    return optimizer

  def with_control(self, hooks: Hooks, stop_request: StopRequested) -> Hooks:
    """Returns these session hooks with those that send or obey the chief's control state."""
    control = self.control
    last = ChiefControlHook(control, stop_request) if self.saves else WorkerControlHook(control)
    return [*hooks, last]

  @contextlib.contextmanager
  def connected(self, session_config: tf.compat.v1.ConfigProto) -> Iterator[None]:
    """A context in which this process can train; the configuration is of session and server.

    A task's server is TensorFlow's, which the other tasks reach. The Estimator's own would have no
    more of the configuration than the GPUs' options: neither threads nor virtual CPUs.
    `Cluster.tf_config` keeps it from starting one.
    """
    cluster = self.cluster
    if cluster.is_distributed:
      _shorten_waits()
      servers = tf.train.ClusterSpec(dict(cluster.addresses))
      self._server = tf.distribute.Server(
        servers, cluster.task_type, cluster.task_index, config=session_config
      )
    yield

  def announce_done(self) -> None:
    """Tells the parameter servers that this process no longer needs them."""
    parameter_server.announce_done(self.cluster)


class Replica(Role):
  """The chief or a worker of asynchronous training: its gradients are applied when they arrive."""

  def optimizer(self, optimizer: Any, last_step: int) -> Any:
    return _AfterExchange(optimizer, parameter_server.push)


class SyncReplica(Role):
  """The chief or a worker of synchronous training: one update from several workers' gradients."""

  updates_later = True

  def optimizer(self, optimizer: Any, last_step: int) -> sync.SyncReplicas:
    """Returns the optimizer that gathers gradients; the chief's applies their mean."""
    kind = sync.SyncChief if self.cluster.is_chief else sync.SyncWorker
    return kind(
      optimizer,
      self.cluster,
      needed=self.gradients_per_update,
      control=self.control,
      monitor=self.monitor,
      last_step=last_step,
      in_order=self._in_order,
    )


class MultiWorker(Role):
  """The chief or a worker of an all-reduce between processes."""

  monitor: LivenessMonitor
  control: all_reduce.SummedControl
  ends_by_itself = False

  def __init__(self, cluster: Cluster, options: RunOptions, monitor: SignalMonitor | None = None):
    super().__init__(cluster, options, monitor)
    self._sums = all_reduce.Sums(cluster)
    self.control = all_reduce.SummedControl(self._sums, cluster.is_chief)

  def scaffold(self) -> tf.compat.v1.train.Scaffold:
    """Begins a session with the chief's variables, which it has initialised or restored."""
    begin = [tf.compat.v1.train.Scaffold.default_local_init_op()]
    return _scaffold_of_all(tf.group(*begin, *self._sums.share_variables(are_here=self.saves)))

  def optimizer(self, optimizer: Any, last_step: int) -> Any:
    """Returns one that makes the update with the mean of all processes' gradients."""
    return _AfterExchange(optimizer, lambda own, to: zip(self._sums.of(own, mean=True), to))

  def with_control(self, hooks: Hooks, stop_request: StopRequested) -> Hooks:
    """A worker hears from the step itself, which distributes the chief's control state."""
    agreeing = [all_reduce.AgreementHook(self.monitor, self.control), *hooks]
    return super().with_control(agreeing, stop_request) if self.saves else agreeing

  @contextlib.contextmanager
  def connected(self, session_config: tf.compat.v1.ConfigProto) -> Iterator[None]:
    """Waits for the others before TensorFlow does, which would hear no signal."""
    self.monitor.wait_for_peers()
    try:
      with super().connected(session_config):
        yield
    except tf.errors.OpError as error:
      if 'ollective ops' not in str(error):
        raise
      self.monitor.check()
      log.info('%s', one_line(str(error)))
      raise TaskLostError(
        'another task of the all-reduce was lost, or is at another step; start all tasks again: '
        'they go on from the last checkpoint'
      ) from None


def choose(cluster: Cluster, options: RunOptions, monitor: SignalMonitor | None = None) -> Role:
  """The role of a task under these options; arguments are as for `Role`."""
  kind: type[Role] = Role
  if cluster.is_distributed:
    is_sync = options.sync and cluster.num_workers > 1
    kind = MultiWorker if options.distribute else SyncReplica if is_sync else Replica
  return kind(cluster, options, monitor)


def _shorten_waits() -> None:
  """Makes a worker look every second, not every 30, whether the chief has initialised the model.

  MonitoredTrainingSession creates its session manager without passing on an interval.
  """
  manager = tf.compat.v1.train.SessionManager
  if not isinstance(vars(manager)['__init__'], functools.partialmethod):
    manager.__init__ = functools.partialmethod(manager.__init__, recovery_wait_secs=1)


class _AfterExchange:
  """An optimizer whose update is made with gradients that were first exchanged with other tasks."""

  def __init__(self, optimizer: Any, exchange: Callable[[Any, Any], Any]):
    """`exchange`: gradients and their variables -> (gradient, variable) pairs."""
    self._optimizer, self._exchange = optimizer, exchange

  def apply_gradients(self, gradients: Any, global_step: Any) -> tf.Operation:
    """As any optimizer's: of (gradient, variable) pairs, dense."""
    return self._optimizer.apply_gradients(self._exchange(*zip(*gradients)), global_step)


def _scaffold_of_all(local_init_op: tf.Operation | None = None) -> tf.compat.v1.train.Scaffold:
  """Of a process that initialises or restores all variables: it asks none whether it has a value.

  To ask takes a quarter of a second in all.
  """
  none = tf.constant([], tf.string)
  return tf.compat.v1.train.Scaffold(
    local_init_op=local_init_op, ready_op=none, ready_for_local_init_op=none
  )
