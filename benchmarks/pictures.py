"""Draws docs/pictures/*.svg from benchmarks/results/; --check only looks for the results' numbers.

  python benchmarks/pictures.py

needs matplotlib (requirements-dev.txt). The same results and release of matplotlib make the same
bytes. Another release may draw other ones, so --check, which needs no matplotlib, reads the texts
in the pictures: every label that the results make must be there.
"""

import argparse
import csv
import html
import itertools
import json
import math
import os
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from records import RESULTS, ROOT, Records, accuracies, foremost, machine, minutes, read

PICTURES = os.path.join(ROOT, 'docs', 'pictures')
# Dark enough for white, and apart from each other for those who see few colours (Okabe and Ito).
_COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00')
_GREY = '#5a5a5a'


class Point(NamedTuple):
  """What one way of training reached."""

  label: str
  minutes: float
  accuracies: list[float]  # in percent, a run each
  machine: str
  is_ours: bool = True  # or a PyTorch peer's, all of whose steps were measured


class Row(NamedTuple):
  """The minutes of one program that trains the same recipe, or its source's."""

  label: str
  minutes: list[float]  # a run each
  is_ours: bool


class Curve(NamedTuple):
  """Accuracy along one training."""

  label: str
  steps: list[int]
  accuracies: list[float]  # in percent


def main() -> None:
  """Draws both pictures, or exits with 1 where --check misses a label in one."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--check', action='store_true', help='draw nothing; 1 when out of date')
  parser.add_argument('--folder', default=PICTURES, help='where the pictures are')
  flags = parser.parse_args()
  # Without those of a recipe as it was before a repair.
  records = {name: record for name, record in foremost(read()).items() if 'form' not in record}
  if flags.check:
    missing = {
      name: [label for label in labels if label not in texts(os.path.join(flags.folder, name))]
      for name, labels in all_labels(records).items()
    }
    for name, labels in missing.items():
      if labels:
        print(f'{name} does not say: {"; ".join(labels)}', file=sys.stderr)
    if any(missing.values()):
      sys.exit('error: run python benchmarks/pictures.py')
  else:
    os.makedirs(flags.folder, exist_ok=True)
    draw_accuracy(points(records), rows(records), os.path.join(flags.folder, 'accuracy.svg'))
    draw_curves(curves(records), os.path.join(flags.folder, 'learning_curves.svg'))
  print(json.dumps({'pictures': list(all_labels(records))}))


def points(records: Records) -> list[Point]:
  """Every training with its accuracy on the test set, the most accurate first."""
  found = []
  for record in records.values():
    percent = [100 * value for value in accuracies(record)]
    label = _reached(_name(record), percent)
    found.append(Point(label, minutes(record), percent, _machine(record)))
    for name, runs in _peers(record):
      percent = [100 * run['accuracy'] for run in runs if 'accuracy' in run]
      if len(percent) == len(runs):
        middle = statistics.median(_minutes(runs))
        label = _reached(name, percent)
        found.append(Point(label, middle, percent, _machine(record), is_ours=False))
  return sorted(found, key=lambda point: -statistics.mean(point.accuracies))


def rows(records: Records) -> list[Row]:
  """A fast recipe and its PyTorch peers, the fastest first."""
  found = []
  for record in records.values():
    peers = _peers(record)
    if peers:
      ours = _minutes(record['runs'])
      every = [Row(_lasted(f'{record["recipe"]}, this program', ours), ours, True)]
      every += [Row(_lasted(name, _minutes(runs)), _minutes(runs), False) for name, runs in peers]
      found += sorted(every, key=lambda row: statistics.median(row.minutes))
  return found


def curves(records: Records) -> list[Curve]:
  """The learning curve of every training that has a CSV file beside its record."""
  found = []
  for name, record in records.items():
    path = os.path.join(RESULTS, f'{name}.csv')
    if 'result' not in record or not os.path.exists(path):
      continue
    with open(path, encoding='utf-8', newline='') as file:
      lines = list(csv.DictReader(file))
    # That of the training's evaluations; a single one of another split may come at its end.
    split = statistics.mode(line['split'] for line in lines)
    lines = [line for line in lines if line['split'] == split]
    label = _reached(_name(record), [100 * value for value in accuracies(record)])
    label += '' if split == 'eval' else f'; curve: {split}'
    steps = [int(line['step']) for line in lines]
    found.append(Curve(label, steps, [100 * float(line['accuracy']) for line in lines]))
  return sorted(found, key=lambda curve: -curve.steps[-1])


def all_labels(records: Records) -> dict[str, list[str]]:
  """What each picture must say."""
  return {
    'accuracy.svg': [
      *(point.label for point in points(records)),
      *(row.label for row in rows(records)),
      *dict.fromkeys(point.machine for point in points(records)),
    ],
    'learning_curves.svg': [curve.label for curve in curves(records)],
  }


def texts(path: str) -> list[str]:
  """The texts of an SVG file, in order; none where there is no file."""
  if not os.path.exists(path):
    return []
  with open(path, encoding='utf-8') as file:
    found = re.findall(r'<text[^>]*>(.*?)</text>', file.read(), re.S)
  return [html.unescape(re.sub(r'<[^>]*>', '', text)).strip() for text in found]


def draw_accuracy(found: Sequence[Point], lasted: Sequence[Row], path: str) -> None:
  """Accuracy against minutes; below, on the same axis, the minutes of the fast recipes' peers."""
  plt = _pyplot()
  figure, (above, below) = plt.subplots(
    2,
    1,
    sharex=True,
    figsize=(8, 5.8),
    height_ratios=(3.2, 0.36 * max(len(lasted), 1) + 0.2),
    layout='constrained',
  )
  every = [*(point.minutes for point in found), *(m for row in lasted for m in row.minutes)]
  below.set_xscale('log')
  below.set_xlim(min(every) / 1.25, max(every) * 1.25)
  _plain_ticks(below.xaxis, (5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 1000))
  below.set_xlabel('minutes from command to exit, test included (logarithmic)')
  _draw_points(above, found, math.sqrt(min(every) * max(every)))
  _draw_rows(below, lasted)
  _part_labels(figure, above.texts)
  _save(figure, path)


def _draw_points(axes: Any, found: Sequence[Point], middle: float) -> None:
  """A dot and a label for each; right of `middle` the label is on its left."""
  machines = dict.fromkeys(point.machine for point in found)
  colours = dict(zip(machines, itertools.cycle(_COLOURS)))
  for name, colour in colours.items():
    axes.scatter([], [], color=colour, s=55, label=name)  # For the legend.
  for point in found:
    colour = colours[point.machine] if point.is_ours else _GREY
    mean = statistics.mean(point.accuracies)
    axes.scatter([point.minutes], [mean], color=colour, s=55, marker='o' if point.is_ours else 's')
    # The runs, as a bar from the least to the most accurate.
    ends = (min(point.accuracies), max(point.accuracies))
    axes.plot([point.minutes] * 2, ends, color=colour, lw=2)
    side = -1 if point.minutes > middle else 1
    axes.annotate(
      point.label,
      (point.minutes, mean),
      (9 * side, 0),
      textcoords='offset points',
      ha='left' if side > 0 else 'right',
      va='center',
      color='black' if point.is_ours else _GREY,
    )
  axes.set_ylabel('test accuracy, %')
  axes.margins(y=0.15)
  axes.legend(
    loc='lower left', bbox_to_anchor=(-0.01, 1), frameon=False, handletextpad=0.2, borderpad=0.1
  )


def _draw_rows(axes: Any, lasted: Sequence[Row]) -> None:
  """The median of each as a dot, its runs as a bar from the fastest to the slowest."""
  for y, row in enumerate(lasted):
    colour = _COLOURS[0] if row.is_ours else _GREY
    marker = 'o' if row.is_ours else 's'
    axes.plot([min(row.minutes), max(row.minutes)], [y, y], color=colour, lw=2)
    axes.scatter([statistics.median(row.minutes)], [y], color=colour, s=36, marker=marker)
    axes.annotate(
      row.label,
      (max(row.minutes), y),
      (9, 0),
      textcoords='offset points',
      va='center',
      color=colour,
    )
  axes.set_ylim(len(lasted) - 0.4, -0.6)
  axes.set_yticks([])
  said = 'Minutes of the fast recipe and of its PyTorch peers (bar: fastest to slowest run)'
  axes.set_title(said, loc='left', fontsize=10.5)


def _part_labels(figure: Any, labels: Iterable[Any]) -> None:
  """Moves a label down until it covers no earlier one."""
  figure.canvas.draw()
  taken: list[Any] = []
  for label in labels:
    while any(label.get_window_extent().overlaps(other) for other in taken):
      label.xyann = (label.xyann[0], label.xyann[1] - 3)
    taken.append(label.get_window_extent())


def draw_curves(found: Iterable[Curve], path: str) -> None:
  """Accuracy against steps."""
  plt = _pyplot()
  figure, axes = plt.subplots(figsize=(8, 4), layout='constrained')
  for curve, colour in zip(found, itertools.cycle(_COLOURS)):
    axes.plot(curve.steps, curve.accuracies, color=colour, lw=1.8, marker='.', label=curve.label)
  axes.set_xscale('log')
  _plain_ticks(axes.xaxis, (100, 300, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000))
  axes.set_xlabel('global step (logarithmic)')
  axes.set_ylabel('accuracy, %')
  axes.legend(loc='lower right', frameon=False)
  _save(figure, path)


def _name(record: dict) -> str:
  """'fast94'; 'ResNet-20, he2015'"""
  if 'result' not in record:
    return record['recipe']
  return re.sub(r'^resnet(\d+)_', r'ResNet-\1, ', record['name']).replace('_', ' ')


def _machine(record: dict) -> str:
  where = f'{machine(record)}, {record["hardware"]["cores"]} cores'
  return f'{where}, TensorFlow {record["versions"]["tensorflow"]}'


def _peers(record: dict) -> list[tuple[str, list[dict]]]:
  """The runs of each PyTorch peer, by what it is called in a picture."""
  named = []
  for name, runs in record.get('twins', {}).items():
    settings, _, form = name.partition(', ')
    settings = settings.replace('same recipe', f'{record["recipe"]} settings')
    named.append((f'{settings}, PyTorch {form}'.strip(), runs))
  return named


def _minutes(runs: Iterable[dict]) -> list[float]:
  """Of the runs that were timed."""
  return [run['seconds'] / 60 for run in runs if 'seconds' in run]


def _reached(name: str, accuracies: Sequence[float]) -> str:
  return f'{name}: {statistics.mean(accuracies):.2f} % (n = {len(accuracies)})'


def _lasted(name: str, minutes: Sequence[float]) -> str:
  return f'{name}: {statistics.median(minutes):.0f} min (n = {len(minutes)})'


def _plain_ticks(axis: Any, ticks: Sequence[float]) -> None:
  """Ticks as whole numbers, none between them."""
  from matplotlib import ticker  # noqa: PLC0415 - --check needs no matplotlib.

  axis.set_major_locator(ticker.FixedLocator(ticks))
  axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f'{value:,.0f}'))
  axis.set_minor_locator(ticker.NullLocator())


def _pyplot() -> Any:
  """matplotlib, without a screen, with every choice that its users can make overridden."""
  import matplotlib as mpl  # noqa: PLC0415

  mpl.use('svg')
  mpl.rcdefaults()
  mpl.rcParams.update(
    {
      'axes.grid': True,
      'axes.axisbelow': True,
      'axes.spines.right': False,
      'axes.spines.top': False,
      'font.family': 'sans-serif',
      'font.size': 10.5,
      'grid.color': '#e3e3e3',
      'savefig.facecolor': 'white',  # Opaque: readable where the page is dark.
      'svg.fonttype': 'none',  # Text as text: small, and --check can read it.
      'svg.hashsalt': 'cifar10',
    }
  )
  import matplotlib.pyplot as plt  # noqa: PLC0415

  return plt


def _save(figure: Any, path: str) -> None:
  figure.savefig(path, metadata={'Date': None, 'Creator': None})
  _pyplot().close(figure)


if __name__ == '__main__':
  main()
