"""Dry run: checks everything that a training checks, times twenty steps, and reports.

The steps run like those of a training, with its hooks, saver and input, but alone, and in a
temporary job dir. Nothing is written to the job dir.
"""

import dataclasses
import os
import tempfile
import time
from typing import Any

import tensorflow as tf

from cifar10.cluster.roles import Role
from cifar10.core import files, limits
from cifar10.core.errors import InputError
from cifar10.core.logs import format_duration, log
from cifar10.data import manifest
from cifar10.job import checkpoints, job_config
from cifar10.job import run as job_run
from cifar10.job.run import Run
from cifar10.training import experiment, network_builder, schedules, trainer
from cifar10.training.evaluator import Evaluator
from cifar10.training.experiment import training_examples

_WARM_UP_STEPS = 5  # TensorFlow allocates memory, compiles and chooses kernels in the first steps.
_TIMED_STEPS = 20
_NEVER = 1 << 30  # A step that no dry run reaches.


def dry_run(run: Run, *, with_evaluations: bool) -> dict[str, Any]:
  """Checks all that a training checks; returns its size and duration, which the log has in words.

  In a cluster it checks this task's configuration and connects to no other task: the chief and the
  workers time the network as single processes; other tasks time nothing.

  Raises:
    InputError: a training would be refused for this reason.
    Terminated: the process received SIGTERM.
  """
  cluster = run.cluster
  report: dict[str, Any] = {
    'dry_run': True,
    **({'task': cluster.name} if cluster.addresses else {}),
  }
  report |= _described_network(run)
  if cluster.task_type == 'ps':
    log.info('%s computes no steps: none is timed', cluster.name)
    return report
  has_ended = cluster.is_chief and _check_job_dir(run)  # Other tasks may not see the folder.
  report |= _described_steps(run)
  is_evaluator = cluster.task_type == 'evaluator'
  if is_evaluator or (with_evaluations and run.role.evaluates_at_the_end):
    Evaluator(run).check(run.split_on_the_way, run.final_split)
  if is_evaluator:
    log.info('%s trains nothing: no step is timed', cluster.name)
    return report
  report |= _timed(run)
  if cluster.is_distributed:
    log.info('timed on this host alone: communication with other tasks adds to each step')
    return report
  steps = 0 if has_ended else max(report['train_steps'] - report['global_step'], 0)
  seconds = round(steps * report['seconds_per_step'], 1)
  duration = format_duration(seconds)
  log.info('training would take about %s, without evaluations and checkpoints', duration)
  return {**report, 'training_seconds': seconds}


def _described_network(run: Run) -> dict[str, Any]:
  size = network_builder.network_size(run.hparams, run.data)
  name = run.hparams.family.describe()
  counted = f'{size.macs / 1e6:.3g} M' if size.macs is not None else 'an unknown number of'
  uncounted = f' ({", ".join(size.uncounted)} is not counted)' if size.uncounted else ''
  log.info(
    f'{name} for {run.data.num_classes} classes: {size.trainable_parameters / 1e6:.3g} M trainable '
    f'parameters, {counted} multiplications an image{uncounted}'
  )
  return {
    'network': name,
    'trainable_parameters': size.trainable_parameters,
    'multiplications_per_image': size.macs,
  }


def _check_job_dir(run: Run) -> bool:
  """Checks what a training would read there; returns whether the job has ended early."""
  if trainer.still_ended(run.options):
    return True
  digests = manifest.digests(run.data_dir)
  before, now = job_config.before_and_now(run.job_dir, run.hparams, run.data_dir, run.data, digests)
  _check_writable(run.job_dir)
  changes = job_config.changes(before, now)
  if changes:
    log.info('unlike before in this job: %s', ', '.join(changes))
  trainer.check_resumes(run.hparams, run.options)
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


def _described_steps(run: Run) -> dict[str, Any]:
  """Returns how many steps to train, and how many an epoch has."""
  num_examples = training_examples(run).num_examples_per_epoch()
  run = experiment.for_training(run, num_examples, with_evaluations=False)
  steps_per_epoch = schedules.steps_of(1, num_examples, run.examples_per_step)
  epochs = run.last_step * run.examples_per_step / num_examples
  surveyed = checkpoints.to_resume_from(run.job_dir)
  if surveyed.damaged:
    log.info('damaged: %s; training would go on from %s', surveyed.described(), surveyed.newest)
  global_step = checkpoints.global_step(surveyed.newest) if surveyed.newest else 0
  log.info(
    f'{num_examples:,} examples an epoch, {run.examples_per_step:,} a step: {steps_per_epoch:,} '
    f'steps an epoch; step {global_step:,} of {run.last_step:,}, which are {round(epochs, 2):,} '
    'epochs'
  )
  return {
    'examples_per_epoch': num_examples,
    'examples_per_step': run.examples_per_step,
    'steps_per_epoch': steps_per_epoch,
    'global_step': global_step,
    'train_steps': run.last_step,
    'epochs': round(epochs, 3),
  }


def _timed(run: Run) -> dict[str, Any]:
  """Trains for some steps as a process alone; returns seconds, images/s and memory."""
  num_steps = _WARM_UP_STEPS + _TIMED_STEPS
  timer = _StepTimer(num_steps)
  is_new = run.is_chief and checkpoints.survey(run.job_dir).is_new
  temporary = tempfile.TemporaryDirectory(prefix='cifar10-dry-run-')
  with temporary as folder, files.naming_errors('TMPDIR', folder):
    options = dataclasses.replace(
      run.options,
      job_dir=folder,
      distribute=None,
      sync=False,
      backup_workers=0,
      max_minutes=None,  # All twenty steps are timed, and nothing is saved between them.
      eval_every_steps=_NEVER,
      save_every_steps=_NEVER,
      profile_steps=None,
      # A training that goes on takes no values.
      warm_start_from=run.options.warm_start_from if is_new else (),
    )
    enough = max(run.hparams.train_steps, num_steps)
    hparams = dataclasses.replace(run.hparams, train_steps=enough, train_epochs=None)
    alone = Role(options=options, monitor=run.monitor)
    experiment.train(job_run.begin(hparams, options, alone), [timer])
    # A file that is open when its folder is removed would be written again.
    tf.compat.v1.summary.FileWriterCache.clear()
  seconds = timer.seconds[_WARM_UP_STEPS:]
  mean, batch_size = sum(seconds) / len(seconds), run.hparams.train_batch_size
  log.info(
    f'{len(seconds)} steps after {_WARM_UP_STEPS} to warm up: {mean:.3g} s a step '
    f'({min(seconds):.3g} to {max(seconds):.3g}), {batch_size / mean:.0f} images/s'
  )
  return {
    'timed_steps': len(seconds),
    'seconds_per_step': round(mean, 6),
    'images_per_second': round(batch_size / mean, 1),
    **_peak_memory(run.placement.num_gpus),
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
