"""Looks for requests of `python -m cifar10.control`, and for JOB/hyper.txt, between two steps.

What carries them out is loaded when the first one comes.
"""

import os
import time
from typing import Any

from cifar10.callbacks.base import Callback, Evaluation, Run, Step
from cifar10.core import files, parts
from cifar10.job import job_config

HYPER = 'hyper.txt'
_LOOK_SECONDS = 0.5
_URL_LOOK_SECONDS = 10  # A look stops the steps: for a tenth of a second with an object store.


def make(run: Run) -> Callback | None:
  """In the chief; the other replicas follow it."""
  return ControlListener(run) if run.is_chief and 'control' in parts.PARTS else None


class ControlListener(Callback):
  """Hears of requests, and has them carried out."""

  def __init__(self, run: Run):
    self._run = run
    self._looked = 0.0
    self._look_seconds = _URL_LOOK_SECONDS if files.is_url(run.job_dir) else _LOOK_SECONDS
    self._step = 0
    self._commands: Any = None  # What carries them out, from the first one on.
    self._hyper_read = (0, 0)
    self._hyper_has_changed()  # An earlier run obeyed what stands there.
    if job_config.has_requests(run.job_dir):
      parts.load('control').forget_old_requests(run)

  def on_step_end(self, step: Step) -> None:
    self._step = step.step

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    if self._commands:
      self._commands.evaluation = evaluation

  def after_run(self, run_context: Any, run_values: Any) -> None:
    if time.monotonic() - self._looked >= self._look_seconds:
      self._look(run_context.session)
    while self._commands and self._commands.paused and not self._ends():
      time.sleep(_LOOK_SECONDS)
      self._run.monitor.progressed()  # Nobody is being waited for.
      self._look(run_context.session)

  def _ends(self) -> bool:
    return bool(self._run.monitor.stopping or self._run.stop_request.reason)

  def _look(self, session: Any) -> None:
    self._looked = time.monotonic()
    has_requests, hyper = job_config.has_requests(self._run.job_dir), self._hyper_has_changed()
    if has_requests or hyper:
      self._commands = self._commands or parts.load('control').ControlCommands(self._run)
      self._commands.obey(session, self._step)
    if hyper:
      self._commands.obey_hyper(session, os.path.join(self._run.job_dir, HYPER))

  def _hyper_has_changed(self) -> bool:
    """Whether hyper.txt is there, and another than at the last call."""
    path = os.path.join(self._run.job_dir, HYPER)
    try:
      before, self._hyper_read = self._hyper_read, files.signature(path)
    except OSError:
      return False
    return self._hyper_read != before
