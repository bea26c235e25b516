"""The numbers of a report, against arithmetic done by hand."""

import math

import numpy as np
import pytest

from cifar10.reporting import stats


def test_wilson_is_the_published_interval():
  """Newcombe 1998, table I, method 3: 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
  for successes, trials, low, high in (
    (81, 263, 0.2553, 0.3662),
    (15, 148, 0.0624, 0.1605),
    (0, 20, 0.0, 0.1611),
    (1, 29, 0.0061, 0.1718),
  ):
    found = stats.wilson(successes, trials)
    assert found.value == successes / trials
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


def test_wilson_of_all_ends_at_one():
  found = stats.wilson(20, 20)
  assert found.high == found.value == 1
  assert found.low == pytest.approx(1 - 0.1611, abs=5e-5)


def test_mean_has_the_normal_interval():
  # Mean 2, squared deviations 1 + 0 + 1 over n - 1 = 2: deviation 1; 1.96 / sqrt(3) = 1.1316.
  found = stats.mean(np.array([1.0, 2.0, 3.0]))
  assert found == pytest.approx((2, 2 - 1.1316, 2 + 1.1316), abs=1e-4)


def test_mean_of_one_is_that_one():
  assert stats.mean(np.array([3.0])) == (3, 3, 3)


LABELS = np.array([0, 0, 1, 1, 2])
PREDICTED = np.array([0, 1, 1, 1, 0])
PROBABILITIES = np.array(
  [[0.5, 0.3, 0.2], [0.2, 0.8, 0], [0.1, 0.6, 0.3], [0, 1, 0], [0.7, 0.1, 0.2]], np.float32
)


def test_cross_entropy_is_minus_the_logarithm():
  found = stats.cross_entropies(LABELS, PROBABILITIES)
  assert found == pytest.approx(-np.log([0.5, 0.2, 0.6, 1, 0.2]), rel=1e-6)


def test_cross_entropy_of_no_probability_is_finite():
  found = stats.cross_entropies(np.array([1]), np.array([[1, 0]], np.float32))
  assert found == pytest.approx([149 * math.log(2)])  # The smallest float32 is 2^-149.


def test_among_the_first_two():
  # Of the last, 0.7 is more probable than the label's 0.2, and nothing else.
  assert stats.is_among(LABELS, PROBABILITIES, 2).tolist() == [True, True, True, True, True]
  assert stats.is_among(LABELS, PROBABILITIES, 1).tolist() == [True, False, True, True, False]


def test_confusion_matrix_has_true_classes_in_rows():
  matrix = stats.confusion_matrix(LABELS, PREDICTED, 3)
  assert matrix.tolist() == [[1, 1, 0], [0, 2, 0], [1, 0, 0]]
  assert stats.confusions(matrix, 5) == [(0, 1, 1), (2, 0, 1)]


def test_classes_have_accuracy_and_precision():
  matrix = stats.confusion_matrix(LABELS, PREDICTED, 4)
  zero, one, two, three = stats.by_class(matrix, ['a', 'b', 'c', 'd'])
  assert (zero.accuracy.value, zero.precision.value) == (1 / 2, 1 / 2)
  assert (one.accuracy.value, one.precision.value) == (1, 2 / 3)
  assert (zero.mistaken_for, zero.mistaken) == ('b', 1)
  assert one.mistaken_for is None
  assert two.accuracy.value == 0
  assert two.precision is None  # Nothing was taken for it.
  assert (three.examples, three.accuracy) == (0, None)


def test_calibration_error_by_hand():
  """Bins of 1/15: 0.96 and 0.98 are in (14/15, 1], 0.62 in (9/15, 10/15]."""
  found = stats.calibration(np.array([0.96, 0.98, 0.62, 0.61]), np.array([1, 0, 1, 1], bool))
  # Bin 15: two answers, accuracy 0.5, confidence 0.97: 0.47. Bin 10: 1 and 0.615: 0.385.
  assert found.error == pytest.approx((2 * 0.47 + 2 * 0.385) / 4)
  assert len(found.bins) == 15
  assert [(i, each.examples) for i, each in enumerate(found.bins) if each.examples] == [
    (9, 2),
    (14, 2),
  ]
  assert found.bins[14].accuracy == 0.5
  assert math.isnan(found.bins[0].accuracy)


def test_probabilities_that_are_no_numbers_are_no_merit():
  nan = np.full([3, 10], np.nan)
  assert not stats.is_among(np.array([0, 1, 2]), nan, 5).any()
  assert math.isnan(stats.calibration(nan[:, 0], np.array([True, False, False])).error)


def test_a_bin_holds_its_upper_end():
  found = stats.calibration(np.array([1 / 15, 0.0, 1.0]), np.array([True, True, True]))
  assert [each.examples for each in found.bins] == [2, *[0] * 13, 1]


def test_worst_mistakes_give_the_truth_least():
  labels = np.array([0, 0, 0, 0])
  predicted = np.array([1, 1, 0, 2])
  probabilities = np.array([[0.1, 0.6, 0.3], [0.2, 0.8, 0], [0.9, 0.1, 0], [0.1, 0.2, 0.7]])
  # Image 2 is right; 0 and 3 give the truth 0.1, and 3 is surer of its answer.
  assert stats.worst_mistakes(labels, predicted, probabilities, 40).tolist() == [3, 0, 1]
  assert stats.worst_mistakes(labels, predicted, probabilities, 1).tolist() == [3]
