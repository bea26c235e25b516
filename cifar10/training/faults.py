"""The end of a training by a signal or an error: what callbacks and the user hear of it."""

import contextlib
from collections.abc import Sequence

import tensorflow as tf

from cifar10.callbacks.base import Callback
from cifar10.cluster.signals import SignalMonitor
from cifar10.core.errors import CommandError, InputError, MisfitError, StorageError, Terminated
from cifar10.core.logs import log
from cifar10.job import checkpoints, stop_record
from cifar10.job.run import Run


def tell(error: BaseException, run: Run, callbacks: Sequence[Callback], step: int) -> None:
  """Tells callbacks of an end that is none of the training's own; raises InputError for a NaN."""
  if isinstance(error, Terminated):  # It came while a checkpoint was evaluated.
    if run.is_chief and run.stop_request.reason:
      with contextlib.suppress(OSError):
        last_step = checkpoints.latest_step(run.job_dir)
        stop_record.write(run.job_dir, run.stop_request.reason, last_step)
    tell_stop(callbacks, run.monitor, step)
  elif isinstance(error, KeyboardInterrupt):  # The second Ctrl-C, for which nothing is saved.
    _tell_all(callbacks, 'SIGINT', 'SIGINT came twice', step)
  else:
    first_line = str(error).partition('\n')[0]
    _tell_all(callbacks, 'error', f'{type(error).__name__}: {first_line}', step)
    if isinstance(error, MisfitError):  # A user's network or callback has others now.
      raise InputError(
        f'--job-dir {run.job_dir} was trained with other variables: {error.checkpoint} does not '
        f'fit ({error.fault}); undo what changed them, or name another folder'
      ) from None
    _name_nan(error, run)


def tell_stop(callbacks: Sequence[Callback], monitor: SignalMonitor, step: int) -> None:
  """Tells callbacks of an end by a signal, or by the loss of another task."""
  lost, heard = monitor.lost, monitor.heard
  reason = ('task_lost', lost) if lost else (heard, f'{heard} came')
  _tell_all(callbacks, *reason, step)


def _tell_all(callbacks: Sequence[Callback], reason: str, message: str, step: int) -> None:
  """Tells all callbacks, which cannot make another end of it."""
  for callback in callbacks:
    try:
      callback.on_train_end(reason, message, step)
    except (OSError, StorageError, tf.errors.OpError):
      pass  # Where no file can be written, this one cannot write either; the next may still tell.
    except CommandError as error:
      log.error('error: %s', error)


def _name_nan(error: BaseException, run: Run) -> None:
  if isinstance(error, tf.errors.InvalidArgumentError):  # Of a user's network or callback.
    for line in str(error).splitlines():
      if 'in summary histogram' in line:
        raise InputError(f'{line}: give it finite values, or lower --learning-rate') from None
  if isinstance(error, tf.compat.v1.train.NanLossDuringTrainingError):
    for name, rate in run.control.state.rates().items():
      raise InputError(
        f'the loss became NaN with {name}={rate:g}, as control set it; `python -m cifar10.control '
        f'{run.job_dir} {name}=schedule` goes back to the options'
      ) from None
    raise InputError(
      f'the loss became NaN with --learning-rate {run.hparams.learning_rate}; lower '
      'it, name a new --job-dir or resume from the last checkpoint'
    ) from None
