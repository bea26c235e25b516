"""A job's numbers as rows for the page and the terminal's table, and as JSON."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cifar10.core.logs import format_duration, one_line
from cifar10.core.option import as_text, declarations
from cifar10.options.hparams import all_values, from_values
from cifar10.options.run_options import RunOptions
from cifar10.reporting.job_report import Interval, JobReport


class Row(NamedTuple):
  """A value of a job, and its 95 % interval or what else is to be said of it."""

  value: str = '\u2013'  # Of what is not known.
  more: str = ''


Rows = Mapping[str, Row]  # By label.


def split_name(name: str) -> str:
  return {'train': 'training split', 'eval': 'test'}.get(name, name)


def percent(rate: float) -> str:
  """Formats 0.9162 as '91.62 %'."""
  return f'{100 * rate:.2f} %'


def rate(interval: Interval | None) -> Row:
  """Formats a rate and its interval as '91.62 %' and '91.06 to 92.15 %'."""
  if interval is None:
    return Row(more=Row().value)
  return Row(percent(interval.value), f'{100 * interval.low:.2f} to {percent(interval.high)}')


def to_json(job: JobReport) -> dict[str, Any]:
  """Returns the numbers unrounded, and those of each class; None for unknown numbers."""
  return {
    'job': job.path,
    'steps': job.history.last_step,
    'seconds': job.history.seconds,
    'restarts': len(job.history.restarts),
    'best': job.best and {'accuracy': job.best['accuracy'], 'step': job.best['global_step']},
    'notes': job.notes,
    'evaluation': dataclasses.asdict(job.evaluation),
  }


def numbers(jobs: Sequence[JobReport]) -> dict[str, list[Row]]:
  """Returns the numbers by label, each with one row of every job."""
  return _side_by_side([_rows(job) for job in jobs])


def _rows(job: JobReport) -> Rows:
  evaluation, past, entropy = job.evaluation, job.history, job.evaluation.cross_entropy
  found = {
    'Accuracy': rate(evaluation.accuracy),
    'Top-5 accuracy': rate(evaluation.accuracy_top5),
    'Cross-entropy': Row(f'{entropy.value:.4g}', f'{entropy.low:.4f} to {entropy.high:.4f}'),
    'Expected calibration error': Row(percent(evaluation.calibration_error)),
    'Split': Row(split_name(evaluation.subset)),
    'Examples': Row(f'{evaluation.examples:,}'),
    'Evaluated at step': Row(f'{evaluation.step:,}'),
    'Weights': Row('moving average' if evaluation.weights == 'ema' else 'last'),
  }
  if job.best:
    at_step = f'at step {job.best["global_step"]:,}'
    found['Best on validation'] = Row(percent(job.best['accuracy']), at_step)
  if past.events:
    # The median: the first steps, and those with evaluations, are slower.
    speeds = sorted(value for _, value in past.curve('images_per_second'))
    found['Steps made'] = Row(f'{past.last_step:,}')
    found['Time of training'] = Row(format_duration(past.seconds or 0))
    found['Images per second'] = Row(f'{speeds[len(speeds) // 2]:,.0f}') if speeds else Row()
    found['Restarts'] = Row(f'{len(past.restarts)}')
  return found


def _side_by_side(of_jobs: Sequence[Rows]) -> dict[str, list[Row]]:
  labels = dict.fromkeys(label for of_job in of_jobs for label in of_job)
  return {label: [of_job.get(label, Row()) for of_job in of_jobs] for label in labels}


def differences(jobs: Sequence[JobReport]) -> dict[str, list[Row]]:
  """Returns options, versions and hardware that differ between the jobs that have them."""
  settings = [
    {name: Row(_text(value)) for name, value in job.options.items() if name != 'job_dir'}
    | {'data set': Row(job.data.name), **environment(job)}
    for job in jobs
  ]
  compared = _side_by_side(settings).items()
  return {name: row for name, row in compared if len({*row} - {Row()}) > 1}


def options(job: JobReport) -> Rows:
  """Returns the options, first those that differ from their defaults, which then are named."""
  defaults = {declared.name: declared.default for declared in declarations(RunOptions)}
  defaults |= all_values(from_values({'network': job.options['network']}))
  shown = {}
  for name, value in sorted(job.options.items()):
    text, default = _text(value), _text(defaults.get(name))
    shown[name] = Row(text, f'default {default}' if text != default else '')
  return dict(sorted(shown.items(), key=lambda item: not item[1].more))


def environment(job: JobReport) -> Rows:
  """Returns versions, hardware and cluster of the last run, if they were recorded."""
  return {
    name.replace('_gib', ', GiB'): Row(_text(value))
    for part in ('versions', 'hardware', 'cluster')
    for name, value in job.history.start.get(part, {}).items()
    if value is not None
  }


def _text(value: Any) -> str:
  """Formats an option's value as its flag takes it: [1.0, 0.1] as '1,0.1'."""
  return 'none' if value in (None, (), []) else as_text(value)


def terminal_table(jobs: Sequence[JobReport]) -> str:
  """Returns a text table: jobs, numbers with intervals, differences and notes."""
  table = numbers(jobs)
  if len(jobs) > 1:
    table |= {'What differs': [], **differences(jobs)}
  lines = [['', *(f'{job.letter}: {job.name}' for job in jobs)]]
  lines += [[label, *map('  '.join, of_jobs)] for label, of_jobs in table.items()]
  lines = [[one_line(cell).rstrip() for cell in line] for line in lines]
  widths = [max(map(len, column)) for column in itertools.zip_longest(*lines, fillvalue='')]
  text = ['  '.join(map(str.ljust, line, widths)).rstrip() for line in lines]
  return '\n'.join([*text, *(f'{job.letter}: {note}' for job in jobs for note in job.notes)])
