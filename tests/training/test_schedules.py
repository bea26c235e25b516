"""Learning rates and epochs against values worked out by hand."""

import pytest
import tensorflow as tf

from cifar10.cluster import roles
from cifar10.core import user_code
from cifar10.data.manifest import CIFAR10
from cifar10.job.run import Placement, Run
from cifar10.options.hparams import HParams, from_values
from cifar10.options.run_options import RunOptions
from cifar10.training import schedules
from cifar10.training.experiment import for_training


@pytest.mark.parametrize(
  ('epochs', 'examples', 'per_step', 'steps'),
  [
    # 40,000 / 128 = 312.5 steps an epoch.
    (82, 40_000, 128, 25_625),
    (123, 40_000, 128, 38_438),  # 38,437.5, rounded up.
    (300, 40_000, 128, 93_750),
    # Batches of two and three workers: 3,280,000 / 256 = 12,812.5; / 384 = 8,541.67.
    (82, 40_000, 256, 12_813),
    (82, 40_000, 384, 8_542),
    (0.5, 100, 40, 2),  # 1.25 steps, so step 2 is the first after them.
    # As long as it is written: 1.1 x 100 is 110.00000000000001 in floating point.
    (1.1, 100, 1, 110),
    (2.2, 100, 1, 220),
    (1.15, 100, 1, 115),
  ],
)
def test_epochs_become_steps(epochs, examples, per_step, steps):
  assert schedules.steps_of(epochs, examples, per_step) == steps


def rates_at(step, **options):
  """The rates of SGD and Muon, with 10 steps an epoch."""
  hparams = from_values(options)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    return session.run(schedules.learning_rates(hparams, tf.constant(step, tf.int64), 80, 8))


@pytest.mark.parametrize(
  ('step', 'factor'), [(0, 1), (9, 1), (10, 0.1), (19, 0.1), (20, 0.01), (10**9, 0.01)]
)
def test_a_boundary_is_the_first_step_of_the_next_rate(step, factor):
  given = {'learning_rate': 0.1, 'muon_learning_rate': 0.5, 'lr_values': (1, 0.1, 0.01)}
  rates = rates_at(step, **given, lr_boundaries_epochs=(1, 2))
  assert rates == pytest.approx((0.1 * factor, 0.5 * factor))


def test_a_schedule_of_ones_own():
  """0.2 (1 - 30 / 40); Muon's rate is 2.5 times that. An epoch has 10 steps."""
  given = {'learning_rate': 0.2, 'muon_learning_rate': 0.5, 'train_steps': 40}
  falling = user_code.given(lambda step, run: run.learning_rate * (1 - step / run.train_steps))
  assert rates_at(30, **given, schedule=falling) == pytest.approx((0.05, 0.125))
  assert rates_at(3, schedule='outside_parts:by_epoch') == pytest.approx((0.03, 0))


def test_the_resolution_of_a_step():
  """Of 100 steps 29 of 24 pixels (0.29 x 100 is 28.999...), up to 35 of 28; then whole images."""
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    step = tf.compat.v1.train.create_global_step()
    given = {'resolutions': (24.0, 0.29, 28.0, 0.35), 'train_steps': 100}
    side = schedules.resolution(from_values(given))
    at = {n: [session.run(step.assign(n)), session.run(side)][1] for n in (0, 28, 29, 34, 35)}
  assert at == {0: 24, 28: 24, 29: 28, 34: 28, 35: 32}


def test_a_constant_rate_or_a_triangle_in_place_of_phases():
  """Of 80 steps 16 rise from 0.2 to 1."""
  given = {'learning_rate': 2.0, 'muon_learning_rate': 1.0, 'train_steps': 80}
  assert rates_at(8, **given, lr_triangle=(0.2, 0.2, 0.1)) == pytest.approx((1.2, 0.6))
  assert rates_at(5, learning_rate=0.5, lr_values=(1,), lr_boundaries_epochs=()) == (0.5, 0)


@pytest.mark.parametrize(
  ('shape', 'expected'),
  [
    # Of 100 steps 20 rise from 0.2 to 1: 0.04 a step; 80 fall to 0.1: 0.9 / 80 a step.
    (
      (100, 0.2, 0.2, 0.1),
      {0: 0.2, 1: 0.24, 10: 0.6, 20: 1, 60: 0.55, 99: 0.11125, 100: 0.1, 150: 0.1},
    ),
    ((4, 0.5, 0.5, 2.0), {0: 0.5, 2: 1, 3: 1.5, 4: 2, 5: 2}),  # It may end above its peak,
    ((4, 0.5, 0, 0.0), {0: 1, 1: 0.75, 4: 0}),  # only fall,
    ((4, 0.5, 1, 0.0), {0: 0.5, 1: 0.625, 4: 1}),  # or only rise.
  ],
)
def test_triangles_by_hand(shape, expected):
  rates = {step: float(schedules.triangle(tf.constant(step), *shape)) for step in expected}
  assert rates == pytest.approx(expected)


@pytest.mark.parametrize(('gradients', 'expected'), [(1, 938), (2, 469)])
def test_epochs_are_counted_in_steps(gradients, expected):
  """Of 40,000 examples, 312.5 steps of 128 an epoch; with two workers' batches 156.25 steps."""
  role, where = roles.Role(), Placement(0, 'CPU')
  role.gradients_per_update = gradients
  run = Run(HParams(train_epochs=3.0), RunOptions('job'), role, CIFAR10, where)
  assert for_training(run, 40_000).last_step == expected
