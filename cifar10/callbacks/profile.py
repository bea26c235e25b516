"""Traces some steps by TensorFlow's own hook: JOB/profile/timeline-STEP.json."""

import os
from typing import Any

import tensorflow as tf

from cifar10.callbacks.base import Callback
from cifar10.core import files
from cifar10.core.logs import log
from cifar10.job.run import Run
from cifar10.options.run_options import first_and_last


def make(run: Run) -> Callback | None:
  """Returns the callback in a single process or the chief, if --profile-steps is given."""
  asked = run.options.profile_steps
  return Profile(run.job_dir, asked) if asked and run.is_chief else None


class Profile(tf.compat.v1.train.ProfilerHook, Callback):
  """Traces the steps from FIRST to LAST, both included.

  In a cluster it traces this worker's own steps among these, at least one.
  """

  def __init__(self, job_dir: str, asked: str):
    self._asked, self._folder = asked, os.path.join(job_dir, 'profile')
    files.make_folder(self._folder)
    with tf.Graph().as_default():  # In which TensorFlow makes a writer.
      tf.compat.v1.train.ProfilerHook.__init__(self, save_steps=1, output_dir=self._folder)
    self._timer = _Between(*first_and_last(asked))

  def after_create_session(self, session: Any, coord: Any) -> None:
    step = int(session.run(tf.compat.v1.train.get_global_step(session.graph)))
    self._next_step = step + 1
    self._timer.update_last_triggered_step(step)
    over = f'--profile-steps {self._asked}: these steps are already done'
    where = f'a trace of each step goes to {self._folder}; https://ui.perfetto.dev opens it'
    log.info('%s', over if step >= self._timer.last else where)


class _Between(tf.compat.v1.train.SecondOrStepTimer):
  """Triggers from the step `first` on, until `last` has been reached."""

  def __init__(self, first: int, last: int):
    super().__init__(every_steps=1)
    self.first, self.last = first, last

  def should_trigger_for_step(self, step: int) -> bool:
    return step >= self.first and self.last_triggered_step() < self.last
