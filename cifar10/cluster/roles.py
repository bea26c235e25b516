"""The role of a process in its job: alone, or a task that trains in one of three ways.

The ways differ in how a process connects, how gradients become an update, and in session hooks.
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from cifar10.cluster import all_reduce, control, parameter_server, sync
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.cluster.parameter_server import Gradients
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tf_config import Cluster
from cifar10.core.errors import TaskLostError
from cifar10.core.logs import log, one_line
from cifar10.options.run_options import RunOptions

ALONE = Cluster()
_DEFAULTS = RunOptions(job_dir='.')


class Role:
  """What a process does of its job: alone it trains, saves and evaluates.

  Attributes:
    cluster: all tasks, this process's among them.
    monitor: hears SIGTERM and, in a cluster, watches the other tasks.
    control: the orders that the chief gives between steps.
    together: whether several workers' gradients make each update.
    gradients_per_update: how many; 1 where each is applied as it comes.
    is_sync: whether a hook after a step makes its update, at parameter servers.
    evaluates_on_the_way: whether training in this process evaluates its checkpoints.
    evaluates_at_the_end: whether this process makes the last evaluation.
    updates_moving_averages: whether this process updates batch norm's moving averages.
    counts_steps: whether this process counts global steps by its own runs; others read the count.
  """

  def __init__(
    self,
    cluster: Cluster = ALONE,
    options: RunOptions = _DEFAULTS,
    monitor: SignalMonitor | None = None,
  ):
    """`options` say how the tasks share an update; `monitor`: one that the process already has."""
    self.cluster = cluster
    workers, is_distributed = cluster.num_workers, cluster.is_distributed
    self.together = workers > 1 and bool(options.sync or options.distribute)
    # More batches that arrive in time are used, but not counted.
    self.gradients_per_update = workers - options.backup_workers if self.together else 1
    self.is_sync = is_distributed and self.together and not cluster.is_reduced
    if not monitor and cluster.addresses:
      spare = options.backup_workers if self.together else workers
      monitor = LivenessMonitor(cluster, spare, options.start_timeout)
    self.monitor = monitor or SignalMonitor()
    self._sums = all_reduce.Sums(cluster)
    server = '/job:ps/task:0' if is_distributed and cluster.num_ps else ''
    self.control = control.SharedControl(f'{server}/device:CPU:0', cluster.is_chief)
    if cluster.is_reduced:
      self.control = all_reduce.SummedControl(self._sums, self.monitor, cluster.is_chief)
    self._in_order = options.deterministic
    self.evaluates_on_the_way = not (is_distributed or cluster.has_evaluator)
    self.evaluates_at_the_end = cluster.is_chief and not cluster.has_evaluator
    self.updates_moving_averages = cluster.is_chief or not self.together
    self.counts_steps = not is_distributed or (cluster.is_chief and self.together)

  def described(self) -> str:
    """Returns ', as worker 0 of 3 workers, updating asynchronously'; '' for a process alone."""
    if not self.cluster.is_distributed:
      return ''
    updates = f'every {self.gradients_per_update} gradients' if self.together else 'asynchronously'
    return f', as {self.cluster.name} of {self.cluster.num_workers} workers, updating {updates}'

  def batches_done(self, global_step: Any) -> Any:
    """Returns how many batches this process has taken at a global step.

    Of asynchronous training about that many: each worker has its own pace.
    """
    return global_step if self.together else global_step // self.cluster.num_workers

  def scaffold(self) -> tf.compat.v1.train.Scaffold | None:
    """How the training's session begins; None: as the Estimator does, a worker after the chief."""
    begin = None
    if self.cluster.is_reduced:  # With the chief's variables, which it has initialised or restored.
      shared = self._sums.share_variables(are_here=self.cluster.is_chief)
      begin = tf.group(tf.compat.v1.train.Scaffold.default_local_init_op(), *shared)
    elif self.cluster.is_distributed:
      return None
    # Who has all variables asks none whether it has a value, which takes a quarter of a second.
    none = tf.constant([], tf.string)
    return tf.compat.v1.train.Scaffold(
      local_init_op=begin, ready_op=none, ready_for_local_init_op=none
    )

  def exchanged(self, gradients: Gradients) -> Gradients:
    """Returns the pairs to apply: all-reduce's means, those at the servers, or these as given."""
    if self.is_sync or not self.cluster.is_distributed:
      return gradients
    own, variables = zip(*gradients)
    if self.cluster.is_reduced:
      return list(zip(self._sums.of(own, mean=True), variables))
    return parameter_server.push(own, variables)

  def optimizer(self, optimizer: Any, last_step: int) -> Any:
    """Returns what makes updates with `apply_gradients(gradients, global_step)`.

    In synchronous training it gathers the gradients of several workers, of which the chief's
    applies the mean, and is a session hook, too.
    """
    if not self.is_sync:
      return optimizer
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

  @contextlib.contextmanager
  def connected(self, session_config: tf.compat.v1.ConfigProto) -> Iterator[None]:
    """A context in which this process can train; `session_config` is its session's and server's.

    A task's server is TensorFlow's, which the other tasks reach. The Estimator's own would have no
    more of the configuration than the GPUs' options: neither threads nor virtual CPUs.
    `Cluster.tf_config` keeps it from starting one.
    """
    if self.cluster.is_reduced and isinstance(self.monitor, LivenessMonitor):
      self.monitor.wait_for_peers()  # TensorFlow would wait, too, but hear no signal.
    if self.cluster.is_distributed:
      # A worker looks every second, not every 30, whether the chief has initialised the model:
      # MonitoredTrainingSession creates its session manager without passing on an interval.
      manager = tf.compat.v1.train.SessionManager
      if not isinstance(vars(manager)['__init__'], functools.partialmethod):
        manager.__init__ = functools.partialmethod(manager.__init__, recovery_wait_secs=1)
      tasks, job, index = self.cluster.addresses, self.cluster.task_type, self.cluster.task_index
      self._server = tf.distribute.Server(dict(tasks), job, index, config=session_config)
    try:
      yield
    except tf.errors.OpError as error:
      if not (self.cluster.is_reduced and 'ollective ops' in str(error)):
        raise
      self.monitor.check()
      log.info('%s', one_line(str(error)))
      raise TaskLostError(
        'another task of the all-reduce was lost, or is at another step; start all tasks again: '
        'they go on from the last checkpoint'
      ) from None
