"""JOB/ended.json: why a training stopped before its last step.

The record counts as long as its reason holds: a job that stopped at 93 % goes on when it is started
with a higher --stop-at-accuracy, or with none.
"""

import contextlib
import json
import os
from typing import Any, NamedTuple

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.options.run_options import RunOptions

NAME = 'ended.json'
BY_CONTROL = 'control'
# The other reasons are the names of the options that set their limits.
LIMITS = ('stop_at_accuracy', 'stop_without_gain', 'max_minutes')


class StopReason(NamedTuple):
  """Why a training ended early."""

  name: str  # BY_CONTROL or one of LIMITS
  message: str
  value: float = 0.0  # what reached the limit


class StopRequest:
  """Whether the training of this process is to stop after the current step, and why."""

  def __init__(self) -> None:
    self.reason: StopReason | None = None

  def request(self, reason: StopReason) -> None:
    """Asks the training to stop; of several reasons the first counts."""
    if self.reason is None:
      self.reason = reason
      log.info('ending: %s', reason.message)


def write(job_dir: str, reason: StopReason, step: int) -> None:
  """Records that the job ended at this step; raises OSError."""
  content = files.json_text({**reason._asdict(), 'step': step}, indent=2)
  files.write_text(os.path.join(job_dir, NAME), content + '\n')


def lift(job_dir: str) -> None:
  """Removes the record, so that the job goes on."""
  with contextlib.suppress(FileNotFoundError):
    files.remove(os.path.join(job_dir, NAME))


def read(job_dir: str) -> tuple[StopReason, int] | None:
  """Why the job ended, and its step then; None for one that did not end early.

  Raises:
    InputError: the file is damaged.
  """
  path = os.path.join(job_dir, NAME)
  try:
    record: Any = json.loads(files.read_text(path))
    reason = StopReason(str(record['name']), str(record['message']), float(record['value']))
    return reason, int(record['step'])
  except (FileNotFoundError, NotADirectoryError):
    return None
  except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
    raise InputError(f'{path} is damaged ({error!r}); remove it, and the job goes on') from None


def holds(reason: StopReason, options: RunOptions) -> bool:
  """Whether these options stop the job for this reason, too."""
  if reason.name not in LIMITS:
    return True
  limit = getattr(options, reason.name)
  return limit is not None and reason.value >= limit


def remedy(reason: StopReason, job_dir: str) -> str:
  """What makes the job go on."""
  if reason.name in LIMITS:
    return f'it goes on with another --{reason.name.replace("_", "-")}, or without it'
  return f'`python -m cifar10.control {job_dir} go-on` lifts that'
