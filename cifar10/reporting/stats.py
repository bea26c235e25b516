"""Computes statistics of predictions: rates with intervals, classes, calibration, mistakes.

This module does not need TensorFlow.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

NUM_BINS = 15  # Guo et al. 2017, "On Calibration of Modern Neural Networks", section 5.
_Z = 1.959963984540054  # 95 % of a normal distribution lie within this many standard deviations.


class Interval(NamedTuple):
  """A number and its 95 % confidence interval."""

  value: float
  low: float
  high: float


class ClassNumbers(NamedTuple):
  """Accuracy, precision and the most frequent mistake of one class."""

  name: str
  examples: int | None  # None: not recorded.
  accuracy: Interval | None  # Of its examples; None: it has none.
  precision: Interval | None  # Of the examples predicted as this class; None: there are none.
  mistaken_for: str | None  # The most frequent wrong prediction.
  mistaken: int  # Count of that prediction.


class Bin(NamedTuple):
  """The examples whose confidence is above `low` and not above `high`."""

  low: float
  high: float
  examples: int
  confidence: float  # The mean confidence; NaN for an empty bin.
  accuracy: float


class Calibration(NamedTuple):
  """Calibration: of predictions with 80 % confidence, 80 % should be right."""

  bins: list[Bin]
  error: float  # The expected calibration error.


def wilson(successes: int, trials: int) -> Interval:
  """Returns a rate with Wilson's score interval (Wilson 1927), within 0 and 1; trials > 0."""
  rate, z2 = successes / trials, _Z**2
  middle = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
  spread = rate * (1 - rate) / trials + z2 / (4 * trials**2)
  half = _Z * math.sqrt(spread) / (1 + z2 / trials)
  # At 0 and 1 a bound is the rate itself; rounding must not move it beyond.
  return Interval(rate, min(max(middle - half, 0.0), rate), max(min(middle + half, 1.0), rate))


def mean(values: np.ndarray) -> Interval:
  """Returns the mean of float [n] with its normal interval; of one value the value itself."""
  middle = float(np.mean(values))
  deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
  half = _Z * deviation / math.sqrt(len(values))
  return Interval(middle, middle - half, middle + half)


def cross_entropies(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
  """Returns each example's cross-entropy in nats: labels [n], float [n, classes] -> float64 [n].

  A probability of 0 counts as the smallest float32 number.
  """
  of_label = probabilities[np.arange(len(labels)), labels].astype(np.float64)
  return -np.log(np.maximum(of_label, np.finfo(np.float32).smallest_subnormal))


def is_among(labels: np.ndarray, probabilities: np.ndarray, count: int) -> np.ndarray:
  """Tells whether the label is among the `count` most probable classes: bool [n].

  Equally probable classes count as more probable, as in tf.math.in_top_k; a label is not among
  probabilities that are no finite numbers.
  """
  of_label = probabilities[np.arange(len(labels)), labels]
  is_among = (probabilities > of_label[:, np.newaxis]).sum(1) < count
  return is_among & np.isfinite(probabilities).all(1)


def confusion_matrix(labels: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
  """Counts how often each class (row) was predicted as each (column): int64 [classes, classes]."""
  pairs = np.bincount(labels * num_classes + predicted, minlength=num_classes**2)
  return pairs.reshape(num_classes, num_classes).astype(np.int64)


def mistakes(matrix: np.ndarray) -> np.ndarray:
  """Returns a confusion matrix without the right predictions."""
  return matrix * (1 - np.eye(len(matrix), dtype=matrix.dtype))


def by_class(matrix: np.ndarray, classes: Sequence[str]) -> list[ClassNumbers]:
  """Returns the numbers of every class, by label, from a confusion matrix."""
  numbers = []
  for label, (name, row, wrong) in enumerate(zip(classes, matrix, mistakes(matrix))):
    right, examples, answers = int(row[label]), int(row.sum()), int(matrix[:, label].sum())
    most = int(np.argmax(wrong))
    numbers.append(
      ClassNumbers(
        name,
        examples,
        wilson(right, examples) if examples else None,
        wilson(right, answers) if answers else None,
        classes[most] if wrong[most] else None,
        int(wrong[most]),
      )
    )
  return numbers


def confusions(matrix: np.ndarray, count: int) -> list[tuple[int, int, int]]:
  """Returns the most frequent mistakes first: (class, prediction, count)."""
  wrong = mistakes(matrix)
  order = np.argsort(-wrong, axis=None, kind='stable')[:count].tolist()
  pairs = [divmod(place, len(matrix)) for place in order]
  return [(row, column, int(wrong[row, column])) for row, column in pairs if wrong[row, column]]


def calibration(confidences: np.ndarray, is_right: np.ndarray) -> Calibration:
  """Bins confidences by equal width, and averages the distance from confidence to accuracy.

  Args:
    confidences: the probability of each predicted class: float [n].
    is_right: bool [n].
  """
  finite = np.nan_to_num(confidences)
  numbers = np.clip(np.ceil(finite * NUM_BINS).astype(int) - 1, 0, NUM_BINS - 1)
  counts = np.bincount(numbers, minlength=NUM_BINS)
  with np.errstate(invalid='ignore'):  # An empty bin has no mean.
    confidence = np.bincount(numbers, confidences, NUM_BINS) / counts
    accuracy = np.bincount(numbers, is_right, NUM_BINS) / counts
  distances = np.abs(accuracy - confidence)[counts > 0]
  error = (counts[counts > 0] * distances).sum() / len(confidences)
  bins = [
    Bin(i / NUM_BINS, (i + 1) / NUM_BINS, int(counts[i]), float(confidence[i]), float(accuracy[i]))
    for i in range(NUM_BINS)
  ]
  return Calibration(bins, float(error))


def worst_mistakes(
  labels: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray, count: int
) -> np.ndarray:
  """Returns the indices of the wrong predictions with the least probability of the true class.

  They are int [count or fewer]; of equals the more confident one comes first, then the earlier.
  """
  wrong = np.flatnonzero(labels != predicted)
  of_label = probabilities[wrong, labels[wrong]]
  of_answer = probabilities[wrong, predicted[wrong]]
  return wrong[np.lexsort((wrong, -of_answer, of_label))][:count]
