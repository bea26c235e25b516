"""Lists a job's numbers as rows for the page and the terminal's table, and as JSON."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from cifar10.core import files, option
from cifar10.core.logs import format_duration, one_line
from cifar10.options import families
from cifar10.reporting import formats, job_report
from cifar10.reporting.history import is_number
from cifar10.reporting.job_report import AVERAGED_WEIGHTS, JobReport
from cifar10.reporting.stats import Interval

_WEIGHTS = {AVERAGED_WEIGHTS: 'moving average'}


class Row(NamedTuple):
  """One number of a job."""

  label: str
  value: str
  interval: str = ''  # The 95 % interval, if there is one.


def rows(job: JobReport) -> list[Row]:
  """Returns all numbers, in the same order for every job."""
  evaluation, history = job.evaluation, job.history
  first = [
    _interval_row('Accuracy', evaluation and evaluation.accuracy),
    _interval_row('Top-5 accuracy', evaluation and evaluation.top5),
  ]
  if evaluation and evaluation.plain_accuracy:
    first.append(
      _interval_row('Accuracy without test-time augmentation', evaluation.plain_accuracy)
    )
  entropy = evaluation.cross_entropy_interval if evaluation else None
  calibration = evaluation.calibration if evaluation else None
  examples = evaluation.examples if evaluation else None
  weights = evaluation.weights if evaluation else formats.NONE
  return [
    *first,
    Row(
      'Cross-entropy',
      formats.number(evaluation.cross_entropy if evaluation else None),
      f'{entropy.low:.4f} to {entropy.high:.4f}' if entropy and is_number(entropy.low) else '',
    ),
    Row('Expected calibration error', formats.percent(calibration and calibration.error)),
    Row('Split', formats.split(evaluation.split) if evaluation else formats.NONE),
    Row('Examples', f'{examples:,}' if examples else formats.NONE),
    Row('Evaluated at step', f'{evaluation.step:,}' if evaluation else formats.NONE),
    Row('Weights', _WEIGHTS.get(weights, weights)),
    _best_row(job),
    Row('Steps made', f'{history.last_step:,}' if history.events else formats.NONE),
    Row(
      'Time of training',
      formats.NONE if history.seconds is None else format_duration(history.seconds),
    ),
    Row('Images per second', _speed(job)),
    Row('Restarts', f'{len(history.restarts)}' if history.start else formats.NONE),
  ]


def to_json(job: JobReport) -> dict[str, Any]:
  """Returns the same numbers unrounded, and those of each class; None for unknown numbers."""
  evaluation, history = job.evaluation, job.history
  content: dict[str, Any] = {
    'job': formats.text(job.path),
    'steps': history.last_step,
    'seconds': history.seconds,
    'restarts': len(history.restarts),
    'best': job.best and {'accuracy': job.best['accuracy'], 'step': job.best['global_step']},
    'notes': job.notes,
    'evaluation': None,
  }
  if evaluation:
    content['evaluation'] = {
      'subset': evaluation.split,
      'checkpoint': formats.text(evaluation.checkpoint),
      'step': evaluation.step,
      'weights': evaluation.weights,
      'examples': evaluation.examples,
      'accuracy': _interval_json(evaluation.accuracy),
      'accuracy_top5': _interval_json(evaluation.top5),
      'accuracy_without_tta': _interval_json(evaluation.plain_accuracy),
      'cross_entropy': _interval_json(evaluation.cross_entropy_interval)
      or {'value': evaluation.cross_entropy},
      'calibration_error': evaluation.calibration and evaluation.calibration.error,
      'classes': {
        each.name: {
          'examples': each.examples,
          'accuracy': _interval_json(each.accuracy),
          'precision': _interval_json(each.precision),
        }
        for each in evaluation.classes
      },
      'confusion_matrix': None if evaluation.matrix is None else evaluation.matrix.tolist(),
    }
  return files.finite(content)


def side_by_side(by_job: Sequence[Sequence[Row]]) -> list[tuple[str, list[Row]]]:
  """Returns the jobs' rows by label, each with one row of every job."""
  by_label = [{row.label: row for row in of_job} for of_job in by_job]
  labels = dict.fromkeys(label for of_job in by_label for label in of_job)
  missing = Row('', formats.NONE)
  return [(label, [of_job.get(label, missing) for of_job in by_label]) for label in labels]


def differences(jobs: Sequence[JobReport]) -> list[tuple[str, list[str]]]:
  """Returns options, versions and hardware that differ between the jobs for which they are known.

  Each with the jobs' values. An option of a network family that only some jobs use counts; the job
  dir does not.
  """
  settings = [_settings(job) for job in jobs]
  of_families = option.names(*families.BUILT_IN.values())
  found = []
  for name in dict.fromkeys(name for each in settings for name in each):
    values = [each.get(name, formats.NONE) for each in settings]
    known = values if name in of_families else [each[name] for each in settings if name in each]
    if len(set(known)) > 1:
      found.append((name, values))
  return found


def options(job: JobReport) -> tuple[list[Row], list[Row]]:
  """Returns the options that differ from their defaults, and those that do not."""
  usual = job_report.defaults(job.options)
  changed, unchanged = [], []
  for name, value in sorted(job.options.items()):
    if name in usual and formats.option(value) == formats.option(usual[name]):
      unchanged.append(Row(name, formats.option(value)))
    else:
      default = f'default {formats.option(usual[name])}' if usual.get(name) is not None else ''
      changed.append(Row(name, formats.option(value), default))
  return changed, unchanged


def environment(job: JobReport) -> list[Row]:
  """Returns versions and hardware of the last run, if they were recorded."""
  history = job.history
  versions, hardware = history.started_with('versions'), history.started_with('hardware')
  known = [Row(name, formats.text(value)) for name, value in versions.items() if value]
  for name, value in hardware.items():
    label = {'memory_gib': 'memory, GiB'}.get(name, name)
    known.append(Row(label, formats.option(value)))
  cluster = history.started_with('cluster')
  if cluster:
    counts = ', '.join(f'{count} {task}' for task, count in cluster.items())
    known.append(Row('cluster', formats.text(counts)))
  return known


def _settings(job: JobReport) -> dict[str, str]:
  shown = {name: formats.option(value) for name, value in job.options.items() if name != 'job_dir'}
  return {**shown, 'data set': job.data.name, **{row.label: row.value for row in environment(job)}}


def _interval_row(label: str, interval: Interval | None) -> Row:
  if interval is None:
    return Row(label, formats.NONE)
  return Row(label, formats.percent(interval.value), formats.percent_range(interval))


def _best_row(job: JobReport) -> Row:
  """Returns the row of the best evaluation on the validation split."""
  if not job.best:
    return Row('Best on validation', formats.NONE)
  at_step = f'at step {job.best["global_step"]:,}'
  return Row('Best on validation', formats.percent(job.best['accuracy']), at_step)


def _speed(job: JobReport) -> str:
  """Returns the median speed: the first steps, and those with evaluations, are slower."""
  speeds = sorted(value for _, value in job.history.curve('train', 'images_per_second'))
  return f'{speeds[len(speeds) // 2]:,.0f}' if speeds else formats.NONE


def _interval_json(interval: Interval | None) -> dict[str, float] | None:
  return interval and interval._asdict()


def terminal_table(jobs: Sequence[JobReport]) -> str:
  """Returns a text table: jobs, numbers, differences, classes and notes."""
  by_class = [
    [_interval_row(each.name, each.accuracy) for each in job.evaluation.classes]
    if job.evaluation
    else []
    for job in jobs
  ]
  parts = [
    _columns([[job.letter, job.name, formats.text(job.path)] for job in jobs], left=3),
    _intervals('', jobs, [rows(job) for job in jobs]),
    'Intervals: 95 %; of accuracies Wilson score intervals, of the cross-entropy the normal one.',
  ]
  if len(jobs) > 1:
    different = [[name, *values] for name, values in differences(jobs)]
    parts.append(_columns([['What differs', *(job.letter for job in jobs)], *different]))
  if any(by_class):
    parts.append(_intervals('Accuracy by class', jobs, by_class))
  return '\n\n'.join([*parts, *(f'{job.letter}: {note}' for job in jobs for note in job.notes)])


def _intervals(title: str, jobs: Sequence[JobReport], by_job: Sequence[Sequence[Row]]) -> str:
  """Returns a table of the jobs' rows side by side, each value with its interval."""
  lines = [[title, *(part for job in jobs for part in (job.letter, '95 % interval'))]]
  for label, cells in side_by_side(by_job):
    lines.append([label, *(part for row in cells for part in (row.value, row.interval))])
  return _columns(lines)


def _columns(lines: Sequence[Sequence[str]], left: int = 1) -> str:
  """Aligns cells in columns: the first `left` columns to the left, the others to the right."""
  shown = [[one_line(cell) for cell in line] for line in lines]
  widths = [max(map(len, column)) for column in zip(*shown)]
  return '\n'.join(
    '  '.join(
      cell.ljust(width) if place < left else cell.rjust(width)
      for place, (cell, width) in enumerate(zip(line, widths))
    ).rstrip()
    for line in shown
  )
