"""Dry run: checks everything that a training checks, times twenty steps, and reports.

The steps run like those of a training, with its hooks, saver and input, but in a temporary job
dir. Nothing is written to the job dir.
"""

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from cifar10.cluster import choose_role, roles
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tasks import Cluster
from cifar10.core import files, limits, storage_errors
from cifar10.core.errors import InputError
from cifar10.core.logs import format_duration, log
from cifar10.data import manifest
from cifar10.job import adopted_config, checkpoints, job_config
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions
from cifar10.training import feed, network_size, placement, schedules, trainer
from cifar10.training.evaluator import Evaluator
from cifar10.training.process import Process, in_steps

_WARM_UP_STEPS = 5  # TensorFlow allocates memory, compiles and chooses kernels in the first steps.
_TIMED_STEPS = 20
_NEVER = 1 << 30  # A step that no dry run reaches.


def dry_run(
  hparams: HParams,
  options: RunOptions,
  cluster: Cluster,
  monitor: SignalMonitor,
  *,
  evaluating: bool,
) -> dict[str, Any]:
  """Checks all that a training checks; returns its size and duration, which the log has in words.

  In a cluster it checks this task's configuration and connects to no other task: the chief and the
  workers time the network as single processes; other tasks time nothing.

  Raises:
    InputError: a training would be refused for this reason.
    Terminated: the process received SIGTERM.
  """
  role = choose_role.choose(cluster, options, monitor)
  num_gpus = placement.num_gpus(options, len(tf.config.list_physical_devices('GPU')))
  hparams = placement.with_dtype(hparams, num_gpus)
  is_evaluator = cluster.task_type == 'evaluator'
  report: dict[str, Any] = {'dry_run': True}
  if cluster.addresses or is_evaluator:
    report['task'] = cluster.name
  report.update(_described_network(hparams, options))
  if cluster.task_type == 'ps':
    log.info('%s computes no steps: none is timed', cluster.name)
    return report
  # Other tasks may not see the folder.
  has_ended = cluster.is_chief and _check_job_dir(hparams, options)
  report.update(_plan(hparams, options, role))
  if not (role.saves and checkpoints.survey(options.job_dir).is_new):  # A training takes no values.
    options = dataclasses.replace(options, warm_start_from=(), warm_start_skip=None)
  with _temporary_process(hparams, options, monitor) as process:
    if is_evaluator or (evaluating and cluster.is_chief and not cluster.has_evaluator):
      Evaluator(process).check_splits()
    if is_evaluator:
      log.info('%s trains nothing: no step is timed', cluster.name)
      return report
    report.update(_timed(process, hparams.train_batch_size, num_gpus))
  if cluster.is_distributed:
    log.info('timed on this host alone: communication with other tasks adds to each step')
  else:
    report['training_seconds'] = 0.0 if has_ended else _training_seconds(report)
  return report


def _training_seconds(report: dict[str, Any]) -> float:
  """Estimates the seconds of the steps that are left, and logs them."""
  steps = max(report['train_steps'] - report['global_step'], 0)
  seconds = round(steps * report['seconds_per_step'], 1)
  duration = format_duration(seconds)
  log.info('training would take about %s, without evaluations and checkpoints', duration)
  return seconds


def _described_network(hparams: HParams, options: RunOptions) -> dict[str, Any]:
  data = job_config.described_data(options.job_dir, options.data_dir)
  size = network_size.network_size(hparams, data)
  name = hparams.family.describe()
  counted = f'{size.macs / 1e6:.3g} M' if size.macs is not None else 'an unknown number of'
  uncounted = f' ({", ".join(size.uncounted)} is not counted)' if size.uncounted else ''
  log.info(
    f'{name} for {data.num_classes} classes: {size.trainable_parameters / 1e6:.3g} M trainable '
    f'parameters, {counted} multiplications an image{uncounted}'
  )
  return {
    'network': name,
    'trainable_parameters': size.trainable_parameters,
    'multiplications_per_image': size.macs,
  }


def _check_job_dir(hparams: HParams, options: RunOptions) -> bool:
  """Checks what a training would read there; returns whether the job has ended early."""
  if trainer.still_ended(options):
    return True
  assert options.data_dir  # The command requires it.
  data = job_config.described_data(options.job_dir, options.data_dir)
  digests = manifest.digests(options.data_dir)
  before, now = job_config.before_and_now(options.job_dir, hparams, options.data_dir, data, digests)
  _check_writable(options.job_dir)
  changes = adopted_config.changes(before, now, options.job_dir) if before else []
  if changes:
    log.info('unlike before in this job: %s', ', '.join(changes))
  trainer.check_resumes(hparams, options)
  return False


def _check_writable(job_dir: str) -> None:
  """Raises InputError if the job dir, or the folder to make it in, cannot be written."""
  if files.is_url(job_dir):  # Only a write would show whether it can be written.
    return
  there = os.path.abspath(job_dir)
  while not os.path.exists(there):
    there = os.path.dirname(there)
  if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
    raise InputError(f'--job-dir {job_dir} cannot be written: {there} cannot; name another folder')


def _plan(hparams: HParams, options: RunOptions, role: roles.Role) -> dict[str, Any]:
  """Returns how many steps to train, and how many an epoch has."""
  data = job_config.described_data(options.job_dir, options.data_dir)
  assert options.data_dir  # The command requires it.
  examples = feed.training_examples(hparams, options.data_dir, role.cluster, data)
  num_examples = examples.num_examples_per_epoch()
  examples_per_step = role.examples_per_step(hparams.train_batch_size)
  [steps_per_epoch] = schedules.boundaries_in_steps([1], num_examples, examples_per_step)
  hparams, _ = in_steps(hparams, options, role, num_examples)
  epochs = hparams.train_steps * examples_per_step / num_examples
  surveyed = checkpoints.to_resume_from(options.job_dir)
  if surveyed.damaged:
    log.info('damaged: %s; training would go on from %s', surveyed.described(), surveyed.newest)
  global_step = checkpoints.global_step(surveyed.newest) if surveyed.newest else 0
  log.info(
    f'{num_examples:,} examples an epoch, {examples_per_step:,} a step: {steps_per_epoch:,} steps '
    f'an epoch; step {global_step:,} of {hparams.train_steps:,}, which are {round(epochs, 2):,} '
    'epochs'
  )
  return {
    'examples_per_epoch': num_examples,
    'examples_per_step': examples_per_step,
    'steps_per_epoch': steps_per_epoch,
    'global_step': global_step,
    'train_steps': hparams.train_steps,
    'epochs': round(epochs, 3),
  }


@contextlib.contextmanager
def _temporary_process(
  hparams: HParams, options: RunOptions, monitor: SignalMonitor
) -> Iterator[Process]:
  """A context with a process alone, which has enough steps to time, in a job dir that vanishes."""
  temporary = tempfile.TemporaryDirectory(prefix='cifar10-dry-run-')
  with temporary as folder, storage_errors.named('TMPDIR', folder):
    enough_steps = max(hparams.train_steps, _WARM_UP_STEPS + _TIMED_STEPS)
    longer = dataclasses.replace(hparams, train_steps=enough_steps, train_epochs=None)
    between = options.distribute == 'multi_worker_mirrored'
    alone = dataclasses.replace(
      options,
      job_dir=folder,
      distribute=None if between else options.distribute,
      sync=False,
      backup_workers=0,
      max_minutes=None,  # All twenty steps are timed, and nothing is saved between them.
      eval_every_steps=_NEVER,
      eval_every_epochs=None,
      save_every_steps=_NEVER,
      save_every_epochs=None,
      on_evaluation=None,
      on_end=None,
      profile_steps=None,
    )
    yield Process(longer, alone, choose_role.choose(roles.ALONE, alone, monitor))


def _timed(process: Process, batch_size: int, num_gpus: int) -> dict[str, Any]:
  """Trains for some steps; returns seconds, images/s and memory."""
  timer = _StepTimer(_WARM_UP_STEPS + _TIMED_STEPS)
  trainer.train(process, [timer])
  # A file that is open when its folder is removed would be written again.
  tf.compat.v1.summary.FileWriterCache.clear()
  seconds = timer.seconds[_WARM_UP_STEPS:]
  mean = sum(seconds) / len(seconds)
  log.info(
    f'{len(seconds)} steps after {_WARM_UP_STEPS} to warm up: {mean:.3g} s a step '
    f'({min(seconds):.3g} to {max(seconds):.3g}), {batch_size / mean:.0f} images/s'
  )
  return {
    'timed_steps': len(seconds),
    'seconds_per_step': round(mean, 6),
    'images_per_second': round(batch_size / mean, 1),
    **_peak_memory(num_gpus),
  }


class _StepTimer(tf.compat.v1.train.SessionRunHook):
  """Measures the time of each step with its hooks, and ends training after the last one."""

  def __init__(self, num_steps: int):
    self.seconds: list[float] = []
    self._num_steps = num_steps

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._since = time.monotonic()

  def after_run(self, run_context: Any, run_values: Any) -> None:
    now = time.monotonic()
    self.seconds.append(now - self._since)
    self._since = now
    if len(self.seconds) == self._num_steps:
      run_context.request_stop()


def _peak_memory(num_gpus: int) -> dict[str, Any]:
  """Returns the peak memory of this process and its first GPU, in MiB; {} without Linux's /proc."""
  peaks = {}
  # Not getrusage: it also counts the process before exec, perhaps the parent's memory.
  for kibibytes in limits.numbers('/proc/self/status', 'VmHWM:'):
    peaks['peak_memory_mebibytes'] = kibibytes // 1024
  if num_gpus:
    peak = tf.config.experimental.get_memory_info('GPU:0')['peak']
    peaks['peak_gpu_memory_mebibytes'] = peak // 2**20
  for name, mebibytes in peaks.items():
    log.info('%s: %s MiB', name.removesuffix('_mebibytes').replace('_', ' '), f'{mebibytes:,}')
  return peaks
