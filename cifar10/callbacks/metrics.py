"""Writes the events of a job to JOB/metrics.jsonl (job/metrics_log.py)."""

import platform
import sys
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compat.v1 import Session
from tensorflow.train import Coordinator

import cifar10
from cifar10.callbacks.base import Callback, Evaluation, Means
from cifar10.core import devices, files
from cifar10.core.option import values
from cifar10.job import metrics_log
from cifar10.job.run import Run
from cifar10.options.hparams import all_values


class Metrics(Callback):
  """Writes each event when it happens, and the means of every hundred training steps."""

  def __init__(self, run: Run):
    self._run = run
    self._started = False
    self._saved_at = -1

  def after_create_session(self, session: Session, coord: Coordinator) -> None:
    step = self._run.step
    events = metrics_log.read(self._run.job_dir)  # Those of lost steps, too.
    steps_lost = metrics_log.go_back(self._run.job_dir, step)
    resumed = any(event['event'] == 'start' for event in events)  # The step may be 0 even then.
    if any(event['event'] == 'save' and event['step'] == step for event in events):
      self._saved_at = step  # TensorFlow saves the restored checkpoint again.
    if not self._started and step:  # What lost steps took counts; at step 0 all begins anew.
      self._run.seconds_before = max((event.get('seconds') or 0 for event in events), default=0)
    self._write(step, 'start', steps_lost=steps_lost, resumed=resumed, **_described(self._run))
    self._started = True

  def on_save(self, checkpoint: str, step: int) -> None:
    if step != self._saved_at:  # Two savers may save at one step.
      self._write(step, 'save', checkpoint=checkpoint, seconds=self._run.seconds())
    self._saved_at = step

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    result = {key: value for key, value in evaluation.result.items() if key != 'global_step'}
    if (tta := self._run.hparams.tta) != 'none':
      result |= {'tta': tta, 'tta_below': self._run.hparams.tta_below}
    matrix = np.asarray(evaluation.confusion_matrix).astype(int).tolist()
    same = {'event': 'evaluate', 'step': evaluation.step, 'subset': evaluation.split}
    events = metrics_log.read(self._run.job_dir)
    recorded = [event for event in events if same.items() <= event.items()]
    # A process that was killed after an evaluation, before its next save, repeats the evaluation; a
    # finished job's command makes the last one again, perhaps with other options.
    if not recorded or not (evaluation.on_the_way or result.items() <= recorded[-1].items()):
      self._write(evaluation.step, 'evaluate', **result, confusion_matrix=matrix)

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    self._write(step, 'end', reason=reason, message=message, seconds=self._run.seconds())

  def on_means(self, means: Means) -> None:
    per_step = self._run.examples_per_step
    self._write(
      means.step,
      'train',
      **means.values,
      epoch=means.step * per_step / self._run.examples_per_epoch,
      images_per_second=means.steps_per_second * per_step,
      seconds=self._run.seconds(),
    )

  def _write(self, step: int, name: str, **rest: Any) -> None:
    event = metrics_log.event(name, step, self._run.cluster.name, **rest)
    metrics_log.append(self._run.job_dir, event)


def _described(run: Run) -> dict[str, Any]:
  """Returns what a start tells of versions, hardware, options and data."""
  return {
    'versions': {
      'program': cifar10.__version__,
      'python': platform.python_version(),
      'tensorflow': tf.__version__,
      'numpy': np.__version__,
    },
    'hardware': devices.described_hardware(),
    'options': {**values(run.options), **all_values(run.hparams)},
    'data_set': run.data.to_json(),
    'data_dir': run.options.data_dir and files.absolute(run.options.data_dir),
    'examples_per_epoch': run.examples_per_epoch,
    'examples_per_step': run.examples_per_step,
    'train_steps': run.last_step,
    'cluster': {job: len(tasks) for job, tasks in run.cluster.addresses.items()},
    'command': sys.argv,
    'seconds': run.seconds_before,
  }
