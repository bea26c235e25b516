"""Reads a job's history from metrics.jsonl, or where it is missing from the TensorBoard files."""

import datetime
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from cifar10.core import files, storage_errors
from cifar10.core.logs import format_duration
from cifar10.data.manifest import SPLITS
from cifar10.job import metrics_log
from cifar10.job.metrics_log import Event

_TRAINING = ('loss', 'accuracy', 'learning_rate', 'images_per_second')
_EVALUATION = ('accuracy', 'accuracy_top5', 'accuracy_without_tta', 'loss', 'cross_entropy')
_NAMES = {  # TensorBoard's tags, where they are not the names in events.
  'optimizer/learning_rate': 'learning_rate',
  'resources/images_per_second': 'images_per_second',
  'other_accuracies/top5': 'accuracy_top5',
  'other_accuracies/without_tta': 'accuracy_without_tta',
  'loss_parts/cross_entropy': 'cross_entropy',
  'loss_parts/weight_penalty': 'weight_penalty',
  'examples_per_second': 'images_per_second',  # In jobs of before 1.0.0.
}
_BY_CLASS = ('per_class_accuracy/', 'accuracy/', 'accuracy_by_class/')  # The last two: before it.


class Moment(NamedTuple):
  """Something that happened once: a start, a command or an end."""

  time: str  # UTC
  step: int
  what: str
  detail: str


class History(NamedTuple):
  """The events of a job in order."""

  events: Sequence[Event]
  is_from_event_files: bool = False

  def of(self, kind: str) -> list[Event]:
    """Returns the events of one kind; of starts and ends only the chief's."""
    return [event for event in self.events if event['event'] == kind and _counts(event)]

  @property
  def start(self) -> Event:
    """Returns the last start, which describes the job as it is now; {} if none is recorded."""
    starts = self.of('start')
    return starts[-1] if starts else {}

  def started_with(self, name: str) -> dict[str, Any]:
    """Returns what the last start recorded of 'options', 'versions' or 'hardware', or {}."""
    described = self.start.get(name)
    return described if isinstance(described, dict) else {}

  def curve(self, kind: str, name: str, split: str | None = None) -> list[tuple[int, float]]:
    """Returns a number's curve, (step, number) of all events of a kind with that number, by step.

    Args:
      kind: 'train' or 'evaluate'.
      name: the number's name.
      split: of evaluations, this split only.
    """
    points = {
      event['step']: event[name]
      for event in self.of(kind)
      if is_number(event.get(name)) and split in (None, event.get('subset'))
    }
    return sorted(points.items())

  def splits(self) -> list[str]:
    """Returns the evaluated splits in the order of their first evaluations."""
    return list(dict.fromkeys(str(event.get('subset')) for event in self.of('evaluate')))

  def last_evaluation(self, split: str | None = None) -> Event | None:
    """Returns the last evaluation of a split, or of any, or None."""
    found = [each for each in self.of('evaluate') if split in (None, each.get('subset'))]
    return found[-1] if found else None

  @property
  def last_step(self) -> int:
    """Returns the last step made; commands and earlier starts may be of steps that were lost."""
    made = [event for event in self.events if event['event'] not in ('control', 'start')]
    return max((event['step'] for event in made + self.of('start')[-1:]), default=0)

  @property
  def seconds(self) -> float | None:
    """Returns the training time in seconds of all runs together; None if it was not recorded."""
    known = [event['seconds'] for event in self.events if is_number(event.get('seconds'))]
    return max(known, default=None)

  @property
  def restarts(self) -> list[int]:
    """Returns the steps at which training resumed."""
    return [event['step'] for event in self.of('start') if event.get('resumed')]

  def moments(self) -> list[Moment]:
    """Returns starts, restarts, commands and ends; says if a run before a restart has no end."""
    moments, is_running = [], False
    for event in filter(_counts, self.events):
      if event['event'] == 'start':
        what, detail = _described_start(event, is_running)
        is_running = True
      elif event['event'] == 'end':
        what, detail = f'ended ({event.get("reason", "")})', str(event.get('message', ''))
        is_running = False
      elif event['event'] == 'control':
        what, detail = f'control: {event.get("command", "")}', str(event.get('answer', ''))
      else:
        continue
      moments.append(Moment(_utc(event.get('time')), event['step'], what, detail))
    return moments


def read(job_dir: str) -> History:
  """Returns a job's history from metrics.jsonl, or else its event files; it may be empty."""
  with storage_errors.named('job', job_dir):
    events = metrics_log.read(job_dir)
  if events:
    return History(events)
  return History(read_event_files(job_dir), is_from_event_files=True)


def read_event_files(job_dir: str) -> list[dict[str, Any]]:
  """Returns `train` and `evaluate` events, as in metrics.jsonl, from the files for TensorBoard.

  If two files have the same step, the later file wins. Without files there are no events.
  """
  events = [
    {
      'event': 'train',
      'step': step,
      'time': values.pop('time'),
      **{name: values[name] for name in _TRAINING if name in values},
    }
    for step, values in _scalars(job_dir).items()
  ]
  for split in SPLITS:
    for name in (f'eval_{split}', split):  # In older and newer jobs.
      evaluated = _scalars(os.path.join(job_dir, name))
      events += [_evaluation(split, step, values) for step, values in evaluated.items()]
  # Other summaries, such as images, hold none of these numbers.
  return sorted((event for event in events if len(event) > 3), key=lambda event: event['step'])


def _evaluation(split: str, step: int, values: dict[str, Any]) -> dict[str, Any]:
  by_class = {
    tag.partition('/')[2]: value for tag, value in values.items() if tag.startswith(_BY_CLASS)
  }
  numbers: dict[str, Any] = {name: values[name] for name in _EVALUATION if name in values}
  if 'cross_entropy' in values and 'weight_penalty' in values:
    # The Estimator's `loss` averages over batches, but the last batch may be smaller.
    numbers['loss'] = values['cross_entropy'] + values['weight_penalty']
  if 'examples' in values:
    numbers['examples'] = int(values['examples'])
  if by_class:
    numbers['accuracy_by_class'] = by_class
  return {'event': 'evaluate', 'step': step, 'time': values['time'], 'subset': split, **numbers}


def _scalars(folder: str) -> dict[int, dict[str, Any]]:
  """Returns a folder's scalars: step -> name -> value, with 'time' of the last one."""
  by_step: dict[int, dict[str, Any]] = {}
  for path in filter(files.is_file, files.matching(folder, 'events.out.tfevents.*')):
    try:
      for event in tf.compat.v1.train.summary_iterator(path):
        for value in event.summary.value:
          number = _scalar(value)
          if number is not None:
            at_step = by_step.setdefault(event.step, {})
            at_step[_NAMES.get(value.tag, value.tag)] = number
            at_step['time'] = event.wall_time
    except tf.errors.DataLossError:
      continue  # A killed process may leave half a record at the end.
  return by_step


def _scalar(value: Any) -> float | None:
  """Returns a scalar's value from either of its two forms; None for other summaries."""
  if value.HasField('simple_value'):
    return value.simple_value
  if value.HasField('tensor') and not value.tensor.tensor_shape.dim and value.tensor.dtype < 7:
    return float(tf.make_ndarray(value.tensor))
  return None


def is_number(value: Any) -> bool:
  """Tells whether the value is a finite number, of a size that a float can have."""
  is_any = isinstance(value, (int, float)) and not isinstance(value, bool)
  return is_any and abs(value) <= sys.float_info.max  # NaN is not.


def _utc(seconds: Any) -> str:
  """Formats Unix seconds as '2026-03-01 12:00:00'; '' if the value is no time."""
  try:
    return f'{datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc):%Y-%m-%d %H:%M:%S}'
  except (TypeError, ValueError, OverflowError, OSError):
    return ''


def _counts(event: Event) -> bool:
  """Tells whether to show it: starts and ends only of the chief (other tasks repeat them)."""
  by_chief = str(event.get('task', 'chief 0')).startswith('chief')
  return by_chief or event['event'] not in ('start', 'end')


def _described_start(event: Event, was_running: bool) -> tuple[str, str]:
  """Says whether a start is the first one, and what it tells of the run before."""
  if not event.get('resumed'):
    return 'started', ''
  details = []
  if was_running:
    details.append(
      'the run before has no recorded end: it failed, was killed, or its machine went down'
    )
  lost = event.get('steps_lost')
  if is_number(lost) and lost:
    details.append(f'{lost:,} steps since the last checkpoint were made again')
  if is_number(event.get('seconds')):
    details.append(f'trained {format_duration(event["seconds"])} before')
  return 'went on', '; '.join(details)
