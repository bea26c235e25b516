"""Statistics of predictions: rates with intervals, classes, calibration."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

NUM_BINS = 15  # Guo et al. 2017, "On Calibration of Modern Neural Networks", section 5.
_Z = 1.959963984540054  # 95 % of a normal distribution lie within this many standard deviations.


@dataclass(frozen=True)
class Interval:
  """A number and its 95 % confidence interval."""

  value: float
  low: float
  high: float


@dataclass(frozen=True)
class ClassResult:
  """Accuracy and precision of one class."""

  examples: int
  accuracy: Interval | None  # Of its examples; None: it has none.
  precision: Interval | None  # Of the examples predicted as this class; None: there are none.


class Bin(NamedTuple):
  """Predictions of about the same confidence: of those with 80 %, 80 % should be right."""

  answers: int
  confidence: float  # Their mean.
  accuracy: float


def wilson(successes: int, trials: int) -> Interval:
  """Returns a rate with Wilson's score interval (Wilson 1927), within 0 and 1; trials > 0."""
  rate, z2 = successes / trials, _Z**2
  middle = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
  spread = rate * (1 - rate) / trials + z2 / (4 * trials**2)
  half = _Z * math.sqrt(spread) / (1 + z2 / trials)
  # At 0 and 1 a bound is the rate itself; rounding must not move it beyond.
  return Interval(rate, min(max(middle - half, 0.0), rate), max(min(middle + half, 1.0), rate))


def cross_entropy(labels: np.ndarray, probabilities: np.ndarray) -> Interval:
  """Returns the mean cross-entropy in nats with its normal interval.

  A probability of 0 counts as the smallest float32 number.
  """
  of_label = probabilities[np.arange(len(labels)), labels].astype(np.float64)
  each = -np.log(np.maximum(of_label, np.finfo(np.float32).smallest_subnormal))
  deviation = np.std(each, ddof=1) if len(each) > 1 else 0
  mean, half = float(np.mean(each)), float(_Z * deviation / math.sqrt(len(each)))
  return Interval(mean, mean - half, mean + half)


def by_class(matrix: np.ndarray, classes: Sequence[str]) -> dict[str, ClassResult]:
  """Returns the results of every class from a confusion matrix."""
  results = {}
  for name, *counts in zip(classes, matrix.diagonal(), matrix.sum(1), matrix.sum(0)):
    right, *totals = map(int, counts)  # Examples of the class, and answers with it.
    results[name] = ClassResult(totals[0], *(wilson(right, n) if n else None for n in totals))
  return results


def calibration(confidences: np.ndarray, is_right: np.ndarray) -> list[Bin]:
  """Sorts answers by confidence into bins of equal width; returns those that have answers.

  `confidences` are the probabilities of the predicted classes: float [n]; `is_right`: bool [n].
  """
  upper = np.clip(np.ceil(np.nan_to_num(confidences) * NUM_BINS), 1, NUM_BINS)
  inside = [upper == bound for bound in np.unique(upper)]
  return [
    Bin(int(each.sum()), float(confidences[each].mean()), float(is_right[each].mean()))
    for each in inside
  ]


def calibration_error(bins: Sequence[Bin]) -> float:
  """Returns the mean distance from confidence to accuracy, weighted by answers."""
  distances = sum(each.answers * abs(each.accuracy - each.confidence) for each in bins)
  return distances / sum(each.answers for each in bins)
