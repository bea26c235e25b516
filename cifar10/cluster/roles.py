"""The role of a process in its job: the base of all roles, and that of a task of a cluster."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from cifar10.cluster.control import ChiefControlHook, SharedControl, StopRequested
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tasks import Cluster
from cifar10.options.run_options import RunOptions

ALONE = Cluster()
_DEFAULTS = RunOptions(job_dir='.')


class Role:
  """The role of a single process: it trains, saves and evaluates. Other roles derive from it.

  Attributes:
    cluster: all tasks, this process's among them.
    monitor: hears SIGTERM and, in a cluster, watches the other tasks.
    control: the orders that the chief gives between steps.
    gradients_per_update: of workers, in synchronous training; 0: each is applied as it comes.
    updates_later: whether a hook after a step makes its update, as in synchronous training.
    ends_by_itself: whether it may end at a step of its own choice.
    needs_everyone: whether none can train on without all others.
  """

  gradients_per_update = 0
  updates_later = False
  ends_by_itself = True
  needs_everyone = False

  def __init__(
    self,
    cluster: Cluster = ALONE,
    options: RunOptions = _DEFAULTS,
    monitor: SignalMonitor | None = None,
  ):
    """Args:
    cluster: all tasks, with this process's own.
    options: how the tasks share an update.
    monitor: one that the process already has.
    """
    self.cluster = cluster
    self.monitor = monitor or self._make_monitor(options)
    self.control = self._make_control()

  def _make_monitor(self, options: RunOptions) -> SignalMonitor:
    if not self.cluster.addresses:
      return SignalMonitor()
    spare = self._spare_workers(options)
    return LivenessMonitor(self.cluster, spare, options.start_timeout, self.needs_everyone)

  def _spare_workers(self, options: RunOptions) -> int:
    """Returns how many workers may be missing while the others train."""
    return 0

  def _make_control(self) -> SharedControl:
    return SharedControl()

  @property
  def saves(self) -> bool:
    """Tells whether it writes the job dir: configuration, checkpoints, summaries."""
    return self.cluster.is_chief

  @property
  def evaluates_on_the_way(self) -> bool:
    """Tells whether training in this process evaluates its checkpoints."""
    return not (self.cluster.is_distributed or self.cluster.has_evaluator)

  @property
  def evaluates_at_the_end(self) -> bool:
    """Tells whether this process makes the last evaluation."""
    return self.saves and not self.cluster.has_evaluator

  @property
  def updates_moving_averages(self) -> bool:
    """Tells whether this process updates batch norm's moving averages."""
    return self.saves or not self.gradients_per_update

  def examples_per_step(self, batch_size: int) -> int:
    """Returns how many examples one global step learns from, all workers together.

    In synchronous training a step takes a batch from every worker, N fewer with N backup workers
    (further batches that arrive in time are used, but not counted). In asynchronous training each
    worker's batch is a step of its own. The schedule and the examples/s counter both call this.
    """
    return batch_size * (self.gradients_per_update or 1)

  @property
  def counts_steps(self) -> bool:
    """Tells whether each run of this process's session makes one global step."""
    return not self.cluster.is_distributed or (self.saves and self.gradients_per_update > 0)

  def described(self) -> str:
    """Returns ', as worker 0 of 3 workers and 1 parameter server(s), updating asynchronously'."""
    cluster, gradients = self.cluster, self.gradients_per_update
    if not cluster.is_distributed:
      return ''
    updates = f'every {gradients} gradients' if gradients else 'asynchronously'
    servers = f' and {cluster.num_ps} parameter server(s)' if cluster.num_ps else ''
    return f', as {cluster.name} of {cluster.num_workers} workers{servers}, updating {updates}'

  def scaffold(self, local_init_op: Any = None) -> Any:
    """How the training's session begins, where this process initialises or restores all variables.

    It asks no variable whether it is initialised, which takes a quarter of a second in all.
    """
    none = tf.constant([], tf.string)
    return tf.compat.v1.train.Scaffold(
      local_init_op=local_init_op, ready_op=none, ready_for_local_init_op=none
    )

  def batches_done(self, global_step: Any) -> Any:
    """Returns how many batches this process has taken at a global step."""
    return global_step

  def optimizer(self, optimizer: Any) -> Any:
    """Returns what makes updates with `apply_gradients(gradients, global_step)`."""
    return optimizer

  def training_hooks(self, optimizer: Any, last_step: int) -> list[Any]:
    """Returns the session hooks that the update needs; `optimizer` was returned by that method."""
    del optimizer, last_step
    return []

  def first_hooks(self) -> list[Any]:
    """Returns the session hooks that precede all others."""
    return []

  def control_hooks(self, stop_request: StopRequested) -> list[Any]:
    """Returns the session hooks that send or obey the chief's control state."""
    return [ChiefControlHook(self.control, stop_request)]

  def connected(self, session_config: Any) -> contextlib.AbstractContextManager[None]:
    """A context in which this process can train, with the tasks that it needs.

    Args:
      session_config: the ConfigProto of the training's session, and of a server that is started.
    """
    del session_config
    return contextlib.nullcontext()

  def announce_done(self) -> None:
    """Tells the other tasks that this one no longer needs them."""


class TaskRole(Role):
  """Base of the tasks that train together."""

  def scaffold(self, local_init_op: Any = None) -> Any:
    """The Estimator's: a worker waits until the chief has initialised the variables."""

  @contextlib.contextmanager
  def connected(self, session_config: Any) -> Iterator[None]:
    """Starts TensorFlow's server, which the other tasks reach.

    The Estimator's own would have no more of the configuration than the GPUs' options: neither
    threads nor virtual CPUs. `Cluster.tf_config` keeps it from starting one.
    """
    _shorten_waits()
    cluster = self.cluster
    self._server = tf.distribute.Server(
      tf.train.ClusterSpec(dict(cluster.addresses)),
      cluster.task_type,
      cluster.task_index,
      config=session_config,
    )
    yield


class AfterExchange:
  """An optimizer whose update is made with gradients that were first exchanged with other tasks."""

  def __init__(self, optimizer: Any, exchange: Callable[[Any, Any], Any]):
    """`exchange`: gradients and their variables -> (gradient, variable) pairs."""
    self._optimizer, self._exchange = optimizer, exchange

  def apply_gradients(self, gradients: Any, global_step: Any) -> tf.Operation:
    """As any optimizer's: of (gradient, variable) pairs, dense."""
    return self._optimizer.apply_gradients(self._exchange(*zip(*gradients)), global_step)


def _shorten_waits() -> None:
  """Makes a worker check every second, not every 30, whether the chief has initialised the model.

  MonitoredTrainingSession creates its session manager without passing on an interval.
  """
  manager = tf.compat.v1.train.SessionManager
  if not isinstance(vars(manager)['__init__'], functools.partialmethod):
    manager.__init__ = functools.partialmethod(manager.__init__, recovery_wait_secs=1)
