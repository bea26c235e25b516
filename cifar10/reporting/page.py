"""The report as one HTML page that needs no other file, network or script."""

import base64
import io
import shlex
from collections.abc import Sequence
from typing import Any

import jinja2
import matplotlib.image
import numpy as np

from cifar10.reporting import charts, formats, stats, summary
from cifar10.reporting.job_report import JobReport

_MOST_CLASSES_OF_A_TABLE = 20  # Of larger confusion matrices the page has the largest numbers.
_MOST_CONFUSIONS = 20


def render(jobs: Sequence[JobReport], made: str) -> str:
  """Returns the page of one or more jobs as HTML; `made`: date and version, for its foot."""
  environment = jinja2.Environment(
    loader=jinja2.PackageLoader('cifar10', 'reporting'),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  for name in ('number', 'percent', 'rate', 'split'):
    environment.filters[name] = getattr(formats, name)
  with charts.style():
    return environment.get_template('page.html').render(
      jobs=jobs,
      sections=[_section(job) for job in jobs],
      compared=summary.side_by_side(jobs),
      differences=summary.differences(jobs),
      curves=charts.compared_curves(jobs) if len(jobs) > 1 else [],
      made=made,
    )


def _section(job: JobReport) -> dict[str, Any]:
  """Returns the template's values for one job."""
  evaluation = job.evaluation
  matrix, classes = evaluation.confusion_matrix, list(evaluation.classes)
  wrong = stats.mistakes(matrix)
  order = np.argsort(-wrong, axis=None, kind='stable')[:_MOST_CONFUSIONS].tolist()
  pairs = [divmod(place, len(classes)) for place in order]
  argvs = [event['command'] for event in job.history.of('start') if event.get('command')]
  return {
    'job': job,
    'evaluation': evaluation,
    'curves': charts.learning_curves(job.history),
    'num_mistakes': int(wrong.sum()),
    'most_mistakes': int(wrong.max()),
    'matrix': dict(zip(classes, matrix.tolist()))
    if len(classes) <= _MOST_CLASSES_OF_A_TABLE
    else {},
    'confusions': [(classes[i], classes[j], int(wrong[i, j])) for i, j in pairs if wrong[i, j]],
    'diagram': charts.reliability(evaluation.calibration),
    'pictures': [(each, _png(each.image)) for each in evaluation.mistakes],
    'moments': job.history.moments(),
    'commands': list(dict.fromkeys(map(shlex.join, argvs))),
    'options': summary.options(job),
    'environment': {name: summary.Row(value) for name, value in summary.environment(job).items()},
  }


def _png(image: np.ndarray) -> str:
  """Returns an image, uint8 [32, 32, 3], as the source of an <img>."""
  file = io.BytesIO()
  matplotlib.image.imsave(file, image, format='png', metadata={'Software': ''})
  return 'data:image/png;base64,' + base64.b64encode(file.getvalue()).decode('ascii')
