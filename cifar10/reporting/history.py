"""What happened in a job, as its metrics.jsonl tells."""

import datetime
from dataclasses import dataclass
from typing import Any

from cifar10.job import metrics_log
from cifar10.job.metrics_log import Event


@dataclass(frozen=True)
class History:
  """The events of a job in order."""

  events: list[Event]

  def of(self, kind: str) -> list[Event]:
    """Returns the events of one kind; of starts and ends, which all tasks write, the chief's."""
    return [event for event in self.events if event['event'] == kind and _counts(event)]

  def started_with(self, name: str) -> Any:
    """Returns what the last start recorded: 'data_dir', 'options', ...; {} if nothing."""
    return next((start[name] for start in self.of('start')[-1:] if start.get(name)), {})

  def evaluations(self, split: str | None = None) -> list[Event]:
    """Returns the evaluations of one split, or of all."""
    found = filter(metrics_log.is_evaluation, self.events)  # Callbacks may write others.
    return [event for event in found if split in (None, event['subset'])]

  def splits(self) -> list[str]:
    """Returns the evaluated splits in the order of their first evaluations."""
    return list(dict.fromkeys(event['subset'] for event in self.evaluations()))

  def curve(self, name: str, split: str | None = None) -> list[tuple[int, float]]:
    """Returns (step, number) of the evaluations of a split; without one, of the training."""
    events = self.evaluations(split) if split else self.of('train')
    points = {event['step']: event[name] for event in events if event.get(name) is not None}
    return sorted(points.items())

  @property
  def last_step(self) -> int:
    """Returns the last step made; commands and earlier starts may be of steps that were lost."""
    made = [event for event in self.events if event['event'] not in ('control', 'start')]
    return max((event['step'] for event in made + self.of('start')[-1:]), default=0)

  @property
  def seconds(self) -> float | None:
    """Returns the training time of all runs together; None if it was not recorded."""
    return max((event['seconds'] for event in self.events if event.get('seconds')), default=None)

  @property
  def restarts(self) -> list[int]:
    """Returns the steps at which training resumed."""
    return [event['step'] for event in self.of('start') if event.get('resumed')]

  def moments(self) -> list[tuple[str, int, str, str]]:
    """Returns starts, restarts, commands and ends: time (UTC), step, what it was, and details."""
    moments, is_running = [], False
    for event in filter(_counts, self.events):
      if event['event'] == 'start':
        what, detail = 'started', ''
        if event.get('resumed'):
          what, detail = 'went on', f'{event["steps_lost"]:,} steps were made again'
        if is_running:
          detail += '; the run before was killed, failed, or its machine went down'
        is_running = True
      elif event['event'] == 'end':
        what, detail = f'ended ({event["reason"]})', event.get('message', '')
        is_running = False
      elif event['event'] == 'control':
        what, detail = f'control: {event["command"]}', event['answer']
      else:
        continue
      time = datetime.datetime.fromtimestamp(event['time'], datetime.timezone.utc)
      moments.append((f'{time:%Y-%m-%d %H:%M:%S}', event['step'], what, detail))
    return moments


def read(job_dir: str) -> History:
  """Returns a job's history, which is empty without metrics.jsonl."""
  return History(metrics_log.read(job_dir))


def _counts(event: Event) -> bool:
  by_chief = event.get('task', 'chief 0').startswith('chief')
  return by_chief or event['event'] not in ('start', 'end')
