"""The numbers of a report, against arithmetic done by hand."""

import math

import numpy as np
import pytest

from cifar10.reporting import stats


@pytest.mark.parametrize(
  ('successes', 'trials', 'low', 'high'),
  [
    (81, 263, 0.2553, 0.3662),
    (0, 20, 0.0, 0.1611),
    (20, 20, 1 - 0.1611, 1.0),
  ],
)
def test_wilson_is_the_published_interval(successes, trials, low, high):
  """Newcombe 1998, table I, method 3; the last is the third from the other side."""
  found = stats.wilson(successes, trials)
  assert found.value == successes / trials
  assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)
  assert found.low <= found.value <= found.high


LABELS = np.array([0, 0, 1, 1, 2])
PROBABILITIES = np.array(
  [[0.5, 0.3, 0.2], [0.2, 0.8, 0], [0.1, 0.6, 0.3], [0, 1, 0], [0.7, 0.1, 0.2]], np.float32
)


def test_cross_entropy_has_the_normal_interval():
  # -log(0.5) and -log(0.125) are 1 and 3 log 2: mean 2, deviation sqrt(2), 1.96 * 1 beside it.
  found = stats.cross_entropy(np.array([0, 0]), np.array([[0.5, 0.5], [0.125, 0.875]]))
  expected = [(2 + each) * math.log(2) for each in (0, -1.95996, 1.95996)]
  assert (found.value, found.low, found.high) == pytest.approx(expected, abs=1e-5)
  mean = -np.mean(np.log([0.5, 0.2, 0.6, 1, 0.2]))
  assert stats.cross_entropy(LABELS, PROBABILITIES).value == pytest.approx(mean, rel=1e-6)


def test_cross_entropy_of_no_probability_is_finite():
  found = stats.cross_entropy(np.array([1]), np.array([[1, 0]], np.float32))
  assert found.value == pytest.approx(149 * math.log(2))  # The smallest float32 is 2^-149.


def test_classes_are_rows_of_the_confusion_matrix():
  matrix = np.array([[1, 1, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
  found = stats.by_class(matrix, 'abcd')
  assert (found['a'].accuracy.value, found['a'].precision.value) == (1 / 2, 1 / 2)
  assert (found['b'].accuracy.value, found['b'].precision.value) == (1, 2 / 3)
  assert (found['c'].accuracy.value, found['c'].precision) == (0, None)  # None is taken for it.
  assert (found['d'].examples, found['d'].accuracy) == (0, None)


def test_calibration_error_by_hand():
  """Bins of 1/15: 0.96 and 0.98 are in (14/15, 1], 0.62 in (9/15, 10/15]."""
  found = stats.calibration(np.array([0.96, 0.98, 0.62, 0.61]), np.array([1, 0, 1, 1], bool))
  assert found == [(2, pytest.approx(0.615), 1.0), (2, pytest.approx(0.97), 0.5)]
  assert stats.calibration_error(found) == pytest.approx((2 * 0.47 + 2 * 0.385) / 4)
  ends = stats.calibration(np.array([1 / 15, 0.0, 1.0]), np.array([True, True, True]))
  assert [each.answers for each in ends] == [2, 1]  # A bin holds its upper end.


def test_confidences_that_are_no_numbers_have_no_error():
  bins = stats.calibration(np.full(3, np.nan), np.array([True, False, False]))
  assert math.isnan(stats.calibration_error(bins))
