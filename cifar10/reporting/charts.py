"""Draws a report's charts as SVG, each with a text alternative.

The charts take colours and fonts from the page around them (paper, screen, dark mode). They hold
no text of the user, only fixed words, letters, numbers: matplotlib would read `$` as mathematics.
"""

import io
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib import ticker
from matplotlib.figure import Figure

from cifar10.reporting import formats
from cifar10.reporting.history import History
from cifar10.reporting.job_report import JobReport
from cifar10.reporting.stats import Calibration

# matplotlib draws in these colours; `_svg` replaces them by variables of the page's style.
_COLOURS = {'#010101': '--ink', '#010102': '--muted', '#010103': '--rule', '#010104': '--accent'}
_INK, _MUTED, _RULE, _ACCENT = _COLOURS
# In line widths; the first is a solid line. With two colours enough for as many jobs as letters.
_DASHES: tuple[tuple[float, ...], ...] = (
  *((), (5, 2), (1, 1.5), (6, 2, 1, 2), (10, 3), (2, 4), (6, 2, 1, 2, 1, 2), (10, 2, 3, 2)),
  *((3, 1), (1, 4), (12, 2, 1, 2, 1, 2, 1, 2), (4, 1, 1, 1), (8, 6)),
)
_STYLES = tuple(itertools.product(_DASHES, (_ACCENT, _INK)))
_MARK_DASHES = {'restart': (3, 2), 'command': (1, 2)}  # By a vertical line's label.
_MOST_POINTS = 500  # Of a line: about as many as a chart has pixels across.
_MOST_DOTS = 40  # Of a line: more dots would hide the line.
_INCHES = (4.2, 2.5)  # With this size a chart's text on a phone is as large as the page's.
_FONT_SIZE = 8.0
_SETTINGS = {
  'axes.axisbelow': True,
  'axes.edgecolor': _RULE,
  'axes.facecolor': 'none',
  'axes.grid': True,
  'axes.grid.axis': 'y',
  'axes.labelcolor': _MUTED,
  'axes.spines.left': False,
  'axes.spines.right': False,
  'axes.spines.top': False,
  'figure.facecolor': 'none',
  'font.size': _FONT_SIZE,
  'grid.color': _RULE,
  'grid.linewidth': 0.6,
  'legend.borderpad': 0.2,
  'legend.fontsize': _FONT_SIZE,
  'legend.frameon': False,
  'legend.labelcolor': _INK,
  'svg.fonttype': 'none',  # Text stays text: searchable, and in the page's font.
  'svg.hashsalt': 'report',  # Equal numbers give equal bytes.
  'xtick.color': _RULE,
  'xtick.labelcolor': _MUTED,
  'ytick.labelcolor': _MUTED,
  'ytick.major.size': 0,
  'ytick.minor.size': 0,
}


class Line(NamedTuple):
  """One line of a chart."""

  label: str  # Fixed words, or a job's letter and perhaps a split.
  points: Sequence[tuple[float, float]]  # Sorted by x.
  # Lines of one number look the same in all charts; None: pale, behind the others.
  style: int | None = 0
  has_dots: bool = False  # Draws a dot at each point, for single measurements.


class Key(NamedTuple):
  """An entry of the legend, which the page shows in its own font."""

  label: str
  colour: str  # 'var(--accent)'
  dashes: str  # In the format of stroke-dasharray.


class Chart(NamedTuple):
  """A chart of the page."""

  title: str
  svg: str
  alternative: str  # The content in words.
  keys: Sequence[Key] = ()  # The legend.


class _Kind(NamedTuple):
  title: str
  name: str  # The name in training events; also in evaluation events if `is_evaluated`.
  shown: Callable[[float], str]
  is_evaluated: bool = False
  is_percent: bool = False  # This and the next two: how the axis is.
  from_zero: bool = False
  may_be_logarithmic: bool = False


_KINDS = (
  _Kind('Accuracy', 'accuracy', formats.percent, is_evaluated=True, is_percent=True),
  _Kind('Loss', 'loss', formats.number, is_evaluated=True),
  _Kind('Learning rate', 'learning_rate', formats.number, may_be_logarithmic=True),
  _Kind('Images per second', 'images_per_second', formats.number, from_zero=True),
)


def learning_curves(history: History) -> list[Chart]:
  """Draws one job's training and evaluations, with vertical lines at restarts and commands."""
  marks = [('restart', step) for step in history.restarts]
  marks += [('command', event['step']) for event in history.of('control')]
  drawn = []
  for kind in _KINDS:
    style = None if kind.is_evaluated else 0
    lines = [Line('training', history.curve('train', kind.name), style)]
    if kind.is_evaluated:
      lines += [
        Line(
          formats.split(split), history.curve('evaluate', kind.name, split), style, has_dots=True
        )
        for style, split in enumerate(history.splits())
      ]
    drawn += _chart(kind, kind.title, lines, marks)
  return drawn


def compared_curves(jobs: Sequence[JobReport]) -> list[Chart]:
  """Draws several jobs, a line for each: evaluated accuracy, and other numbers of training."""
  titles = {'accuracy': 'Accuracy in evaluations on the way', 'loss': 'Training loss'}
  drawn = []
  for kind in _KINDS:
    lines = []
    for style, job in enumerate(jobs):
      if kind.name == 'accuracy':  # On the split evaluated first: validation, if there is that.
        first = job.history.splits()[:1]
        label = ', '.join([job.letter, *map(formats.split, first)])
        points = job.history.curve('evaluate', kind.name, *first)
        lines.append(Line(label, points, style, has_dots=True))
      else:
        lines.append(Line(job.letter, job.history.curve('train', kind.name), style))
    drawn += _chart(kind, titles.get(kind.name, kind.title), lines, [])
  return drawn


def reliability(calibration: Calibration) -> Chart:
  """Draws accuracy by confidence, and below it the number of predictions by confidence."""
  filled = [each for each in calibration.bins if each.examples]
  with _style():
    figure = Figure(figsize=(_INCHES[0], 3.6), layout='constrained')
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    lows = [each.low for each in filled]
    width = calibration.bins[0].high - calibration.bins[0].low
    bars = {'width': width, 'align': 'edge', 'lw': 0.6}
    accuracies = [each.accuracy for each in filled]
    shown = above.bar(lows, accuracies, color=_ACCENT, alpha=0.35, ec=_ACCENT, **bars)
    for number, bar in enumerate(shown):
      bar.set_gid(f'bin-{number}')
    above.plot([0, 1], [0, 1], color=_MUTED, ls=(0, (2, 2)), lw=1, label='perfectly calibrated')
    confidences = [each.confidence for each in filled]
    above.plot(confidences, accuracies, 'o', ms=3, color=_INK, label='mean confidence, accuracy')
    above.set_ylim(0, 1)
    above.set_ylabel('accuracy')
    above.legend(loc='upper left')
    below.bar(lows, [each.examples for each in filled], color=_MUTED, ec='none', **bars)
    below.set_xlim(0, 1)
    below.set_xlabel('confidence')
    below.set_ylabel('answers')
    below.yaxis.set_major_locator(ticker.MaxNLocator(3, integer=True))
    below.yaxis.set_major_formatter(ticker.StrMethodFormatter('{x:,.0f}'))
    for axis in (above.xaxis, below.xaxis, above.yaxis):
      axis.set_major_formatter(ticker.PercentFormatter(1, 0, symbol=' %'))
    svg = _svg(figure)
  bins = '; '.join(
    f'{formats.percent(each.low)} to {formats.percent(each.high)}: {each.examples:,} answers, '
    f'{formats.percent(each.accuracy)} right at {formats.percent(each.confidence)} confidence'
    for each in filled
  )
  return Chart('Accuracy by confidence', svg, f'Reliability diagram. {bins}.')


def confusion_map(matrix: np.ndarray) -> Chart:
  """Draws the confusion matrix of many classes: darker cells have larger shares of their row."""
  with _style():
    figure = Figure(figsize=(_INCHES[0], _INCHES[0]), layout='constrained')
    axes = figure.add_subplot()
    rates = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    colours = np.empty([*matrix.shape, 4])
    # Pixels cannot use the page's variables: a blue for light and dark pages.
    colours[..., :3] = (0.24, 0.51, 0.74)
    colours[..., 3] = np.sqrt(rates)  # The root makes rare mistakes visible.
    axes.imshow(colours, interpolation='nearest', aspect='equal').set_gid('heat')
    axes.set_xlabel('taken for class number')
    axes.set_ylabel('class number')
    axes.grid(visible=False)
    svg = _svg(figure)
  words = f'Heat map of a confusion matrix of {len(matrix)} classes; the table names the largest.'
  return Chart('Part of each class taken for each', svg, words)


def _chart(
  kind: _Kind, title: str, lines: Sequence[Line], marks: Sequence[tuple[str, int]]
) -> list[Chart]:
  """Returns one chart, or none if there is nothing to draw; a mark is a label and a step."""
  drawn = [line for line in lines if line.points]
  if not drawn:
    return []
  words = '; '.join(_described(line, kind.shown) for line in drawn)
  restarts = sum(label == 'restart' for label, _ in marks)
  if restarts:
    words += f'; {restarts} restart(s)'
  svg, keys = _line_chart(drawn, kind, marks)
  return [Chart(title, svg, f'{title} by step. {words}.', keys)]


def _described(line: Line, shown: Callable[[float], str]) -> str:
  """Describes a line in words: first, last, lowest and highest value."""
  (first, value), (last, last_value) = line.points[0], line.points[-1]
  values = [y for _, y in line.points]
  if len(values) == 1:
    return f'{line.label}: {shown(value)} at step {first:,}'
  return (
    f'{line.label}: {shown(value)} at step {first:,}, {shown(last_value)} at step {last:,}, '
    f'lowest {shown(min(values))}, highest {shown(max(values))}'
  )


def _line_chart(
  lines: Sequence[Line], kind: _Kind, marks: Sequence[tuple[str, int]]
) -> tuple[str, list[Key]]:
  """Draws numbers by step; returns SVG and legend. The group of line i has the id `line-i`."""
  keys: dict[str, Key] = {}
  with _style():
    figure = Figure(figsize=_INCHES, layout='constrained')
    axes = figure.add_subplot()
    for number, line in enumerate(lines):
      keys[line.label] = _draw_line(axes, line, number)
    for label, step in marks:
      dashes = _MARK_DASHES[label]
      axes.axvline(step, color=_MUTED, lw=0.9, ls=(0, dashes), zorder=1)
      keys[label] = _key(label, _MUTED, dashes)
    _scale(axes, lines, kind)
    axes.set_xlabel('step')
    return _svg(figure), list(keys.values()) if len(keys) > 1 else []


def _looks(line: Line) -> tuple[tuple[float, ...], str]:
  return ((), _MUTED) if line.style is None else _STYLES[line.style]


def _key(label: str, colour: str, dashes: Sequence[float]) -> Key:
  return Key(label, f'var({_COLOURS[colour]})', ' '.join(f'{2 * dash:g}' for dash in dashes))


def _draw_line(axes: Any, line: Line, number: int) -> Key:
  """Draws a line; returns its entry of the legend."""
  dashes, colour = _looks(line)
  points = _thinned(line.points)
  has_dots = len(points) == 1 or (line.has_dots and len(points) <= _MOST_DOTS)
  [drawn] = axes.plot(
    *zip(*points),
    color=colour,
    ls=(0, dashes) if dashes else '-',
    lw=1 if line.style is None else 1.5,
    marker='o' if has_dots else '',
    ms=2.5,
    zorder=2 if line.style is None else 3,
  )
  drawn.set_gid(f'line-{number}')
  return _key(line.label, colour, dashes)


def _scale(axes: Any, lines: Sequence[Line], kind: _Kind) -> None:
  """Sets the axes' limits and number formats."""
  values = [y for line in lines for _, y in line.points]
  last = max(x for line in lines for x, _ in line.points) or 1
  axes.set_xlim(-0.02 * last, 1.02 * last)
  axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
  axes.xaxis.set_major_formatter(ticker.StrMethodFormatter('{x:,.0f}'))
  if kind.may_be_logarithmic and min(values) > 0 and max(values) > 20 * min(values):
    axes.set_yscale('log')
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:g}'))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    return
  axes.yaxis.set_major_locator(ticker.MaxNLocator(5))
  if kind.is_percent:
    axes.yaxis.set_major_formatter(ticker.PercentFormatter(1, symbol=' %'))
  else:
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:,g}'))
  if kind.from_zero:
    axes.set_ylim(0, max(values) * 1.08 or 1)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
  """Returns as many points as can be seen, by averaging neighbours."""
  size = -(-len(points) // _MOST_POINTS)
  if size <= 1:
    return list(points)
  groups = [np.array(points[start : start + size]) for start in range(0, len(points), size)]
  return [tuple(group.mean(0)) for group in groups]


@contextmanager
def _style() -> Iterator[None]:
  """Applies the charts' style alone, whatever the user has configured for matplotlib."""
  with mpl.rc_context():  # matplotlib.style would read the user's own styles.
    mpl.rcdefaults()
    mpl.rcParams.update(_SETTINGS)
    yield


def _svg(figure: Figure) -> str:
  """Returns the figure as an <svg> element without size, font names and metadata."""
  file = io.StringIO()
  figure.savefig(file, format='svg', transparent=True)
  svg = file.getvalue()
  svg = svg[svg.index('<svg') :]
  svg = re.sub(r'<metadata>.*?</metadata>\s*', '', svg, count=1, flags=re.S)
  svg = re.sub(r'^<svg[^>]*?(viewBox="[^"]*")[^>]*>', r'<svg \1>', svg, count=1)
  svg = svg.replace('xlink:href', 'href')  # xlink would need a namespace.
  svg = re.sub(r'font: ([\d.]+px) [^;"]*', r'font-size: \1', svg)
  for colour, variable in _COLOURS.items():
    svg = svg.replace(colour, f'var({variable})')
  return svg
