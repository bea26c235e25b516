"""JOB/ended.json: why a training stopped before its last step (early stopping and others).

The record is valid as long as its reason is: a job that stopped at 93 % continues when it is
started with a higher --stop-at-accuracy, or without one.
"""

import contextlib
import json
import os
from typing import NamedTuple

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.options.run_options import RunOptions

NAME = 'ended.json'
BY_CONTROL, BY_CALLBACK = 'control', 'callback'
# All other reasons have the name of the option that sets the limit.
LIMITS = ('stop_at_accuracy', 'stop_without_gain', 'max_minutes')


class StopReason(NamedTuple):
  name: str  # BY_CONTROL, BY_CALLBACK or one of LIMITS
  message: str
  value: float = 0.0  # the value that reached the limit


def write(job_dir: str, reason: StopReason, step: int) -> None:
  """Records that the job ended at this step; raises OSError."""
  content = files.json_text({**reason._asdict(), 'step': step}, indent=2)
  files.write_text(os.path.join(job_dir, NAME), content + '\n')


def lift(job_dir: str) -> None:
  """Removes the record, so that the job can continue."""
  with contextlib.suppress(FileNotFoundError):
    files.remove(os.path.join(job_dir, NAME))


def read(job_dir: str) -> tuple[StopReason, int] | None:
  """Returns why and at which step the job ended early; None if it did not; raises InputError."""
  path = os.path.join(job_dir, NAME)
  try:
    record = json.loads(files.read(path))
    reason = StopReason(str(record['name']), str(record['message']), float(record['value']))
    return reason, int(record['step'])
  except (FileNotFoundError, NotADirectoryError):
    return None
  except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
    raise InputError(f'{path} is damaged ({error!r}); remove it, and the job continues') from None


def holds(reason: StopReason, options: RunOptions) -> bool:
  """Tells whether these options would stop the job for the same reason."""
  if reason.name not in LIMITS:
    return True
  limit = getattr(options, reason.name)
  return limit is not None and reason.value >= limit


def remedy(reason: StopReason, job_dir: str) -> str:
  """Returns what to do so that the job continues."""
  if reason.name in LIMITS:
    return f'it goes on with a higher --{reason.name.replace("_", "-")}, or without it'
  return f'`python -m cifar10.control {job_dir} go-on` lifts that'
