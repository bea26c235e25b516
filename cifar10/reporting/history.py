"""A job's history, from its metrics.jsonl or, of an older job, from what TensorBoard reads."""

import datetime
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from cifar10.core.logs import format_duration
from cifar10.job import metrics_log
from cifar10.reporting import event_files

Event = dict[str, Any]


class Moment(NamedTuple):
  """Something that happened once: a start, a command, an end."""

  time: str  # UTC
  step: int
  what: str
  detail: str


class History(NamedTuple):
  """The events of a job, in their order."""

  events: Sequence[Event]
  is_from_event_files: bool = False

  def of(self, kind: str) -> list[Event]:
    """The events of one kind; starts and ends are the chief's, others anyone's."""
    return [event for event in self.events if event['event'] == kind and _counts(event)]

  @property
  def start(self) -> Event:
    """The last start, which describes the job as it is now; empty where none was written."""
    starts = self.of('start')
    return starts[-1] if starts else {}

  def started_with(self, name: str) -> dict[str, Any]:
    """What the last start says of options, versions or hardware; empty where it does not."""
    said = self.start.get(name)
    return said if isinstance(said, dict) else {}

  def curve(self, kind: str, name: str, split: str | None = None) -> list[tuple[int, float]]:
    """(step, number) of all events of a kind that have this number, by step.

    Args:
      kind: 'train' or 'evaluate'.
      name: the number's.
      subset: of evaluations, the split.
    """
    found = {
      event['step']: event[name]
      for event in self.of(kind)
      if is_number(event.get(name)) and split in (None, event.get('subset'))
    }
    return sorted(found.items())

  def splits(self) -> list[str]:
    """The splits that were evaluated, the first evaluated first."""
    return list(dict.fromkeys(str(event.get('subset')) for event in self.of('evaluate')))

  def last_evaluation(self, split: str) -> Event | None:
    """Of this split."""
    found = [event for event in self.of('evaluate') if event.get('subset') == split]
    return found[-1] if found else None

  @property
  def last_step(self) -> int:
    """The last that is known to have been made."""
    return max((event['step'] for event in self.events), default=0)

  @property
  def seconds(self) -> float | None:
    """Of training, all runs together; None: it was not written."""
    found = [event['seconds'] for event in self.events if is_number(event.get('seconds'))]
    return max(found, default=None)

  @property
  def restarts(self) -> list[int]:
    """The steps from which training went on."""
    return [event['step'] for event in self.of('start') if event.get('resumed')]

  def moments(self) -> list[Moment]:
    """Starts, restarts, commands and ends; between two starts without an end, its absence."""
    found, is_running = [], False
    for event in filter(_counts, self.events):
      if event['event'] == 'start':
        found.append(_moment(event, *_described_start(event, is_running)))
        is_running = True
      elif event['event'] == 'end':
        reason, message = str(event.get('reason', '')), str(event.get('message', ''))
        found.append(_moment(event, f'ended ({reason})', message))
        is_running = False
      elif event['event'] == 'control':
        found.append(
          _moment(event, f'control: {event.get("command", "")}', str(event.get('answer', '')))
        )
    return found


def read(job_dir: str) -> History:
  """The history of a job dir: of metrics.jsonl, or else of its event files; it may be empty."""
  events = metrics_log.read(job_dir)
  if events:
    return History(events)
  return History(event_files.read(job_dir), is_from_event_files=True)


def is_number(value: Any) -> bool:
  """Whether it is a finite number."""
  is_any = isinstance(value, (int, float)) and not isinstance(value, bool)
  return is_any and math.isfinite(value)


def utc(seconds: Any) -> str:
  """Unix seconds -> '2026-03-01 12:00:00'; nothing for what is no time."""
  try:
    return f'{datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc):%Y-%m-%d %H:%M:%S}'
  except (TypeError, ValueError, OverflowError, OSError):
    return ''


def _counts(event: Event) -> bool:
  """A run is its chief's: the other tasks of a cluster start and end with it."""
  by_chief = str(event.get('task', 'chief 0')).startswith('chief')
  return by_chief or event['event'] not in ('start', 'end')


def _moment(event: Event, what: str, detail: str) -> Moment:
  return Moment(utc(event.get('time')), event['step'], what, detail)


def _described_start(event: Event, was_running: bool) -> tuple[str, str]:
  """What a start was, and what it says of the run before."""
  if not event.get('resumed'):
    return 'started', ''
  said = []
  if was_running:
    said.append('the run before wrote no end: it was killed, or its machine went down')
  lost = event.get('steps_lost')
  if is_number(lost) and lost:
    said.append(f'{lost:,} steps since the last checkpoint were made again')
  if is_number(event.get('seconds')):
    said.append(f'trained {format_duration(event["seconds"])} before')
  return 'went on', '; '.join(said)
