"""Charts as SVG that takes its colours and fonts from the page around it: paper, screen, dark mode.

They hold no text of the user's, only fixed words, letters and numbers: matplotlib would read `$` as
mathematics.
"""

import io
import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib import ticker
from matplotlib.figure import Figure

from cifar10.reporting.numbers import Calibration

# Drawn in these, which nothing else uses, and then named as variables of the page's style.
_COLOURS = {'#010101': '--ink', '#010102': '--muted', '#010103': '--rule', '#010104': '--accent'}
_INK, _MUTED, _RULE, _ACCENT = _COLOURS
_STYLES = tuple(
  itertools.product(('-', (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2))), (_ACCENT, _INK))
)
_MOST_POINTS = 500  # Of a line: more than a screen has pixels in a chart's width.
_MOST_MARKERS = 40
_INCHES = (4.2, 2.5)  # So that its text has the page's size on a phone.
_FONT_SIZE = 8.0


class Line(NamedTuple):
  """One line of a chart."""

  label: str  # Fixed words, or a job's letter.
  points: Sequence[tuple[float, float]]  # By x.
  is_context: bool = False  # Drawn behind the others, without colour.


class Mark(NamedTuple):
  """A moment in training: a vertical line."""

  label: str
  step: float


class Axis(NamedTuple):
  """How the numbers of a chart are written."""

  is_percent: bool = False
  from_zero: bool = False
  may_be_logarithmic: bool = False


def line_chart(lines: Sequence[Line], axis: Axis, marks: Sequence[Mark] = ()) -> str:
  """Numbers by step, as an SVG element; the group of line i has the id `line-i`."""
  with _style():
    figure = Figure(figsize=_INCHES, layout='constrained')
    axes = figure.add_subplot()
    styles = itertools.cycle(_STYLES)
    for number, line in enumerate(lines):
      _draw_line(axes, line, number, (None, _MUTED) if line.is_context else next(styles))
    seen: set[str] = set()
    for mark in marks:
      label = '_' if mark.label in seen else mark.label  # Matplotlib leaves out what begins so.
      seen.add(mark.label)
      dashes = (0, (2, 2)) if mark.label == 'restart' else (0, (1, 2))
      axes.axvline(mark.step, color=_MUTED, lw=0.9, ls=dashes, label=label, zorder=1)
    _scale(axes, lines, axis)
    axes.set_xlabel('step')
    if len(lines) > 1 or marks:
      axes.legend(
        loc='lower left', bbox_to_anchor=(-0.02, 1), ncols=6, columnspacing=1.2, handlelength=2.2
      )
    return _svg(figure)


def reliability_diagram(calibration: Calibration) -> str:
  """Accuracy by confidence over the number of answers by confidence."""
  with _style():
    figure = Figure(figsize=(_INCHES[0], 3.6), layout='constrained')
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    filled = [each for each in calibration.bins if each.examples]
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
    for axes in (above, below):
      axes.xaxis.set_major_formatter(ticker.PercentFormatter(1, 0))
    above.yaxis.set_major_formatter(ticker.PercentFormatter(1, 0))
    return _svg(figure)


def heat_map(matrix: np.ndarray) -> str:
  """A confusion matrix of many classes: the darker, the larger a part of its row."""
  with _style():
    figure = Figure(figsize=(_INCHES[0], _INCHES[0]), layout='constrained')
    axes = figure.add_subplot()
    rates = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    colours = np.empty([*matrix.shape, 4])
    colours[..., :3] = (0.24, 0.51, 0.74)  # Of pixels: no variable; seen on white and on black.
    colours[..., 3] = np.sqrt(rates)  # So that rare mistakes can be seen.
    axes.imshow(colours, interpolation='nearest', aspect='equal').set_gid('heat')
    axes.set_xlabel('taken for class number')
    axes.set_ylabel('class number')
    axes.grid(visible=False)
    return _svg(figure)


def _draw_line(axes: Any, line: Line, number: int, style: tuple[Any, str]) -> None:
  dashes, colour = style
  points = _thinned(line.points)
  marker = 'o' if len(points) <= _MOST_MARKERS and not line.is_context else ''
  [drawn] = axes.plot(
    *zip(*points),
    color=colour,
    ls=dashes or '-',
    lw=1 if line.is_context else 1.5,
    marker=marker or ('o' if len(points) == 1 else ''),
    ms=2.5,
    label=line.label,
    zorder=2 if line.is_context else 3,
  )
  drawn.set_gid(f'line-{number}')


def _scale(axes: Any, lines: Sequence[Line], axis: Axis) -> None:
  """Limits and the form of the numbers."""
  values = [y for line in lines for _, y in line.points]
  axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
  axes.xaxis.set_major_formatter(ticker.StrMethodFormatter('{x:,.0f}'))
  if axis.may_be_logarithmic and min(values) > 0 and max(values) > 20 * min(values):
    axes.set_yscale('log')
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:g}'))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    return
  axes.yaxis.set_major_locator(ticker.MaxNLocator(5))
  if axis.is_percent:
    axes.yaxis.set_major_formatter(ticker.PercentFormatter(1, symbol=' %'))
  else:
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:,g}'))
  if axis.from_zero:
    axes.set_ylim(0, max(values) * 1.08 or 1)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
  """As many as can be seen: the means of neighbours."""
  size = -(-len(points) // _MOST_POINTS)
  if size <= 1:
    return list(points)
  groups = [np.array(points[start : start + size]) for start in range(0, len(points), size)]
  return [tuple(group.mean(0)) for group in groups]


@contextmanager
def _style() -> Iterator[None]:
  """Matplotlib with every choice that its users can make overridden."""
  with mpl.rc_context():
    mpl.rcdefaults()
    mpl.rcParams.update(
      {
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
        'svg.fonttype': 'none',  # Text as text: the page's font, and readers can find it.
        'svg.hashsalt': 'report',  # The same numbers make the same bytes.
        'xtick.color': _RULE,
        'xtick.labelcolor': _MUTED,
        'ytick.labelcolor': _MUTED,
        'ytick.major.size': 0,
        'ytick.minor.size': 0,
      }
    )
    yield


def _svg(figure: Figure) -> str:
  """The figure as an element of the page, without size, names of fonts and what describes it."""
  file = io.StringIO()
  figure.savefig(file, format='svg', transparent=True)
  svg = file.getvalue()
  svg = svg[svg.index('<svg') :]
  svg = re.sub(r'<metadata>.*?</metadata>\s*', '', svg, count=1, flags=re.S)
  svg = re.sub(r'^<svg[^>]*?(viewBox="[^"]*")[^>]*>', r'<svg \1>', svg, count=1)
  svg = svg.replace('xlink:href', 'href')  # The other needs a namespace.
  svg = re.sub(r'font: ([\d.]+px) [^;"]*', r'font-size: \1', svg)
  for colour, variable in _COLOURS.items():
    svg = svg.replace(colour, f'var({variable})')
  return svg
