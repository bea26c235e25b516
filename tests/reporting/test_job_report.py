"""What a report says: its numbers against arithmetic done by hand, its history against events."""

import json
import math

import numpy as np
import pytest

from cifar10.data.input_pipeline import Cifar10DataSet
from cifar10.job import metrics_log
from cifar10.reporting import job_report
from cifar10.reporting.job_report import History


@pytest.mark.parametrize(
  ('successes', 'trials', 'low', 'high'),
  [(81, 263, 0.2553, 0.3662), (0, 20, 0.0, 0.1611), (20, 20, 1 - 0.1611, 1.0)],
)
def test_wilson_is_the_published_interval(successes, trials, low, high):
  """Newcombe 1998, table I, method 3; the last is the third from the other side."""
  found = job_report.wilson(successes, trials)
  assert found.value == successes / trials
  assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)
  assert found.low <= found.value <= found.high


def test_cross_entropy_has_the_normal_interval():
  # -log(0.5) and -log(0.125) are 1 and 3 log 2: mean 2, deviation sqrt(2), 1.96 * 1 beside it.
  found = job_report.cross_entropy(np.array([0, 0]), np.array([[0.5, 0.5], [0.125, 0.875]]))
  expected = [(2 + each) * math.log(2) for each in (0, -1.95996, 1.95996)]
  assert (found.value, found.low, found.high) == pytest.approx(expected, abs=1e-5)
  found = job_report.cross_entropy(np.array([1]), np.array([[1, 0]], np.float32))
  assert found.value == pytest.approx(149 * math.log(2))  # The smallest float32 is 2^-149.


def test_classes_are_rows_of_the_confusion_matrix():
  matrix = np.array([[1, 1, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
  found = job_report.by_class(matrix, 'abcd')
  assert (found['a'].accuracy.value, found['a'].precision.value) == (1 / 2, 1 / 2)
  assert (found['b'].accuracy.value, found['b'].precision.value) == (1, 2 / 3)
  assert (found['c'].accuracy.value, found['c'].precision) == (0, None)  # None is taken for it.
  assert (found['d'].examples, found['d'].accuracy) == (0, None)


def test_calibration_error_by_hand():
  """Bins of 1/15: 0.96 and 0.98 are in (14/15, 1], 0.62 in (9/15, 10/15]."""
  confidences, is_right = np.array([0.96, 0.98, 0.62, 0.61]), np.array([1, 0, 1, 1], bool)
  found, error = job_report.calibration(confidences, is_right)
  assert found == [(2, pytest.approx(0.615), 1.0), (2, pytest.approx(0.97), 0.5)]
  assert error == pytest.approx((2 * 0.47 + 2 * 0.385) / 4)
  ends, _ = job_report.calibration(np.array([1 / 15, 0.0, 1.0]), np.array([True, True, True]))
  assert [answers for answers, _, _ in ends] == [2, 1]  # A bin holds its upper end.
  _, unknown = job_report.calibration(np.full(3, np.nan), np.array([True, False, False]))
  assert math.isnan(unknown)


def test_mistakes_are_of_the_images_that_they_show(make_job, data_dir, run_here):
  """Each is in the split's file where it is said to be, with its own label and answer."""
  path = make_job()
  flags = ['--mode', 'predict', '--subset', 'validation', '--data-dir', data_dir]
  predicted = list(map(json.loads, run_here('--job-dir', path, *flags).stdout.splitlines()))
  images, _ = Cifar10DataSet(data_dir, 'validation').all_examples()
  mistakes, of_truth = job_report.collect('A', path, 'validation').mistakes, []
  assert len(mistakes) == min(sum(each['class'] != each['label'] for each in predicted), 40) > 0
  for mistake in mistakes:
    answer = predicted[mistake.place]
    np.testing.assert_array_equal(mistake.image, images[mistake.place])
    assert (mistake.label, mistake.predicted) == (answer['label'], answer['class'])
    of_truth.append(mistake.probabilities[mistake.label])
    assert of_truth[-1] == pytest.approx(answer['probabilities'][mistake.label], abs=1e-5)
    assert max(mistake.probabilities, key=mistake.probabilities.get) == mistake.predicted
  assert of_truth == sorted(of_truth)


def test_a_history_is_curves_and_moments(make_job):
  found = History(metrics_log.read(make_job()))
  assert found.curve('accuracy') == [(2, 0.1), (4, 0.2), (6, 0.3), (8, 0.4)]
  assert found.curve('accuracy', 'validation') == [(4, 0.25), (8, 0.5)]
  assert found.curve('accuracy', 'eval') == []
  assert (found.last_step, found.seconds, found.restarts) == (8, 80, [4])
  moments = list(found.moments())
  ended = [(5, 'control: learning_rate=0.05'), (8, 'ended (train_steps)')]
  assert [each[1:3] for each in moments] == [(0, 'started'), (4, 'went on'), *ended]
  assert moments[0][0] == '2027-01-15 08:00:00'  # 1.8e9 seconds
  assert moments[1][3] == '1 steps were made again'


def test_what_counts():
  """Commands and starts are kept when training goes back; None is JSON's of a loss that is NaN."""
  kinds = [('start', 0), ('start', 35), ('control', 40), ('start', 20), ('train', 30)]
  assert History([{'event': kind, 'step': step} for kind, step in kinds]).last_step == 30
  losses = enumerate((1.0, None, 2.0))
  found = History([{'event': 'train', 'step': step, 'loss': loss} for step, loss in losses])
  assert found.curve('loss') == [(0, 1.0), (2, 2.0)]
