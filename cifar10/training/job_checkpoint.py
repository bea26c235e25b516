"""The checkpoint that an evaluation, a prediction or an export takes."""

from collections.abc import Callable
from typing import TypeVar

from cifar10.core import files
from cifar10.core.errors import Terminated
from cifar10.core.logs import log
from cifar10.job import checkpoints
from cifar10.job.run import Run
from cifar10.training import ema, network_size

_Result = TypeVar('_Result')


def checkpoint(run: Run) -> str:
  """Returns the named or latest checkpoint; raises InputError if there is none."""
  named = run.options.checkpoint
  path = checkpoints.find(run.job_dir, named)
  if named and named != checkpoints.BEST:  # It may belong to another job.
    network_size.check_checkpoint(path, named, run.hparams, run.data)
  if run.options.use_ema:
    ema.check_are_in(path)
  return path


def with_checkpoint(run: Run, use: Callable[[str], _Result]) -> _Result:
  """Returns what `use` makes of the named or latest checkpoint; raises InputError without one.

  A training that keeps few checkpoints may delete one before it is read: then the next is taken.
  """
  while True:
    path = _pointed_at(run)
    try:
      return use(checkpoint(run))
    except Terminated:
      raise
    except Exception:
      if not path or files.exists(f'{path}.index') or path == _pointed_at(run):
        raise
    log.info('%s was deleted before it was read; taking the next', path)


def _pointed_at(run: Run) -> str:
  """Returns the checkpoint to use, which may be deleted already; '' if there is none."""
  named = run.options.checkpoint
  if named == checkpoints.BEST:
    return checkpoints.best(run.job_dir)
  return named or checkpoints.listed(run.job_dir) or ''
