"""Writes the report as one HTML page that needs no other file, network or script."""

import base64
import io
import os
import re
import shlex
from collections.abc import Sequence
from typing import Any

import jinja2
import matplotlib.image
import numpy as np
from markupsafe import Markup

from cifar10.reporting import charts, formats, stats, summary
from cifar10.reporting.charts import Chart
from cifar10.reporting.job_report import JobReport, Mistake, SplitReport

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_MOST_CLASSES_OF_A_TABLE = 20  # Larger confusion matrices are drawn as a heat map.
_MOST_CONFUSIONS = 20
_SHOWN_PROBABILITIES = 3


def render(jobs: Sequence[JobReport], made: str) -> str:
  """Returns the page as HTML.

  Args:
    jobs: one or more.
    made: date and program version, for the page's foot.
  """
  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_FOLDER),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  for name in ('number', 'percent', 'percent_range', 'probability', 'split', 'text'):
    environment.filters[name] = getattr(formats, name)
  with open(os.path.join(_FOLDER, 'page.css'), encoding='utf-8') as file:
    style = Markup(file.read())
  return environment.get_template('page.html').render(
    title=jobs[0].name if len(jobs) == 1 else f'{len(jobs)} jobs',
    style=style,
    sections=[_section(number, job) for number, job in enumerate(jobs)],
    compared=_comparison(jobs) if len(jobs) > 1 else None,
    made=made,
  )


def _section(number: int, job: JobReport) -> dict[str, Any]:
  """Returns the template's values for one job."""
  changed, unchanged = summary.options(job)
  return {
    'number': number,
    'job': job,
    'evaluation': job.evaluation,
    **(_evaluated(number, job.evaluation) if job.evaluation else {}),
    'rows': summary.rows(job),
    'curves': _with_own_ids(f'j{number}c', charts.learning_curves(job.history)),
    'evaluations': job.history.of('evaluate'),
    'moments': job.history.moments(),
    'commands': _commands(job),
    'environment': summary.environment(job),
    'changed': changed,
    'unchanged': unchanged,
  }


def _evaluated(number: int, evaluation: SplitReport) -> dict[str, Any]:
  """Returns the template's values for the predictions of one job's checkpoint."""
  values: dict[str, Any] = {
    'matrix': [],
    'confusion_map': None,
    'diagram': None,
    'pictures': [_picture(mistake) for mistake in evaluation.mistakes],
  }
  if evaluation.calibration:
    drawn = charts.reliability(evaluation.calibration)
    [values['diagram']] = _with_own_ids(f'j{number}r', [drawn])
  matrix, names = evaluation.matrix, [each.name for each in evaluation.classes]
  if matrix is not None and len(matrix) <= _MOST_CLASSES_OF_A_TABLE:
    values['matrix'] = _cells(matrix, names)
  elif matrix is not None:
    [values['confusion_map']] = _with_own_ids(f'j{number}m', [charts.confusion_map(matrix)])
    values['confusions'] = [
      (names[row], names[column], count)
      for row, column, count in stats.confusions(matrix, _MOST_CONFUSIONS)
    ]
  return values


def _comparison(jobs: Sequence[JobReport]) -> dict[str, Any]:
  """Returns the template's values for a comparison: numbers side by side, and differences."""
  return {
    'jobs': jobs,
    'rows': summary.side_by_side([summary.rows(job) for job in jobs]),
    'differences': summary.differences(jobs),
    'curves': _with_own_ids('compared', charts.compared_curves(jobs)),
  }


def _with_own_ids(prefix: str, drawn: Sequence[Chart]) -> list[Chart]:
  """Returns the charts with ids that are unique on the page; each was drawn separately."""
  return [
    chart._replace(
      svg=Markup(re.sub(r'(\bid="|href="#|url\(#)', rf'\g<1>{prefix}{number}-', chart.svg))
    )
    for number, chart in enumerate(drawn)
  ]


def _cells(
  matrix: np.ndarray, names: Sequence[str]
) -> list[tuple[str, list[tuple[int, bool, float]]]]:
  """Returns a confusion matrix by row, each with the name of its class.

  A cell is how often this class was taken for that one, whether they are the same, and, of a
  mistake, how frequent it is: from 0 to 1, which the most frequent mistake has.
  """
  wrong = stats.mistakes(matrix)
  shades = (wrong / max(int(wrong.max()), 1)).tolist()
  return [
    (
      name,
      [
        (count, row == column, round(shade, 3))
        for column, (count, shade) in enumerate(zip(counts, shades[row]))
      ],
    )
    for row, (name, counts) in enumerate(zip(names, matrix.tolist()))
  ]


def _picture(mistake: Mistake) -> dict[str, Any]:
  """Returns the template's values for one of the worst mistakes."""
  by_name = dict(mistake.probabilities)
  shown = list(mistake.probabilities[:_SHOWN_PROBABILITIES])
  if mistake.label not in dict(shown):
    shown.append((mistake.label, by_name[mistake.label]))
  confidence = formats.percent(by_name[mistake.predicted])
  taken = f'{mistake.label}, taken for {mistake.predicted} with {confidence}'
  return {
    'mistake': mistake,
    'source': _png(mistake.image),
    'alternative': f'Image {mistake.place}: {taken}',
    'shown': shown,
  }


def _png(image: np.ndarray) -> str:
  """Returns an image, uint8 [32, 32, 3], as the source of an <img>."""
  file = io.BytesIO()
  matplotlib.image.imsave(file, image, format='png', metadata={'Software': ''})
  return 'data:image/png;base64,' + base64.b64encode(file.getvalue()).decode('ascii')


def _commands(job: JobReport) -> list[str]:
  """Returns the commands that trained the job, in order, without repetitions."""
  argvs = [event.get('command') for event in job.history.of('start')]
  lines = [shlex.join(map(formats.text, argv)) for argv in argvs if isinstance(argv, list)]
  return list(dict.fromkeys(lines))
