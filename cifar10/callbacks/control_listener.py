"""Looks for requests of `python -m cifar10.control`, and for JOB/hyper.txt, between two steps.

The code that carries requests out is loaded when the first request arrives.
"""

import time
from typing import Any

from cifar10.callbacks.base import Callback, Evaluation, Step
from cifar10.callbacks.control_commands import ControlCommands
from cifar10.core import files
from cifar10.job import job_config
from cifar10.job.run import Run

_LOOK_SECONDS = 0.5
_URL_LOOK_SECONDS = 10  # Training waits while it looks: 0.1 s with an object store.


def make(run: Run) -> Callback | None:
  """Returns the callback in the chief, which controls the other replicas."""
  return ControlListener(run) if run.is_chief else None


class ControlListener(Callback):
  """Looks for requests after each step and has them carried out."""

  def __init__(self, run: Run):
    self._run = run
    self._looked = 0.0
    self._look_seconds = _URL_LOOK_SECONDS if files.is_url(run.job_dir) else _LOOK_SECONDS
    self._step = 0
    self._commands: Any = None
    if commands := self._asked():
      commands.forget_old()

  def on_step_end(self, step: Step) -> None:
    self._step = step.step

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    self._run.last_evaluation = evaluation

  def after_run(self, run_context: Any, run_values: Any) -> None:
    if time.monotonic() - self._looked >= self._look_seconds:
      self._looked = time.monotonic()
      if commands := self._asked():
        commands.obey(run_context.session, self._step)

  def _asked(self) -> Any:
    """Returns the ControlCommands, from the first request on; None before."""
    if not self._commands and job_config.has_requests(self._run.job_dir):
      self._commands = ControlCommands(self._run)
    return self._commands
