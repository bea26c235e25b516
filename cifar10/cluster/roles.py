"""What this process does in its job, chosen once: alone here, in a cluster in task_roles.py."""

from collections.abc import Sequence
from typing import Any

from cifar10.cluster.control import ChiefControlHook, SharedControl, StopRequested
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tasks import Cluster
from cifar10.core import parts
from cifar10.options.run_options import RunOptions

ALONE = Cluster()
_DEFAULTS = RunOptions(job_dir='.')


class Role:
  """A process alone: it trains, saves and evaluates. Other roles derive from it.

  Attributes:
    cluster: all tasks, this process's among them.
    monitor: hears SIGTERM and, in a cluster, watches the other tasks.
    control: the orders that the chief gives between steps.
    gradients_per_update: of workers, in synchronous training; 0: each is applied as it comes.
    all_reduce: whether tf.distribute copies the variables and adds up the gradients.
    updates_later: whether a hook after a step makes its update, as in synchronous training.
    ends_by_itself: whether it may end at a step of its own choice.
    is_alone: whether it initialises or restores all variables itself.
  """

  gradients_per_update = 0
  all_reduce = False
  updates_later = False
  ends_by_itself = True
  is_alone = True

  def __init__(
    self,
    cluster: Cluster = ALONE,
    options: RunOptions = _DEFAULTS,
    monitor: SignalMonitor | None = None,
  ):
    """Args:
    cluster: all tasks, this process's among them.
    options: how they share an update.
    monitor: of a process that has one already.
    """
    self.cluster = cluster
    self.monitor = monitor or self._make_monitor(options)
    self.control = self._make_control()

  def _make_monitor(self, options: RunOptions) -> SignalMonitor:
    """Of a process alone, which needs the data service at most."""
    if not (self.cluster.addresses or options.data_service):
      return SignalMonitor()
    return parts.load('liveness').LivenessMonitor(
      self.cluster, 0, options.start_timeout, self.all_reduce, options.data_service
    )

  def _make_control(self) -> SharedControl:
    return SharedControl()

  @property
  def saves(self) -> bool:
    """Whether it writes the job dir: configuration, checkpoints, summaries."""
    return self.cluster.is_chief

  @property
  def evaluates_on_the_way(self) -> bool:
    """Whether training in this process evaluates its checkpoints."""
    return not self.cluster.has_evaluator

  @property
  def evaluates_at_the_end(self) -> bool:
    """Whether this process makes the last evaluation."""
    return self.saves and not self.cluster.has_evaluator

  @property
  def updates_moving_averages(self) -> bool:
    """Once a step: in synchronous training all workers make a step together."""
    return self.saves or not self.gradients_per_update

  @property
  def counts_steps(self) -> bool:
    """Whether each run of this process's session makes one global step."""
    return True

  def described(self) -> str:
    """What the log says of it after the number of towers: nothing of a process alone."""
    return ''

  def strategy(self, devices: Sequence[str], num_gpus: int) -> Any:
    """The tf.distribute.Strategy, made before any operation runs; it may wait for others."""
    del devices, num_gpus

  def batches_done(self, global_step: Any) -> Any:
    """How many batches this process has taken at a global step."""
    return global_step

  def optimizer(self, optimizer: Any) -> Any:
    """What makes the update: with `apply_gradients(gradients, global_step)`, as the optimizer."""
    return optimizer

  def training_hooks(self, optimizer: Any, last_step: int) -> list[Any]:
    """What the update needs in a session: `optimizer` is what the method of that name returned."""
    del optimizer, last_step
    return []

  def control_hooks(self, stop_request: StopRequested) -> list[Any]:
    """By which it gives or obeys the chief's orders."""
    return [ChiefControlHook(self.control, stop_request)]

  def train(self, estimator: Any, input_fn: Any, last_step: int, hooks: Sequence[Any]) -> None:
    """Makes steps up to `last_step`, or until a hook ends them."""
    estimator.train(input_fn, max_steps=last_step, hooks=hooks)

  def announce_done(self) -> None:
    """Tells the other tasks that this one needs them no more."""


def choose(cluster: Cluster, options: RunOptions, monitor: SignalMonitor | None = None) -> Role:
  """The role of a task under these options; arguments are as for `Role`.

  Raises:
    InputError: an all-reduce that this TensorFlow cannot do.
  """
  if options.distribute or cluster.is_distributed or cluster.task_type == 'evaluator':
    return parts.load('task_roles').choose(cluster, options, monitor)
  return Role(cluster, options, monitor)
