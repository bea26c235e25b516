"""Draws a report's charts as SVG, each with a text alternative.

The charts take colours and fonts from the page around them (paper, screen, dark mode). They hold
no text of the user, only fixed words, letters, numbers: matplotlib would read `$` as mathematics.
"""

import io
import itertools
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import matplotlib.style
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter

from cifar10.reporting import formats
from cifar10.reporting.history import History
from cifar10.reporting.job_report import JobReport
from cifar10.reporting.stats import NUM_BINS, Calibration

# matplotlib draws in these colours; `_svg` replaces them by variables of the page's style.
_COLOURS = {'#010101': '--ink', '#010102': '--muted', '#010103': '--rule', '#010104': '--accent'}
_INK, _MUTED, _, _ACCENT = _COLOURS
_DASHES = ('-', (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (10, 3)), (0, (2, 4)))
_LOOKS = [{'ls': dashes, 'color': colour} for dashes in _DASHES for colour in (_ACCENT, _INK)]
_PALE = {'color': _MUTED, 'lw': 1, 'zorder': 1.5}  # Behind the others.
_MOST_DOTS = 40  # Of a line: more dots would hide the line.
_INCHES = (4.2, 2.5)  # With this size a chart's text on a phone is as large as the page's.
_TITLES = {  # Of the numbers that have curves, by name in events.
  'accuracy': 'Accuracy',
  'loss': 'Loss',
  'learning_rate': 'Learning rate',
  'images_per_second': 'Images per second',
}


class Chart(NamedTuple):
  """A chart of the page."""

  title: str
  svg: str
  alternative: str  # The content in words.


class _Line(NamedTuple):
  label: str  # Fixed words, or a job's letter and perhaps a split.
  points: Sequence[tuple[int, float]]  # Sorted by step.
  look: Mapping[str, Any]
  has_dots: bool = False  # For single measurements.


def style() -> AbstractContextManager[None]:
  """The context to draw in: the charts' own style, whatever the user has configured."""
  path = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'charts.mplstyle')
  return matplotlib.style.context(path, after_reset=True)


def learning_curves(history: History) -> list[Chart]:
  """Draws one job's training and evaluations, with vertical lines at restarts and commands."""
  commands = [event['step'] for event in history.of('control')]
  charts = []
  for name, title in _TITLES.items():
    lines = [
      _Line(formats.split(split), points, look, has_dots=True)
      for split, look in zip(history.splits(), _LOOKS)
      if (points := history.curve(name, split))
    ]
    lines.insert(0, _Line('training', history.curve(name), _PALE if lines else _LOOKS[0]))
    charts += _line_chart(name, title, lines, restart=history.restarts, command=commands)
  return charts


def compared_curves(jobs: Sequence[JobReport]) -> list[Chart]:
  """Draws several jobs, a line for each: evaluated accuracy, and other numbers of training."""
  charts = []
  for name, title in _TITLES.items():
    lines = []
    for job, look in zip(jobs, itertools.cycle(_LOOKS)):
      # On the split evaluated first: validation, if the job has that.
      split = next(iter(job.history.splits()), None) if name == 'accuracy' else None
      label = f'{job.letter}, {formats.split(split or "training")}'
      lines.append(_Line(label, job.history.curve(name, split), look, has_dots=bool(split)))
    charts += _line_chart(name, title, lines)
  return charts


def _line_chart(
  name: str, title: str, lines: Sequence[_Line], **marks: Sequence[int]
) -> list[Chart]:
  """Draws numbers by step: one chart, or none if there is nothing to draw.

  `marks` are the steps of vertical lines by label. The group of line i has the id `line-i`.
  """
  lines = [line for line in lines if line.points]
  if not lines:
    return []
  figure = Figure(figsize=_INCHES, layout='constrained')
  axes = figure.add_subplot(xlabel='step')
  shown = formats.percent if name == 'accuracy' else formats.number
  words = []
  for number, line in enumerate(lines):
    points = line.points
    is_dotted = len(points) == 1 or (line.has_dots and len(points) <= _MOST_DOTS)
    marker = 'o' if is_dotted else ''
    axes.plot(*zip(*points), marker=marker, label=line.label, gid=f'line-{number}', **line.look)
    ends = [f'{shown(value)} at step {step:,}' for step, value in (points[0], points[-1])]
    words.append(f'{line.label}: {", ".join(dict.fromkeys(ends))}')
  for dashes, (label, steps) in zip(_DASHES[1:], marks.items()):
    if steps:
      words.append(f'{len(steps)} {label}(s)')
      across: dict[str, Any] = {'transform': axes.get_xaxis_transform(), 'lw': 0.9, 'zorder': 1}
      axes.vlines(steps, 0, 1, colors=_MUTED, linestyles=dashes, label=label, **across)
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
  return [Chart(title, _svg(figure), f'{title} by step. {"; ".join(words)}.')]


def reliability(calibration: Calibration) -> Chart:
  """Draws accuracy by confidence, and below it the number of predictions by confidence."""
  figure = Figure(figsize=(_INCHES[0], 3.6), layout='constrained')
  above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
  filled = np.flatnonzero(calibration.counts)
  counts, confidences, accuracies = (
    each[filled] for each in (calibration.counts, calibration.confidences, calibration.accuracies)
  )
  bars: dict[str, Any] = {'x': filled / NUM_BINS, 'width': 1 / NUM_BINS, 'align': 'edge'}
  for number, bar in enumerate(above.bar(height=accuracies, color=_ACCENT, alpha=0.4, **bars)):
    bar.set_gid(f'bin-{number}')
  above.plot([0, 1], [0, 1], color=_MUTED, ls=(0, (2, 2)), lw=1, label='perfectly calibrated')
  above.plot(confidences, accuracies, 'o', color=_INK, label='mean confidence, accuracy')
  above.set(ylim=(0, 1), ylabel='accuracy')
  above.legend(loc='upper left')
  below.bar(height=counts, color=_MUTED, **bars)
  below.set(xlim=(0, 1), xlabel='confidence', ylabel='answers')
  below.yaxis.set_major_locator(MaxNLocator(3, integer=True))
  for axis in (below.xaxis, above.yaxis):
    axis.set_major_formatter(PercentFormatter(1, 0, symbol=' %'))
  words = '; '.join(
    f'{formats.percent(accuracy)} of {count:,} right at {formats.percent(confidence)} confidence'
    for accuracy, count, confidence in zip(accuracies, counts, confidences)
  )
  return Chart('Accuracy by confidence', _svg(figure), f'Reliability diagram. {words}.')


def _svg(figure: Figure) -> str:
  """Returns the figure as an <svg> element without size, font names and metadata."""
  file = io.StringIO()
  figure.savefig(file, format='svg')
  svg = file.getvalue()
  svg = svg[svg.index('<svg') :]
  svg = re.sub(r'<metadata>.*?</metadata>\s*', '', svg, count=1, flags=re.S)
  svg = re.sub(r'^<svg[^>]*?(viewBox="[^"]*")[^>]*>', r'<svg \1>', svg, count=1)
  svg = svg.replace('xlink:href', 'href')  # xlink would need a namespace.
  svg = re.sub(r'font: ([\d.]+px) [^;"]*', r'font-size: \1', svg)
  for colour, variable in _COLOURS.items():
    svg = svg.replace(colour, f'var({variable})')
  # Ids are unique on the page.
  return re.sub(r'(\bid="|href="#|url\(#)', rf'\g<1>c{zlib.crc32(svg.encode())}-', svg)
