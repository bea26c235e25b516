"""One checkpoint over one split: all that a report says of it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cifar10.inference.predictions import Predictions
from cifar10.reporting import stats
from cifar10.reporting.history import is_number
from cifar10.reporting.stats import Calibration, ClassNumbers, Interval

NUM_MISTAKES = 40
LAST_WEIGHTS, AVERAGED_WEIGHTS = 'last', 'ema'
_TOP = 5


class Mistake(NamedTuple):
  """An image that was taken for something else."""

  place: int  # In the split's file, from 0.
  image: np.ndarray  # uint8 [32, 32, 3]
  label: str
  predicted: str
  probabilities: list[tuple[str, float]]  # Of every class, the most probable first.


class Evaluated(NamedTuple):
  """What is None is not known."""

  split: str
  checkpoint: str
  step: int
  weights: str
  examples: int | None
  accuracy: Interval | None
  top5: Interval | None  # Also None where there are no more than five classes.
  plain_accuracy: Interval | None  # Without test-time augmentation, where that is on.
  cross_entropy: float | None
  cross_entropy_interval: Interval | None
  classes: list[ClassNumbers]
  matrix: np.ndarray | None  # int64 [classes, classes]
  calibration: Calibration | None = None
  num_mistakes: int | None = None
  mistakes: Sequence[Mistake] = ()


def from_predictions(
  split: str,
  predictions: Predictions,
  *,
  images: np.ndarray,
  labels: np.ndarray,
  classes: Sequence[str],
  weights: str = LAST_WEIGHTS,
  recorded: Mapping[str, Any] | None = None,
) -> Evaluated:
  """Everything, from what a checkpoint says.

  Args:
    subset: the split.
    answers: to it, n of them.
    images: uint8 [n, 32, 32, 3].
    labels: int [n].
    classes: their names, by label.
    weights: which of the checkpoint's answered.
    recorded: the job's own evaluation of the same checkpoint and split, if there is one.
  """
  recorded = recorded or {}
  is_right = predictions.classes == labels
  matrix = stats.confusion_matrix(labels, predictions.classes, len(classes))
  losses = stats.cross_entropies(labels, predictions.probabilities)
  confidences = predictions.probabilities.max(1)
  worst = stats.worst_mistakes(labels, predictions.classes, predictions.probabilities, NUM_MISTAKES)
  among = stats.is_among(labels, predictions.probabilities, _TOP)
  interval = stats.mean(losses)
  return Evaluated(
    split=split,
    checkpoint=predictions.checkpoint,
    step=predictions.global_step,
    weights=weights,
    examples=len(labels),
    accuracy=stats.wilson(int(is_right.sum()), len(labels)),
    top5=stats.wilson(int(among.sum()), len(labels)) if len(classes) > _TOP else None,
    plain_accuracy=_rate(recorded.get('accuracy_without_tta'), len(labels)),
    cross_entropy=interval.value,
    cross_entropy_interval=interval,
    classes=stats.by_class(matrix, classes),
    matrix=matrix,
    calibration=stats.calibration(confidences, is_right),
    num_mistakes=int((~is_right).sum()),
    mistakes=[
      Mistake(
        int(index),
        images[index],
        classes[labels[index]],
        classes[predictions.classes[index]],
        _likeliest_first(predictions.probabilities[index], classes),
      )
      for index in worst
    ],
  )


def from_event(event: Mapping[str, Any], classes: Sequence[str]) -> Evaluated:
  """What a job's own evaluation says: neither calibration nor mistakes."""
  matrix = _matrix(event.get('confusion_matrix'), len(classes))
  examples = event.get('examples')
  count = examples if isinstance(examples, int) and examples > 0 else None
  cross_entropy = event.get('cross_entropy')
  return Evaluated(
    split=str(event.get('subset')),
    checkpoint=str(event.get('checkpoint') or ''),
    step=event['step'],
    weights=str(event.get('weights', LAST_WEIGHTS)),
    examples=count,
    accuracy=_rate(event.get('accuracy'), count),
    top5=_rate(event.get('accuracy_top5'), count) if len(classes) > _TOP else None,
    plain_accuracy=_rate(event.get('accuracy_without_tta'), count),
    cross_entropy=cross_entropy if is_number(cross_entropy) else None,
    cross_entropy_interval=None,
    classes=_by_class(matrix, event.get('accuracy_by_class'), classes),
    matrix=matrix,
    num_mistakes=None if matrix is None else int(matrix.sum() - np.trace(matrix)),
  )


def _likeliest_first(probabilities: np.ndarray, classes: Sequence[str]) -> list[tuple[str, float]]:
  order = np.argsort(-probabilities, kind='stable')
  return [(classes[label], float(probabilities[label])) for label in order]


def _rate(rate: Any, examples: int | None) -> Interval | None:
  """A rate that was written with six digits: so many successes of so many examples."""
  if not is_number(rate) or not examples or not 0 <= rate <= 1:
    return None
  return stats.wilson(round(rate * examples), examples)


def _by_class(
  matrix: np.ndarray | None, accuracies: Any, classes: Sequence[str]
) -> list[ClassNumbers]:
  """From the matrix, or else as far as the accuracies alone tell it."""
  if matrix is not None:
    return stats.by_class(matrix, classes)
  if not isinstance(accuracies, Mapping):
    return []
  return [
    ClassNumbers(name, None, Interval(accuracies[name], math.nan, math.nan), None, None, 0)
    for name in classes
    if is_number(accuracies.get(name))
  ]


def _matrix(rows: Any, num_classes: int) -> np.ndarray | None:
  """A confusion matrix as an event has it; None for what is none."""
  try:
    matrix = np.array(rows, np.int64)
  except (TypeError, ValueError):
    return None
  return matrix if matrix.shape == (num_classes, num_classes) else None
