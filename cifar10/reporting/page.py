"""Jobs -> one page that needs no other file, no network and no script."""

import base64
import io
import os
import re
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

import jinja2
import matplotlib.image
import numpy as np
from markupsafe import Markup

from cifar10.reporting import curves, formats, stats, summary
from cifar10.reporting.curves import Chart
from cifar10.reporting.job_report import JobReport
from cifar10.reporting.split_predictions import Evaluated, Mistake

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_MOST_CONFUSIONS = 20
_SHOWN_PROBABILITIES = 3


class Cell(NamedTuple):
  """One number of the confusion matrix."""

  times: int
  is_right: bool
  shade: float  # 0..1: of a mistake, its part of the most frequent one.


class Picture(NamedTuple):
  """One of the worst mistakes."""

  mistake: Mistake
  source: str  # data:image/png;base64,...
  alternative: str
  shown: list[tuple[str, float]]  # The likeliest classes, and the true one.


def render(jobs: Sequence[JobReport], made: str) -> str:
  """The page as HTML.

  Args:
    jobs: one or more.
    made: when, and by what version; for the foot of the page.
  """
  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_FOLDER),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  environment.filters.update(
    percent=formats.percent,
    probability=formats.probability,
    percent_range=formats.percent_range,
    number=formats.number,
    text=formats.text,
  )
  with open(os.path.join(_FOLDER, 'page.css'), encoding='utf-8') as file:
    style = Markup(file.read())
  sections = [_section(number, job) for number, job in enumerate(jobs)]
  compared = _comparison(jobs) if len(jobs) > 1 else None
  return environment.get_template('page.html').render(
    title=_title(jobs), style=style, sections=sections, compared=compared, made=made
  )


def _title(jobs: Sequence[JobReport]) -> str:
  return jobs[0].name if len(jobs) == 1 else f'{len(jobs)} jobs'


def _section(number: int, job: JobReport) -> dict[str, Any]:
  """What the template shows of one job."""
  found = job.evaluated
  changed, unchanged = summary.options(job)
  diagram = curves.reliability(found) if found else None
  confusion_map = curves.confusion_map(found) if found else None
  return {
    'number': number,
    'job': job,
    'found': found,
    'subset': formats.split(found.split) if found else '',
    'rows': summary.rows(job),
    'curves': _placed(f'j{number}c', curves.learning_curves(job.history)),
    'evaluations': job.history.of('evaluate'),
    'matrix': _cells(found) if found and not confusion_map else [],
    'confusion_map': _placed(f'j{number}m', [confusion_map])[0] if confusion_map else None,
    'confusions': _named_confusions(found) if found else [],
    'diagram': _placed(f'j{number}r', [diagram])[0] if diagram else None,
    'num_bins': stats.NUM_BINS,
    'pictures': [_picture(mistake) for mistake in found.mistakes] if found else [],
    'moments': job.history.moments(),
    'commands': _commands(job),
    'environment': summary.environment(job),
    'changed': changed,
    'unchanged': unchanged,
  }


def _comparison(jobs: Sequence[JobReport]) -> dict[str, Any]:
  """What stands above several jobs: their numbers side by side, and what differs."""
  by_label = [{row.label: row for row in summary.rows(job)} for job in jobs]
  labels = dict.fromkeys(label for rows in by_label for label in rows)
  missing = summary.Row('', formats.NONE)
  return {
    'jobs': jobs,
    'rows': [(label, [rows.get(label, missing) for rows in by_label]) for label in labels],
    'differences': summary.differences(jobs),
    'curves': _placed('compared', curves.compared_curves(jobs)),
  }


def _placed(prefix: str, found: Sequence[Chart]) -> list[Chart]:
  """Charts whose ids are the page's only ones: each came from a document of its own."""
  return [
    chart._replace(svg=Markup(_with_ids(chart.svg, f'{prefix}{number}-')))
    for number, chart in enumerate(found)
  ]


def _with_ids(svg: str, prefix: str) -> str:
  svg = re.sub(r'\bid="', f'id="{prefix}', svg)
  return re.sub(r'(href="#|url\(#)', rf'\1{prefix}', svg)


def _cells(found: Evaluated) -> list[tuple[str, list[Cell]]]:
  """The confusion matrix by row, with the name of the row's class."""
  if found.matrix is None:
    return []
  wrong = found.matrix * (1 - np.eye(len(found.matrix), dtype=np.int64))
  most = max(int(wrong.max()), 1)
  return [
    (
      each.name,
      [
        Cell(int(count), row == column, round(int(wrong[row, column]) / most, 3))
        for column, count in enumerate(found.matrix[row])
      ],
    )
    for row, each in enumerate(found.classes)
  ]


def _named_confusions(found: Evaluated) -> list[tuple[str, str, int]]:
  """Of a matrix that is too large for a table: class, what it was taken for, how often."""
  if found.matrix is None or len(found.matrix) <= curves.MOST_CLASSES_OF_A_TABLE:
    return []
  names = [each.name for each in found.classes]
  return [
    (names[row], names[column], count)
    for row, column, count in stats.confusions(found.matrix, _MOST_CONFUSIONS)
  ]


def _picture(mistake: Mistake) -> Picture:
  by_name = dict(mistake.probabilities)
  shown = list(mistake.probabilities[:_SHOWN_PROBABILITIES])
  if mistake.label not in dict(shown):
    shown.append((mistake.label, by_name[mistake.label]))
  return Picture(
    mistake,
    _png(mistake.image),
    f'Image {mistake.place}: {mistake.label}, taken for {mistake.predicted} with '
    f'{formats.percent(by_name[mistake.predicted])}',
    shown,
  )


def _png(image: np.ndarray) -> str:
  """uint8 [32, 32, 3] -> the source of an <img>."""
  file = io.BytesIO()
  matplotlib.image.imsave(file, image, format='png', metadata={'Software': ''})
  return 'data:image/png;base64,' + base64.b64encode(file.getvalue()).decode('ascii')


def _commands(job: JobReport) -> list[str]:
  """Every command that trained here, once, in order."""
  argvs = [event.get('command') for event in job.history.of('start')]
  lines = [shlex.join(map(formats.text, argv)) for argv in argvs if isinstance(argv, list)]
  return list(dict.fromkeys(lines))
