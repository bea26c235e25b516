"""Runs the user's own command after every evaluation."""

import os
import shlex
import subprocess
from collections.abc import Sequence

from cifar10.callbacks.base import Callback, Evaluation, Run
from cifar10.core.logs import log

_SECONDS = 60


def make(run: Run) -> Callback | None:
  """Returns the callback in the process that evaluates, if --on-evaluation is given."""
  return OnEvaluation(run) if run.options.on_evaluation else None


class OnEvaluation(Callback):
  """Runs the command without a shell, with the values in its environment; logs a failure."""

  def __init__(self, run: Run):
    self._job_dir = run.job_dir
    self._command = shlex.split(run.options.on_evaluation or '')

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    result = evaluation.result
    values = {
      'CIFAR10_ACCURACY': result['accuracy'],
      'CIFAR10_LOSS': result['loss'],
      'CIFAR10_STEP': evaluation.step,
      'CIFAR10_SUBSET': evaluation.split,
      'CIFAR10_EXAMPLES': result['examples'],
      'CIFAR10_CHECKPOINT': evaluation.checkpoint,
      'CIFAR10_JOB_DIR': self._job_dir,
    }
    failure = _run(
      self._command, {**os.environ, **{key: str(value) for key, value in values.items()}}
    )
    if failure:
      log.info('--on-evaluation %s %s', shlex.join(self._command), failure)


def _run(command: Sequence[str], environment: dict[str, str]) -> str:
  """Runs a command with stdout sent to stderr; returns what went wrong, or ''."""
  try:
    done = subprocess.run(
      command,
      env=environment,
      stdin=subprocess.DEVNULL,
      stdout=2,
      timeout=_SECONDS,
      check=False,
    )
  except subprocess.TimeoutExpired:
    return f'did not end in {_SECONDS} s, and was killed'
  except OSError as error:
    return f'cannot be run ({error.strerror})'
  return f'ended with code {done.returncode}' if done.returncode else ''
