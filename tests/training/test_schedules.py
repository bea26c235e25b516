"""Learning rates and epochs against values worked out by hand."""

import pytest
import tensorflow as tf

from cifar10.cluster import roles
from cifar10.cluster.placement import Placement
from cifar10.data.info import CIFAR10
from cifar10.job.run import Run
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions
from cifar10.training import schedules
from cifar10.training.experiment import for_training


def with_gradients(count):
  role = roles.Role()
  role.gradients_per_update = count
  return role


def in_steps(hparams, options, role, examples):
  where = Placement([], 'CPU', 0, 'channels_last')
  run = for_training(Run(hparams, options, role, CIFAR10, where), examples, with_evaluations=False)
  return run.hparams, run.options


def test_boundaries_come_from_the_true_number_of_examples():
  # 40,000 / 128 = 312.5 steps an epoch: 82 x 312.5 = 25,625; 123 x 312.5 = 38,437.5, rounded up;
  # 300 x 312.5 = 93,750.
  assert schedules.boundaries_in_steps([82, 123, 300], 40_000, 128) == [25_625, 38_438, 93_750]


@pytest.mark.parametrize(
  ('gradients', 'boundaries'),
  [
    # 82 epochs are 3,280,000 examples: / 256 = 12,812.5 steps, / 384 = 8,541.67 steps. 123 epochs
    # are 4,920,000: 19,218.75 and 12,812.5. 300 are 12,000,000: 46,875 and 31,250.
    (2, [12_813, 19_219, 46_875]),
    (3, [8_542, 12_813, 31_250]),
  ],
)
def test_boundaries_of_synchronous_workers(gradients, boundaries):
  examples = with_gradients(gradients).examples_per_step(128)
  assert schedules.boundaries_in_steps([82, 123, 300], 40_000, examples) == boundaries


def test_half_epochs_and_two_workers():
  # 100 examples, 40 a step: 0.5 epochs are 50 examples, 1.25 steps, so step 2 is the first after.
  assert schedules.boundaries_in_steps([0.5, 2], 100, 40) == [2, 5]


def test_an_epoch_is_as_long_as_it_is_written():
  """1.1 x 100 is 110.00000000000001 in floating point, and 111 steps then."""
  assert schedules.boundaries_in_steps([1.1, 2.2, 1.15], 100, 1) == [110, 220, 115]


@pytest.mark.parametrize(
  ('step', 'rate'), [(0, 0.1), (9, 0.1), (10, 0.01), (19, 0.01), (20, 0.001), (10**9, 0.001)]
)
def test_a_boundary_is_the_first_step_of_the_next_rate(step, rate):
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    value = schedules.learning_rate(tf.constant(step, tf.int64), [10, 20], [0.1, 0.01, 0.001])
    assert session.run(value) == pytest.approx(rate)


def test_no_boundaries_is_a_constant_rate():
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    assert session.run(schedules.learning_rate(tf.constant(5, tf.int64), [], [0.5])) == 0.5


def test_a_triangle_by_hand():
  """Of 100 steps 20 rise from 0.2 to 1: 0.04 a step; 80 fall to 0.1: 0.9 / 80 a step."""
  steps = (0, 1, 10, 20, 60, 99, 100, 150)
  rates = [float(schedules.triangle(tf.constant(s), 100, 0.2, 0.2, 0.1)) for s in steps]
  assert rates == pytest.approx([0.2, 0.24, 0.6, 1, 0.55, 0.11125, 0.1, 0.1])


def test_a_triangle_may_end_above_its_peak():
  """Of 10 steps 5 rise from 0.5 to 1, and 5 from 1 to 2."""
  steps = (0, 5, 6, 9, 10, 11)
  rates = [float(schedules.triangle(tf.constant(s), 10, 0.5, 0.5, 2.0)) for s in steps]
  assert rates == pytest.approx([0.5, 1, 1.2, 1.8, 2, 2])


@pytest.mark.parametrize(('peak', 'expected'), [(0, [1, 0.75, 0]), (1, [0.5, 0.625, 1])])
def test_a_triangle_may_only_fall_or_only_rise(peak, expected):
  rates = [float(schedules.triangle(tf.constant(s), 4, 0.5, peak, 0.0)) for s in (0, 1, 4)]
  assert rates == pytest.approx(expected)


@pytest.mark.parametrize(('gradients', 'expected'), [(0, (938, 79, 157)), (2, (469, 40, 79))])
def test_epochs_are_counted_in_steps(gradients, expected):
  """Of 40,000 examples, 312.5 steps of 128 an epoch; with two workers' batches 156.25 steps."""
  role = with_gradients(gradients)
  options = RunOptions('job', eval_every_epochs=0.25, save_every_epochs=0.5)
  hparams, options = in_steps(HParams(train_epochs=3.0), options, role, 40_000)
  steps = hparams.train_steps, options.eval_every_steps, options.save_every_steps
  assert steps == expected


def test_what_is_given_in_steps_stays():
  hparams, options = HParams(train_steps=7), RunOptions('job', eval_every_steps=3)
  assert in_steps(hparams, options, roles.Role(), 40_000) == (hparams, options)
