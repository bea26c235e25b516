"""A job's numbers as rows of a table and as JSON, the same in the page and in the terminal."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from cifar10.core import option
from cifar10.core.logs import format_duration
from cifar10.networks.registry import FAMILIES
from cifar10.reporting import formats, job_report
from cifar10.reporting.job_report import JobReport
from cifar10.reporting.stats import Interval


class Row(NamedTuple):
  """One number of a job."""

  label: str
  value: str
  interval: str = ''  # Of 95 %, where there is one.


class Difference(NamedTuple):
  """An option, a version or the hardware that is not the same in all jobs."""

  name: str
  texts: list[str]  # Of each job.


def rows(job: JobReport) -> list[Row]:
  """All numbers, in the same order for every job."""
  found, history = job.evaluated, job.history
  first = [
    _interval_row('Accuracy', found and found.accuracy),
    _interval_row('Top-5 accuracy', found and found.top5),
  ]
  if found and found.plain_accuracy:
    first.append(_interval_row('Accuracy without test-time augmentation', found.plain_accuracy))
  entropy = found.cross_entropy_interval if found else None
  calibration = found.calibration if found else None
  return [
    *first,
    Row(
      'Cross-entropy',
      formats.number(found.cross_entropy if found else None),
      formats.number_range(entropy) if entropy else '',
    ),
    Row('Expected calibration error', formats.percent(calibration and calibration.error)),
    Row('Split', formats.split(found.split) if found else formats.NONE),
    Row('Examples', f'{found.examples:,}' if found and found.examples else formats.NONE),
    Row('Evaluated at step', f'{found.step:,}' if found else formats.NONE),
    Row(
      'Weights',
      {'ema': 'moving average'}.get(found.weights, found.weights) if found else formats.NONE,
    ),
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
  """The same numbers, unrounded, and those of each class; null for what is not known."""
  found, history = job.evaluated, job.history
  content: dict[str, Any] = {
    'job': formats.text(job.path),
    'steps': history.last_step,
    'seconds': history.seconds,
    'restarts': len(history.restarts),
    'best': _best(job),
    'notes': job.notes,
    'evaluation': None,
  }
  if found:
    content['evaluation'] = {
      'subset': found.split,
      'checkpoint': formats.text(found.checkpoint),
      'step': found.step,
      'weights': found.weights,
      'examples': found.examples,
      'accuracy': _interval_json(found.accuracy),
      'accuracy_top5': _interval_json(found.top5),
      'accuracy_without_tta': _interval_json(found.plain_accuracy),
      'cross_entropy': _interval_json(found.cross_entropy_interval)
      or {'value': found.cross_entropy},
      'calibration_error': found.calibration and found.calibration.error,
      'classes': {
        each.name: {
          'examples': each.examples,
          'accuracy': _interval_json(each.accuracy),
          'precision': _interval_json(each.precision),
        }
        for each in found.classes
      },
      'confusion_matrix': None if found.matrix is None else found.matrix.tolist(),
    }
  return _finite(content)


def differences(jobs: Sequence[JobReport]) -> list[Difference]:
  """The options, versions and machines that are not the same where they are known.

  An option of a family of networks that only some jobs have is one; the job dir is none.
  """
  settings = [_settings(job) for job in jobs]
  names = dict.fromkeys(name for each in settings for name in each)
  families = option.names(*FAMILIES.values())
  known = {
    name: {each.get(name, formats.NONE) for each in settings if name in each or name in families}
    for name in names
  }
  return [
    Difference(name, [each.get(name, formats.NONE) for each in settings])
    for name in names
    if len(known[name]) > 1
  ]


def options(job: JobReport) -> tuple[list[Row], list[Row]]:
  """The options that have other values than their defaults, and the others."""
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
  """Versions and hardware of the last run, as far as they were written."""
  history = job.history
  versions, hardware = history.started_with('versions'), history.started_with('hardware')
  found = [Row(name, formats.text(value)) for name, value in versions.items() if value]
  for name, value in hardware.items():
    label = {'memory_gib': 'memory, GiB'}.get(name, name)
    found.append(Row(label, formats.option(value) if value != [] else 'none'))
  cluster = history.started_with('cluster')
  if cluster:
    counts = ', '.join(f'{count} {task}' for task, count in cluster.items())
    found.append(Row('cluster', formats.text(counts)))
  return found


def _settings(job: JobReport) -> dict[str, str]:
  shown = {name: formats.option(value) for name, value in job.options.items() if name != 'job_dir'}
  return {**shown, 'data set': job.data.name, **{row.label: row.value for row in environment(job)}}


def _interval_row(label: str, interval: Interval | None) -> Row:
  if interval is None:
    return Row(label, formats.NONE)
  return Row(label, formats.percent(interval.value), formats.percent_range(interval))


def _best(job: JobReport) -> dict[str, Any] | None:
  """The best evaluation on the validation split, its accuracy and its step."""
  best = job.best
  return best and {'accuracy': best['accuracy'], 'step': best.get('global_step')}


def _best_row(job: JobReport) -> Row:
  best = _best(job) or {}
  step = best.get('step')
  said = '' if step is None else f'at step {step:,}'
  return Row('Best on validation', formats.percent(best.get('accuracy')), said)


def _speed(job: JobReport) -> str:
  """The median: the first steps and evaluations between them are slower."""
  speeds = sorted(value for _, value in job.history.curve('train', 'images_per_second'))
  return f'{speeds[len(speeds) // 2]:,.0f}' if speeds else formats.NONE


def _interval_json(interval: Interval | None) -> dict[str, float] | None:
  return interval and dict(interval._asdict())


def _finite(value: Any) -> Any:
  """JSON has no NaN."""
  if isinstance(value, dict):
    return {key: _finite(each) for key, each in value.items()}
  if isinstance(value, list):
    return [_finite(each) for each in value]
  return None if isinstance(value, float) and not math.isfinite(value) else value
