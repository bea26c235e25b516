"""A job's numbers as rows for the page and the terminal's table, and as JSON."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cifar10.core.logs import format_duration, one_line
from cifar10.core.option import declarations
from cifar10.options.hparams import all_values, from_values
from cifar10.options.run_options import RunOptions
from cifar10.reporting import formats
from cifar10.reporting.job_report import JobReport


class Row(NamedTuple):
  """A value of a job, and its 95 % interval or what else is to be said of it."""

  value: str
  more: str = ''


Rows = Mapping[str, Row]  # By label.


def rows(job: JobReport) -> Rows:
  """Returns all known numbers, in the same order for every job."""
  evaluation, past = job.evaluation, job.history
  entropy, top5 = evaluation.cross_entropy, evaluation.accuracy_top5
  speeds = sorted(value for _, value in past.curve('images_per_second'))
  found = {
    'Accuracy': Row(*formats.rate(evaluation.accuracy)),
    'Top-5 accuracy': Row(*formats.rate(top5)),
    'Cross-entropy': Row(formats.number(entropy.value), f'{entropy.low:.4f} to {entropy.high:.4f}'),
    'Expected calibration error': Row(formats.percent(evaluation.calibration.error)),
    'Split': Row(formats.split(evaluation.subset)),
    'Examples': Row(f'{evaluation.examples:,}'),
    'Evaluated at step': Row(f'{evaluation.step:,}'),
    'Weights': Row('moving average' if evaluation.weights == 'ema' else 'last'),
  }
  if job.best:
    at_step = f'at step {job.best["global_step"]:,}'
    found['Best on validation'] = Row(formats.percent(job.best['accuracy']), at_step)
  if past.events:
    found['Steps made'] = Row(f'{past.last_step:,}')
    found['Time of training'] = Row(format_duration(past.seconds or 0))
    # The median: the first steps, and those with evaluations, are slower.
    found['Images per second'] = Row(f'{speeds[len(speeds) // 2]:,.0f}' if speeds else formats.NONE)
    found['Restarts'] = Row(f'{len(past.restarts)}')
  return found


def to_json(job: JobReport) -> dict[str, Any]:
  """Returns the same numbers unrounded, and those of each class; None for unknown numbers."""
  evaluation = dataclasses.asdict(dataclasses.replace(job.evaluation, mistakes=()))
  del evaluation['mistakes']
  evaluation['calibration_error'] = evaluation.pop('calibration')['error']
  evaluation['confusion_matrix'] = job.evaluation.confusion_matrix.tolist()
  return {
    'job': job.path,
    'steps': job.history.last_step,
    'seconds': job.history.seconds,
    'restarts': len(job.history.restarts),
    'best': job.best and {'accuracy': job.best['accuracy'], 'step': job.best['global_step']},
    'notes': job.notes,
    'evaluation': evaluation,
  }


def side_by_side(jobs: Sequence[JobReport]) -> dict[str, list[Row]]:
  """Returns the jobs' rows by label, each with one row of every job."""
  by_job = [rows(job) for job in jobs]
  labels = dict.fromkeys(label for of_job in by_job for label in of_job)
  return {label: [of_job.get(label, Row(formats.NONE)) for of_job in by_job] for label in labels}


def differences(jobs: Sequence[JobReport]) -> dict[str, list[str]]:
  """Returns options, versions and hardware that differ between the jobs that have them."""
  settings = [
    {name: formats.option(value) for name, value in job.options.items() if name != 'job_dir'}
    | {'data set': job.data.name, **environment(job)}
    for job in jobs
  ]
  found = {}
  for name in dict.fromkeys(name for each in settings for name in each):
    if len({each[name] for each in settings if name in each}) > 1:
      found[name] = [each.get(name, formats.NONE) for each in settings]
  return found


def options(job: JobReport) -> Rows:
  """Returns the options, first those that differ from their defaults, which then are named."""
  defaults = {declared.name: declared.default for declared in declarations(RunOptions)}
  defaults |= all_values(from_values({'network': job.options['network']}))
  changed, unchanged = {}, {}
  for name, value in sorted(job.options.items()):
    shown, default = formats.option(value), formats.option(defaults.get(name))
    if shown == default:
      unchanged[name] = Row(shown)
    else:
      changed[name] = Row(shown, f'default {default}')
  return changed | unchanged


def environment(job: JobReport) -> dict[str, str]:
  """Returns versions, hardware and cluster of the last run, if they were recorded."""
  return {
    name.replace('_gib', ', GiB'): formats.option(value)
    for part in ('versions', 'hardware', 'cluster')
    for name, value in job.history.started_with(part).items()
    if value is not None
  }


def terminal_table(jobs: Sequence[JobReport]) -> str:
  """Returns a text table: jobs, numbers with intervals, differences and notes."""
  lines = [['', *(f'{job.letter}: {job.name}' for job in jobs)]]
  for label, of_jobs in side_by_side(jobs).items():
    lines.append([label, *(f'{row.value}  {row.more}' for row in of_jobs)])
  if len(jobs) > 1:
    lines += [['What differs'], *([name, *values] for name, values in differences(jobs).items())]
  lines = [[one_line(cell) for cell in line] for line in lines]
  widths = [max(map(len, column)) for column in itertools.zip_longest(*lines, fillvalue='')]
  text = ['  '.join(map(str.ljust, line, widths)).rstrip() for line in lines]
  return '\n'.join([*text, *(f'{job.letter}: {note}' for job in jobs for note in job.notes)])
