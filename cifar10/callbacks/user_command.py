"""Runs a user's own commands: one after every evaluation, one at the end of training."""

import contextlib
import os
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cifar10.callbacks.base import Callback, Evaluation
from cifar10.core.logs import log
from cifar10.job.run import Run

_SECONDS = 60
# After a signal the process has 14 s, in which it also saves.
_LEFT = {'--on-evaluation': 1, '--on-end': 10}


def make(run: Run) -> Callback | None:
  """Returns the callback, if --on-evaluation or --on-end is given."""
  is_asked = run.options.on_evaluation or run.options.on_end
  return UserCommand(run) if is_asked else None


class UserCommand(Callback):
  """Runs a command without a shell, with the values in its environment; logs a failure."""

  def __init__(self, run: Run):
    self._run = run

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    result = evaluation.result
    values = {
      'ACCURACY': result['accuracy'],
      'LOSS': result['loss'],
      'STEP': evaluation.step,
      'SUBSET': evaluation.split,
      'EXAMPLES': result['examples'],
      'CHECKPOINT': evaluation.checkpoint,
    }
    self._start('--on-evaluation', self._run.options.on_evaluation, values)

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    if self._run.is_chief:
      values = {'REASON': reason, 'MESSAGE': message, 'STEP': step}
      self._start('--on-end', self._run.options.on_end, values)

  def _start(self, flag: str, command: str | None, values: Mapping[str, Any]) -> None:
    if not command:
      return
    named = {'JOB_DIR': self._run.job_dir, **values}
    variables = {f'CIFAR10_{name}': str(value) for name, value in named.items()}
    failure = self._run_command(shlex.split(command), {**os.environ, **variables}, _LEFT[flag])
    if failure:
      log.info('%s %s %s', flag, command, failure)

  def _run_command(
    self, command: Sequence[str], environment: dict[str, str], seconds_left: float
  ) -> str:
    """Runs a command with stdout sent to stderr; returns what went wrong, or ''.

    Once the run is to end, it has `seconds_left`.
    """
    try:
      child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=2)
    except OSError as error:
      return f'cannot be run ({error.strerror})'
    seconds, since = float(_SECONDS), ''
    end = time.monotonic() + seconds
    try:
      while time.monotonic() < end:
        if self._run.monitor.stopping and not since:
          seconds, since = seconds_left, ' once the run was to end'
          end = time.monotonic() + seconds
        with contextlib.suppress(subprocess.TimeoutExpired):
          code = child.wait(0.1)
          return f'ended with code {code}' if code else ''
    finally:
      child.kill()  # Does nothing to one that has ended.
      child.wait()
    return f'did not end in {seconds:g} s{since}, and was killed'
