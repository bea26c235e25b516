"""One process's run of a job: what every mode, hook and callback knows of it."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from cifar10.cluster import placement
from cifar10.cluster.control import SharedControl
from cifar10.cluster.placement import Placement
from cifar10.cluster.roles import ALONE, Role
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tasks import Cluster
from cifar10.core import sessions
from cifar10.data.info import DatasetInfo
from cifar10.job import job_config, unpack_pretrained
from cifar10.job.stop_record import StopRequest
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions


@dataclasses.dataclass
class Run:
  """One process of a job, with its options resolved: dtype and devices are chosen.

  `experiment.for_training` adds what only a training knows.
  """

  hparams: HParams  # the network and its optimization
  options: RunOptions
  role: Role  # alone, or a task of a cluster
  data: DatasetInfo  # the data set that the network classifies
  placement: Placement  # the devices of towers and variables
  # Name and maker of each callback of the user's own.
  own_callbacks: Sequence[tuple[str, Callable[['Run'], Any]]] = ()
  stop_request: StopRequest = dataclasses.field(default_factory=StopRequest)
  # In training only:
  examples_per_epoch: int = 0
  evaluates: bool = False  # whether this process evaluates on the way
  save: Callable[[Any, bool], str] = lambda session, evaluating: ''  # returns the checkpoint's path
  open_shell: Callable[[Any, int], None] | None = None  # set by `shell`: opens one at a step
  last_evaluation: Any = None  # set by `control_listener`
  seconds_before: float = 0.0  # trained by earlier processes; `metrics` sets it
  _since: float = dataclasses.field(default_factory=time.monotonic)

  @property
  def job_dir(self) -> str:
    """Returns the job dir, where all files of the job are."""
    return self.options.job_dir

  @property
  def data_dir(self) -> str:
    """Returns the folder of the record files."""
    assert self.options.data_dir  # The command requires it in modes that read data.
    return self.options.data_dir

  @property
  def last_step(self) -> int:
    """Returns the global step at which training ends."""
    return self.hparams.train_steps

  @property
  def final_split(self) -> str:
    """Returns the split of the last evaluation."""
    return self.options.subset or 'eval'

  @property
  def split_on_the_way(self) -> str:
    """Returns the split that is evaluated during training."""
    # Choosing by the test set would leak it; it is used only if no other split is left.
    return self.options.subset or ('validation' if self.hparams.train_on == 'train' else 'eval')

  @property
  def examples_per_step(self) -> int:
    """Returns how many examples one global step learns from, by all workers together."""
    return self.role.examples_per_step(self.hparams.train_batch_size)

  def epochs(self, step: int) -> int:
    """Returns how many whole epochs are finished at a global step of this training."""
    return step * self.examples_per_step // self.examples_per_epoch

  @property
  def cluster(self) -> Cluster:
    """Returns the cluster of all tasks, with this process's own."""
    return self.role.cluster

  @property
  def monitor(self) -> SignalMonitor:
    """Hears SIGTERM."""
    return self.role.monitor

  @property
  def control(self) -> SharedControl:
    """Returns the state by which the chief controls all replicas."""
    return self.role.control

  @property
  def is_chief(self) -> bool:
    """Tells whether this process writes into the job dir while it trains."""
    return self.role.saves

  def seconds(self) -> float:
    """Returns the seconds trained by all processes of this task, with evaluations and pauses."""
    return self.seconds_before + time.monotonic() - self._since

  def session_config(self, cluster: Cluster = ALONE) -> Any:
    """Returns the ConfigProto of sessions: this machine's threads, and the visible tasks."""
    options = self.options
    return sessions.session_config(
      options.num_cpu_towers,
      options.num_intra_threads,
      options.num_inter_threads,
      options.log_device_placement,
      cluster.device_filters,
      num_gpus=self.placement.num_gpus,
      group_leader=cluster.group_leader,
      # In a cluster TensorFlow would join operations in bfloat16 into some that it can run in a
      # single process only.
      fuses=not (cluster.is_distributed and self.hparams.dtype == 'bfloat16'),
    )


def begin(
  hparams: HParams,
  options: RunOptions,
  role: Role | None = None,
  own_callbacks: Sequence[tuple[str, Callable[[Run], Any]]] = (),
) -> Run:
  """Checks devices and data set, and resolves the options that depend on them.

  Without a role it is a single process. It writes nothing but the job of --pretrained.

  Raises:
    InputError: devices that cannot run, or another data set than the job's.
  """
  if options.deterministic:
    tf.config.experimental.enable_op_determinism()
  num_gpus = placement.num_gpus(options, len(tf.config.list_physical_devices('GPU')))
  role = role or Role(ALONE, options)
  hparams = placement.with_dtype(hparams, num_gpus)
  if options.pretrained:
    unpack_pretrained.unpack(options)
  return Run(
    hparams,
    options,
    role,
    job_config.described_data(options.job_dir, options.data_dir),
    placement.placement(options, num_gpus),
    own_callbacks,
  )
