"""JOB/control/: requests to the process that trains, and its answers.

`python -m cifar10.control` or an evaluator writes a request, atomically, as a file. The chief
takes it, carries it out and writes an answer beside it. Learning rates that were set are in
JOB/config.json.
"""

import contextlib
import os
import time
import uuid
from collections.abc import Mapping
from typing import Any

from cifar10.core import files, gone, lock
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.job import job_config
from cifar10.job.job_config import CONTROL
from cifar10.job.stop_record import StopReason

VERBS = ('save', 'evaluate', 'stop', 'go-on')
RATES = ('learning_rate', 'muon_learning_rate')
SCHEDULE = 'schedule'
ORDERS = ', '.join([*(f'{rate}=NUMBER|{SCHEDULE}' for rate in RATES), *VERBS])


def parse(text: str) -> tuple[str, float | None]:
  """Parses 'learning_rate=0.05' to one of VERBS or RATES, and a rate; raises InputError.

  The rate is None to follow the schedule.
  """
  if text in gone.REQUESTS:
    raise InputError(f'{text} is gone since version 2: {gone.REQUESTS[text]}')
  verb, is_rate, value = text.partition('=')
  if (verb in VERBS and not is_rate) or (verb in RATES and value == SCHEDULE):
    return verb, None
  with contextlib.suppress(ValueError):
    if verb in RATES and 0 <= float(value) < float('inf'):
      return verb, float(value)
  raise InputError(f'{text!r} is no request: it must be one of {ORDERS}; a NUMBER is 0 or more')


def request(job_dir: str, order: str, reason: StopReason | None = None) -> str:
  """Writes a request; returns its name, which sorts after earlier ones'. Raises OSError."""
  name = f'{time.time_ns()}-{uuid.uuid4().hex}'
  path = _path(job_dir, 'request', name)
  files.make_folder(os.path.dirname(path))
  files.write_text(path, files.json_text({'order': order, 'reason': reason}))
  return name


def withdraw(job_dir: str, name: str) -> None:
  """Removes a request that has not been taken, or its answer."""
  for kind in ('request', 'answer'):
    with contextlib.suppress(FileNotFoundError):
      files.remove(_path(job_dir, kind, name))


def take(job_dir: str) -> list[tuple[str, str, StopReason | None]]:
  """Takes all waiting requests, oldest first: name, order, the reason of an evaluator's stop."""
  requests: list[tuple[str, str, StopReason | None]] = []
  # One was withdrawn just now, or written by hand; the next look takes the rest.
  with contextlib.suppress(OSError, TypeError):
    for path in files.matching(os.path.join(job_dir, CONTROL), 'request-*.json'):
      content = files.read_object(path) or {}
      files.remove(path)
      name = os.path.basename(path)[len('request-') : -len('.json')]
      reason = content.get('reason')
      requests.append((name, str(content.get('order')), reason and StopReason(*reason)))
  return requests


def answer(job_dir: str, name: str, ok: bool, text: str) -> None:
  """Writes the answer to a request."""
  files.write_text(_path(job_dir, 'answer', name), files.json_text({'ok': ok, 'answer': text}))


def read_answer(job_dir: str, name: str) -> dict[str, Any] | None:
  """Returns {'ok', 'answer'}; None if there is none yet."""
  return files.read_object(_path(job_dir, 'answer', name))


def _path(job_dir: str, kind: str, name: str) -> str:
  return os.path.join(job_dir, CONTROL, f'{kind}-{name}.json')


def read_rates(job_dir: str) -> dict[str, Any]:
  """Returns the learning rates set in a job, by name; logs them. Raises InputError for damage."""
  rates = (job_config.read_config(job_dir) or {}).get(CONTROL, {})
  try:
    parsed = [parse(f'{name}={value}') for name, value in rates.items()]
  except (AttributeError, InputError) as error:
    raise job_config.damaged(job_dir, f'control: {error}') from None
  set_rates = {name: value for name, value in parsed if value is not None}
  for name, value in set_rates.items():
    log.info(f'{name} is {value}, as control set it; `{name}={SCHEDULE}` goes back to the options')
  return set_rates


def remember_rates(job_dir: str, rates: Mapping[str, float]) -> None:
  """Writes the learning rates that were set into the configuration, replacing earlier ones."""
  config = {**(job_config.read_config(job_dir) or {}), CONTROL: dict(rates)}
  if not rates:
    del config[CONTROL]
  job_config.write_config(job_dir, config)


def who_trains(job_dir: str) -> str:
  """Returns 'process 17 on host (since 2026-01-31 12:00:00)'; '' if nobody trains."""
  return lock.holder(os.path.join(job_dir, job_config.LOCK))
