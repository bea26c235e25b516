"""One process's run of a job: what every mode, hook and callback knows of it."""

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2

from cifar10.cluster.roles import ALONE, Role
from cifar10.cluster.tf_config import Cluster
from cifar10.core import devices
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.core.option import flag_of
from cifar10.data.manifest import WIDTH, DatasetInfo
from cifar10.job import control_requests, job_config, metrics_log, stop_record, variable_files
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions


class Placement(NamedTuple):
  """The devices of a replica's towers and variables, and the layout of its activations.

  The device setters in training/towers.py then place each variable.
  """

  num_gpus: int  # Each has a tower; without any there are CPU towers.
  variable_strategy: str  # 'CPU' or 'GPU'
  num_cpu_towers: int = 1
  given_format: str | None = None  # None: the one that these devices are fast with.

  @property
  def data_format(self) -> str:
    """Returns 'channels_first' or 'channels_last'."""
    return self.given_format or ('channels_first' if self.num_gpus else 'channels_last')

  @property
  def tower_devices(self) -> list[str]:
    """Returns a device per tower: all GPUs, or else virtual CPUs."""
    kind, count = ('GPU', self.num_gpus) if self.num_gpus else ('CPU', self.num_cpu_towers)
    return [f'/device:{kind}:{index}' for index in range(count)]


def _no_predictor() -> Callable[[np.ndarray], np.ndarray]:
  raise InputError('run.predictor() is of the process that trains; elsewhere use cifar10.load')


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
  stop_reason: stop_record.StopReason | None = None  # why training is to end after this step
  # In training only:
  examples_per_epoch: int = 0
  evaluates: bool = False  # whether the mode has evaluations, here or in an evaluator
  # Saves, and evaluates if asked to; returns the checkpoint's path.
  save: Callable[[tf.compat.v1.Session, bool], str] = lambda session, evaluating: ''
  # Returns a function from images uint8 [n, 32, 32, 3] to probabilities float32 [n, classes], by
  # the weights that the training has when that is called; with --use-ema by their averages.
  predictor: Callable[[], Callable[[np.ndarray], np.ndarray]] = _no_predictor
  step: int = 0  # the last one that was made; the one of a checkpoint that was evaluated
  steps_lost: int = 0  # those beyond the checkpoint that parameter servers had at the start
  seconds_before: float = 0.0  # trained by earlier processes; `metrics` sets it
  _since: float = dataclasses.field(default_factory=time.monotonic)

  @property
  def job_dir(self) -> str:
    return self.options.job_dir

  @property
  def data_dir(self) -> str:
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
    return self.hparams.train_batch_size * self.role.gradients_per_update

  def epochs(self, step: int) -> int:
    """Returns how many whole epochs are finished at a global step of this training."""
    return step * self.examples_per_step // self.examples_per_epoch

  def work(self, step: int) -> float:
    """Returns what the steps up to `step` cost, in steps on whole images: time follows pixels."""
    work, first = 0.0, 0
    for side, end in [*self.hparams.sides_and_ends(), (WIDTH, step)]:
      last = min(end, step)
      work, first = work + (last - first) * (side / WIDTH) ** 2, last
    return work

  @property
  def cluster(self) -> Cluster:
    return self.role.cluster

  @property
  def is_chief(self) -> bool:
    """Tells whether this process writes into the job dir while it trains."""
    return self.role.cluster.is_chief

  def seconds(self) -> float:
    """Returns the seconds trained by this process and the job's earlier ones, with evaluations."""
    return self.seconds_before + time.monotonic() - self._since

  def stop(self, message: str, name: str = stop_record.BY_CALLBACK, value: float = 0.0) -> None:
    """Ends training after this step; in a cluster, for all tasks.

    The same command then says why; `python -m cifar10.control JOB go-on` lifts it. For an option
    of early stopping, `name` is its name and `value` what has reached the limit.
    """
    reason = stop_record.StopReason(name, message, value)
    if self.stop_reason is None:  # The first reason counts.
      self.stop_reason = reason
      log.info('ending: %s', message)
    if self.is_chief:
      self.role.control.state = self.role.control.state._replace(ends=True)
    else:  # An evaluator asks it, again each time: it may have been killed.
      control_requests.request(self.job_dir, 'stop', reason)

  def set_rate(self, rate: float | None, name: str = 'learning_rate') -> None:
    """Sets a learning rate in place of the schedule's from the next step on, in all replicas.

    None returns to the schedule. A run that resumes the job keeps the rate.

    Raises:
      InputError: the job trains without it, or the job dir cannot be written.
      ValueError: it is negative or not finite.
    """
    if not getattr(self.hparams, name):
      raise InputError(f'{name}: this job trains without {flag_of(name)}')
    state = self.role.control.state.with_rate(name, rate)
    control_requests.remember_rates(self.job_dir, state.rates())
    self.role.control.state = state

  def put_scalar(self, name: str, value: float) -> None:
    """Adds a point at the current step: of a curve in TensorBoard, and in metrics.jsonl."""
    said = {'name': name, 'value': float(value)}
    metrics_log.append(self.job_dir, 'scalar', self.step, self.cluster.name, **said)
    # The chief writes the training's curves, an evaluator those of what it evaluates.
    folder = self.job_dir if self.is_chief else os.path.join(self.job_dir, self.split_on_the_way)
    metrics_log.write_scalars(folder, self.step, {name: float(value)})

  def session_config(self, cluster: Cluster = ALONE) -> tf.compat.v1.ConfigProto:
    """Returns the settings of sessions: this machine's devices, and the visible tasks."""
    config = devices.session_config(
      self.options.num_cpu_towers, self.placement.num_gpus, cluster.device_filters
    )
    config.log_device_placement = self.options.log_device_placement
    if cluster.is_reduced:
      config.experimental.collective_group_leader = '/job:chief/replica:0/task:0'
    if cluster.is_distributed and self.hparams.dtype == 'bfloat16':
      # TensorFlow would join operations into some that it can run in a single process only.
      config.graph_options.rewrite_options.remapping = rewriter_config_pb2.RewriterConfig.OFF
    return config


def begin(
  hparams: HParams,
  options: RunOptions,
  role: Role | None = None,
  own_callbacks: Sequence[tuple[str, Callable[[Run], Any]]] = (),
) -> Run:
  """Checks devices and data set, and resolves the options that depend on them.

  Without a role it is a single process. It writes nothing but the job of --pretrained. Raises
  InputError for devices that cannot run, and for another data set than the job's.
  """
  if options.deterministic:
    tf.config.experimental.enable_op_determinism()
  num_gpus = gpus_to_use(options, len(tf.config.list_physical_devices('GPU')))
  if options.pretrained:
    variable_files.unpack_pretrained(options)
  hparams, role = with_dtype(hparams, num_gpus), role or Role(ALONE, options)
  data = job_config.described_data(options.job_dir, options.data_dir)
  # To a single GPU each step would copy the CPU's variables, and back.
  strategy = options.variable_strategy or ('GPU' if num_gpus == 1 else 'CPU')
  placement = Placement(num_gpus, strategy, options.num_cpu_towers, options.data_format)
  return Run(hparams, options, role, data, placement, own_callbacks)


def gpus_to_use(options: RunOptions, visible: int) -> int:
  """Returns how many GPUs to use; raises InputError for a combination that cannot run."""
  count = visible if options.num_gpus is None else options.num_gpus
  # TensorFlow's own words on it are hidden with the rest of its log.
  cannot_use = options.num_gpus != 0 and not visible and devices.has_unused_gpu()
  remedy = 'make install GPU=1, or a newer driver (docs/support.md)'
  if count > visible:
    instead = remedy if cannot_use else 'ask for fewer'
    raise InputError(f'--num-gpus {count} but TensorFlow sees {visible}; {instead}')
  if cannot_use:
    log.warning('this machine has a GPU that TensorFlow cannot use: %s', remedy)
  if count and (towers := options.num_cpu_towers) > 1:
    raise InputError(f'--num-cpu-towers {towers} and {count} GPUs; add --num-gpus 0')
  for flag, value in (('variable_strategy', 'GPU'), ('data_format', 'channels_first')):
    if getattr(options, flag) == value and not count:
      raise InputError(f'{flag_of(flag)} {value} needs a GPU and there is none; leave it out')
  return count


def with_dtype(hparams: HParams, num_gpus: int) -> HParams:
  """Resolves --dtype auto for these devices; logs if the given dtype is slow here."""
  fast, reason = devices.fast_dtype(num_gpus)
  if hparams.dtype == 'bfloat16' and fast != 'bfloat16':
    slow = '--dtype bfloat16 is slow here, on a CPU about a fifth as fast as float32'
    log.warning('%s: %s; --dtype auto would take float32', slow, reason)
  if hparams.dtype != 'auto':
    return hparams
  log.info('--dtype auto is %s: %s', fast, reason)
  return dataclasses.replace(hparams, dtype=fast)
