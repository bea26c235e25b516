"""The report as one HTML page that needs no other file, network or script.

Its charts are SVG, each with a text alternative. They take colours and fonts from the page (paper,
screen, dark mode), and hold no text of the user, in which matplotlib would read `$` as mathematics.
"""

import base64
import io
import itertools
import re
import shlex
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jinja2
import matplotlib.style
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter
from PIL import Image

from cifar10.callbacks.metrics import to_png
from cifar10.job.metrics_log import is_evaluation
from cifar10.reporting import summary
from cifar10.reporting.job_report import Evaluation, JobReport

# matplotlib draws in these colours; `_svg` replaces them by variables of the page's style.
_COLOURS = {'#010101': '--ink', '#010102': '--muted', '#010103': '--rule', '#010104': '--accent'}
_PALE: dict[str, Any] = {'color': '#010102', 'ls': '-', 'lw': 1, 'zorder': 1.5}  # Behind.
_MOST_DOTS = 40  # Of a line: more dots would hide the line.
_INCHES = (4.2, 2.5)  # With this size a chart's text on a phone is as large as the page's.
_DRAWN = ('accuracy', 'loss', 'learning_rate', 'images_per_second')

_Chart = tuple[str, str, str]  # Title, SVG, and the content in words.


def render(jobs: Sequence[JobReport], made: str) -> str:
  """Returns the page of one or more jobs as HTML; `made`: date and version, for its foot."""
  environment = jinja2.Environment(
    loader=jinja2.PackageLoader('cifar10', 'reporting'),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
  )
  environment.filters.update(percent=summary.percent, rate=summary.rate, split=summary.split_name)
  environment.filters.update(png=_png, shell=shlex.join, mistaken=_mistaken, curves=_curves)
  with matplotlib.style.context('cifar10.reporting.charts', after_reset=True):
    return environment.get_template('page.html').render(jobs=jobs, summary=summary, made=made)


def _png(image: np.ndarray) -> str:
  """Returns an image, uint8 [32, 32, 3], as the source of an <img>."""
  return f'data:image/png;base64,{base64.b64encode(to_png(Image.fromarray(image))).decode()}'


def _mistaken(evaluation: Evaluation) -> list[tuple[int, str, str]]:
  """Returns how often each class was taken for which other, the most frequent first."""
  names, counts = list(evaluation.classes), evaluation.confusion_matrix
  pairs = itertools.permutations(range(len(names)), 2)
  found = [(counts[i][j], names[i], names[j]) for i, j in pairs if counts[i][j]]
  return sorted(found, key=lambda each: -each[0])


def _curves(jobs: Sequence[JobReport]) -> Iterator[_Chart]:
  """Draws a job's training and evaluations; of several a line each, of the evaluated accuracy."""
  for name in _DRAWN:
    curves = {}
    for job in jobs:
      evaluations = filter(is_evaluation, job.history.of('evaluate'))
      evaluated = dict.fromkeys(event['subset'] for event in evaluations)
      drawn = [None, *evaluated]  # None: the training.
      if len(jobs) > 1:  # The split evaluated first: validation, if the job has that.
        drawn = drawn[:2][-1:] if name == 'accuracy' else [None]
      for split in drawn:
        label = summary.split_name(split or 'training')
        label = f'{job.letter}, {label}' if len(jobs) > 1 else label
        curves[label] = job.history.curve(name, split)
    yield from _line_chart(name, curves)


def _line_chart(name: str, curves: Mapping[str, list[tuple[int, float]]]) -> Iterator[_Chart]:
  """Draws (step, number) by label, if there are any. The group of line i has the id `line-i`."""
  curves = {label: points for label, points in curves.items() if points}
  if not curves:
    return
  figure = Figure(figsize=_INCHES, layout='constrained')
  axes = figure.add_subplot(xlabel='step')
  words = []
  for number, (label, points) in enumerate(curves.items()):
    look = _PALE if label == 'training' and len(curves) > 1 else {}
    marker = 'o' if len(points) <= _MOST_DOTS else ''
    axes.plot(*zip(*points), marker=marker, label=label, gid=f'line-{number}', **look)
    ends = [
      f'{summary.percent(value) if name == "accuracy" else f"{value:.4g}"} at step {step:,}'
      for step, value in [points[0], points[-1]][: len(points)]
    ]
    words.append(f'{label}: {", ".join(ends)}')
  if len(words) > 1:
    figure.legend(loc='outside upper left', ncols=4)
  axes.set_xlim(left=min(0, axes.get_xlim()[0]))
  axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
  axes.xaxis.set_major_formatter(StrMethodFormatter('{x:,.0f}'))
  axes.yaxis.set_major_locator(MaxNLocator(5))
  if name == 'accuracy':
    axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=' %'))
  if name in ('learning_rate', 'images_per_second'):
    axes.set_ylim(bottom=0)
  title = name.replace('_', ' ').capitalize()
  yield title, _svg(figure), f'{title} by step. {"; ".join(words)}.'


def _svg(figure: Figure) -> str:
  """Returns the figure as an <svg> element without size, font names and metadata."""
  file = io.StringIO()
  figure.savefig(file, format='svg')
  svg = re.sub(r'<metadata>.*?</metadata>\s*', '', file.getvalue(), count=1, flags=re.S)
  svg = re.sub(r'^.*?<svg[^>]*?(viewBox="[^"]*")[^>]*>', r'<svg \1>', svg, count=1, flags=re.S)
  svg = re.sub(r'font: ([\d.]+px) [^;"]*', r'font-size: \1', svg)
  for colour, variable in _COLOURS.items():
    svg = svg.replace(colour, f'var({variable})')
  # Other charts of the page have other ids.
  return re.sub(r'(\bid="|href="#|url\(#)', rf'\g<1>c{zlib.crc32(svg.encode())}-', svg)
