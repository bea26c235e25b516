"""Dry run: checks all that a training checks, and times ten steps in a temporary job dir."""

import dataclasses
import tempfile
import time
from typing import Any

import tensorflow as tf

from cifar10.cluster.roles import Role
from cifar10.core import files
from cifar10.core.logs import format_duration, log
from cifar10.job import checkpoints
from cifar10.job import run as job_run
from cifar10.training import experiment, network_builder, schedules, trainer
from cifar10.training.evaluator import Evaluator

_WARM_UP_STEPS = 5  # TensorFlow allocates memory, compiles and chooses kernels in the first steps.
_TIMED_STEPS = 10
_NEVER = 1 << 30  # A step that no dry run reaches.


def dry_run(run: job_run.Run, *, with_evaluations: bool) -> dict[str, Any]:
  """Checks all that a training checks; returns its size and duration.

  In a cluster it checks this task's configuration and connects to no other task: the chief and the
  workers time the network as single processes; other tasks time nothing.

  Raises InputError where a training would be refused, Terminated after SIGTERM.
  """
  cluster, hparams = run.cluster, run.hparams
  trained, multiplications = network_builder.network_size(hparams, run.data)
  report: dict[str, Any] = {
    'dry_run': True,
    **({'task': cluster.name} if cluster.addresses else {}),
    'network': hparams.family.describe(),
    'trainable_parameters': trained,
    'multiplications_per_image': multiplications,
  }
  if cluster.task_type == 'ps':
    return report
  has_ended = cluster.is_chief and trainer.still_ended(run.options)
  trainer.claim(run, writes=False)
  num_examples = experiment.training_examples(run).num_examples_per_epoch()
  training = experiment.for_training(run, num_examples)
  last_step = training.last_step
  report |= {
    'examples_per_epoch': num_examples,
    'examples_per_step': run.examples_per_step,
    'steps_per_epoch': schedules.steps_of(1, num_examples, run.examples_per_step),
    'global_step': checkpoints.latest_step(run.job_dir),
    'train_steps': last_step,
    'epochs': round(last_step * run.examples_per_step / num_examples, 3),
  }
  is_evaluator = cluster.task_type == 'evaluator'
  if is_evaluator or (with_evaluations and run.role.evaluates_at_the_end):
    Evaluator(run).check()
  if is_evaluator:
    return report
  mean = round(_seconds_per_step(run), 6)
  speed = round(hparams.train_batch_size / mean, 1)
  report |= {'timed_steps': _TIMED_STEPS, 'seconds_per_step': mean, 'images_per_second': speed}
  if not cluster.is_distributed:  # There communication with other tasks adds to each step.
    steps = max(training.work(last_step) - training.work(report['global_step']), 0)
    seconds = report['training_seconds'] = round(0 if has_ended else steps * mean, 1)
    duration = format_duration(seconds)
    log.info('training would take about %s, without evaluations and checkpoints', duration)
  return report


def _seconds_per_step(run: job_run.Run) -> float:
  """Trains for some steps as a process alone, in a temporary job dir; returns their mean time."""
  timer = _StepTimer()
  is_new = run.is_chief and not checkpoints.survey(run.job_dir).newest
  temporary = tempfile.TemporaryDirectory(prefix='cifar10-dry-run-')
  with temporary as folder, files.naming_errors('TMPDIR', folder):
    options = dataclasses.replace(
      run.options,
      job_dir=folder,
      sync=False,
      max_minutes=None,  # All steps are timed, and nothing is saved between them.
      eval_every_steps=_NEVER,
      save_every_steps=_NEVER,
      # A training that goes on takes no values.
      warm_start_from=run.options.warm_start_from if is_new else (),
    )
    steps = max(run.hparams.train_steps, _WARM_UP_STEPS + _TIMED_STEPS)
    # A graph for images of any size, as in the training; these are whole.
    sizes = run.hparams.resolutions and (run.hparams.resolutions[0], 1e-9)
    hparams = dataclasses.replace(
      run.hparams, train_steps=steps, train_epochs=None, resolutions=sizes
    )
    alone = Role(options=options, monitor=run.role.monitor)
    experiment.train(job_run.begin(hparams, options, alone), [timer])
    # A file that is open when its folder is removed would be written again.
    tf.compat.v1.summary.FileWriterCache.clear()
  return (timer.ends[-1] - timer.ends[_WARM_UP_STEPS - 1]) / _TIMED_STEPS


class _StepTimer(tf.compat.v1.train.SessionRunHook):
  """Notes when each step with its hooks has ended, and ends training after the last one."""

  def __init__(self) -> None:
    self.ends: list[float] = []

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self.ends.append(time.monotonic())
    if len(self.ends) == _WARM_UP_STEPS + _TIMED_STEPS:
      run_context.request_stop()
