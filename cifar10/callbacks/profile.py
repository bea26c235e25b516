"""Where the time of some steps goes: a trace in JOB/profile/, the costliest operations in the log.

Beside --profile-steps nothing is traced, and no step is slower for it.
"""

import json
import os
from typing import Any

import tensorflow as tf

from cifar10.callbacks import chrome_trace
from cifar10.callbacks.base import Callback, Run, Step
from cifar10.core import files
from cifar10.core.logs import log
from cifar10.options.run_options import first_and_last

FOLDER = 'profile'
_SHOWN = 10  # Operations in the log.


def make(run: Run) -> Callback | None:
  """With --profile-steps, in one process or in the chief."""
  asked = run.options.profile_steps
  if not (asked and run.is_chief):
    return None
  first, last = first_and_last(asked)
  return Profile(run.job_dir, first, last)


class Profile(Callback):
  """Traces the steps from `first` to `last`, both included.

  Where others make steps, too, its own among them, and at least one.
  """

  def __init__(self, job_dir: str, first: int, last: int):
    self._job_dir = job_dir
    self._first = first
    self._last = last
    self._step = 0
    self._traced: list[int] = []
    self._operations: list[chrome_trace.Operation] = []
    self._is_over = False

  def begin(self) -> None:
    self._global_step = tf.compat.v1.train.get_global_step()

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._step = int(session.run(self._global_step))
    if self._step >= self._last and not self._is_over:
      log.info('--profile-steps %s:%s: they were made before', self._first, self._last)
      self._is_over = True

  def on_step_end(self, step: Step) -> None:
    self._step = step.step

  def before_run(self, run_context: Any) -> Any:
    if self._is_over or self._step + 1 < self._first:
      return None
    full = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
    return tf.compat.v1.train.SessionRunArgs(None, options=full)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    if self._is_over or not run_values.options.trace_level:
      return
    self._traced.append(self._step)
    self._operations += chrome_trace.operations(run_values.run_metadata.step_stats)
    if self._step >= self._last:
      self._finish()

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    if self._traced and not self._is_over:  # Before the last of them.
      self._finish()

  def _finish(self) -> None:
    self._is_over = True
    folder = os.path.join(self._job_dir, FOLDER)
    files.make_folder(folder)
    path = os.path.join(folder, f'steps-{self._traced[0]}-{self._traced[-1]}.json')
    files.write_text(path, json.dumps(chrome_trace.to_json(self._operations)))
    log.info('profiled %s step(s): %s opens in https://ui.perfetto.dev', len(self._traced), path)
    for line in chrome_trace.table(self._operations, _SHOWN):
      log.info('%s', line)
    self._operations = []
