"""Which charts a report has of the histories of jobs, and what they say to those who do not see."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cifar10.reporting import charts, formats
from cifar10.reporting.charts import Axis, Key, Line, Mark
from cifar10.reporting.history import History, is_number
from cifar10.reporting.job_report import JobReport
from cifar10.reporting.split_predictions import Evaluated

Points = list[tuple[int, float]]

MOST_CLASSES_OF_A_TABLE = 20  # Of a confusion matrix; with more it is a picture.


class Chart(NamedTuple):
  """A picture of the page."""

  title: str
  svg: str
  alternative: str  # Its content in words.
  keys: Sequence[Key] = ()  # Its legend.


class _Kind(NamedTuple):
  title: str
  name: str  # In the events of training; of evaluations, too, where `is_evaluated`.
  axis: Axis
  shown: Callable[[float], str]
  is_evaluated: bool = False


_KINDS = (
  _Kind('Accuracy', 'accuracy', Axis(is_percent=True), formats.percent, True),
  _Kind('Loss', 'loss', Axis(), formats.number, True),
  _Kind('Learning rate', 'learning_rate', Axis(may_be_logarithmic=True), formats.number),
  _Kind('Images per second', 'images_per_second', Axis(from_zero=True), formats.number),
)


def learning_curves(history: History) -> list[Chart]:
  """Of one job: training and every evaluated split; restarts and commands as vertical lines."""
  marks = [Mark('restart', step) for step in history.restarts]
  marks += [Mark('command', event['step'], is_dotted=True) for event in history.of('control')]
  found = []
  for kind in _KINDS:
    style = None if kind.is_evaluated else 0
    lines = [Line('training', history.curve('train', kind.name), style)]
    if kind.is_evaluated:
      lines += [
        Line(
          formats.split(split),
          history.curve('evaluate', kind.name, split),
          style,
          has_dots=True,
        )
        for style, split in enumerate(history.splits())
      ]
    found += _chart(kind, kind.title, lines, marks)
  return found


def compared_curves(jobs: Sequence[JobReport]) -> list[Chart]:
  """Of several jobs: one line each, of what they were evaluated with on the way and of training."""
  found = []
  for kind in _KINDS:
    if kind.name == 'accuracy':
      title = 'Accuracy in evaluations on the way'
      lines = [
        Line(job.letter, _on_the_way(job.history, kind.name), style, has_dots=True)
        for style, job in enumerate(jobs)
      ]
    else:
      title = 'Training loss' if kind.name == 'loss' else kind.title
      lines = [
        Line(job.letter, job.history.curve('train', kind.name), style)
        for style, job in enumerate(jobs)
      ]
    found += _chart(kind, title, lines, [])
  return found


def reliability(evaluated: Evaluated) -> Chart | None:
  """None where the answers' probabilities are not known."""
  if evaluated.calibration is None:
    return None
  bins = '; '.join(
    f'{formats.percent(each.low)} to {formats.percent(each.high)}: {each.examples:,} answers, '
    f'{formats.percent(each.accuracy)} right at {formats.percent(each.confidence)} confidence'
    for each in evaluated.calibration.bins
    if each.examples
  )
  svg = charts.reliability_diagram(evaluated.calibration)
  return Chart('Accuracy by confidence', svg, f'Reliability diagram. {bins}.')


def confusion_map(evaluated: Evaluated) -> Chart | None:
  """Of many classes; None where a table is shown, or nothing is known."""
  matrix = evaluated.matrix
  if matrix is None or len(matrix) <= MOST_CLASSES_OF_A_TABLE:
    return None
  said = f'Heat map of a confusion matrix of {len(matrix)} classes; the table names the largest.'
  return Chart('Part of each class taken for each', charts.heat_map(matrix), said)


def _on_the_way(history: History, name: str) -> Points:
  """Of the split that was evaluated first: validation, where there is one."""
  splits = history.splits()
  return history.curve('evaluate', name, splits[0]) if splits else []


def _chart(kind: _Kind, title: str, lines: Sequence[Line], marks: Sequence[Mark]) -> list[Chart]:
  """One chart, or none where there is nothing to draw."""
  drawn = [line for line in lines if line.points]
  if not drawn:
    return []
  said = '; '.join(_described(line, kind.shown) for line in drawn)
  restarts = sum(mark.label == 'restart' for mark in marks)
  if restarts:
    said += f'; {restarts} restart(s)'
  svg, keys = charts.line_chart(drawn, kind.axis, marks)
  return [Chart(title, svg, f'{title} by step. {said}.', keys)]


def _described(line: Line, shown: Callable[[float], str]) -> str:
  """Where a line begins and ends, and between which numbers it stays."""
  (first, value), (last, last_value) = line.points[0], line.points[-1]
  values = [y for _, y in line.points if is_number(y)]
  if len(values) == 1:
    return f'{line.label}: {shown(value)} at step {first:,}'
  return (
    f'{line.label}: {shown(value)} at step {first:,}, {shown(last_value)} at step {last:,}, '
    f'lowest {shown(min(values))}, highest {shown(max(values))}'
  )
