"""Learning rates as a function of the global step; how many steps a number of epochs has.

At each step `control` may put another rate in place of these: `_train_spec` in model_fn.py.
"""

import fractions
import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from cifar10.core.user_code import called
from cifar10.data.manifest import WIDTH
from cifar10.options.hparams import HParams


class Rates(NamedTuple):
  """The learning rates at a step: float32 scalars."""

  sgd: tf.Tensor
  muon: tf.Tensor


class Course(NamedTuple):
  """What a --schedule is told of the training."""

  learning_rate: float
  train_steps: int
  steps_per_epoch: float


def steps_of(epochs: float, examples_per_epoch: int, examples_per_step: int) -> int:
  """Returns the step that ends so many epochs: ceil(epochs x examples / examples per step)."""
  # As written: 1.1 epochs of 100 steps are 110, though the nearest float is a little above 1.1.
  return math.ceil(fractions.Fraction(str(epochs)) * examples_per_epoch / examples_per_step)


def learning_rates(
  hparams: HParams, global_step: tf.Tensor, examples_per_epoch: int, examples_per_step: int
) -> Rates:
  """Returns the scheduled rates of the update after `global_step` others, an int64 scalar.

  They are those of --schedule, a triangle, or phases; a boundary is the first step of its phase.
  `tf.compat.v1.train.piecewise_constant` changes one step later, at boundaries + 1; He et al. cut
  'at 32k iterations', after 32,000 steps, numbers 0 to 31,999.

  Raises InputError for a --schedule that fails or gives no scalar.
  """
  rates = hparams.learning_rate, hparams.muon_learning_rate
  if name := hparams.schedule:
    course = Course(rates[0], hparams.train_steps, examples_per_epoch / examples_per_step)
    own = called('--schedule', name)(tf.cast(global_step, tf.float32), course)
    rate = called('--schedule', name, lambda: tf.reshape(tf.cast(own, tf.float32), []))()
    return Rates(rate, rate * (rates[1] / rates[0]))
  if hparams.lr_triangle:
    factor = triangle(global_step, hparams.train_steps, *hparams.lr_triangle)
    return Rates(*(rate * factor for rate in rates))
  boundaries = [
    steps_of(epochs, examples_per_epoch, examples_per_step)
    for epochs in hparams.lr_boundaries_epochs
  ]
  phase = _phase(global_step, boundaries)
  of_phases = ([rate * factor for factor in hparams.lr_values] for rate in rates)
  return Rates(*(tf.gather(tf.constant(values, tf.float32), phase) for values in of_phases))


def resolution(hparams: HParams) -> tf.Tensor | None:
  """Returns the side of training's images at the global step, int32 pixels; None: always whole."""
  if not hparams.resolutions:
    return None
  global_step = tf.compat.v1.train.get_or_create_global_step().read_value()
  sides, ends = zip(*hparams.sides_and_ends())
  return tf.gather([*sides, WIDTH], _phase(global_step, ends))


def _phase(global_step: tf.Tensor, boundaries: Sequence[int]) -> tf.Tensor:
  """Returns how many of the boundaries are reached; each is the first step of its phase."""
  return tf.reduce_sum(tf.cast(global_step >= tf.constant(boundaries, tf.int64), tf.int32))


def triangle(
  global_step: tf.Tensor, last_step: int, first: float, peak: float, last: float
) -> tf.Tensor:
  """Returns a factor that rises from `first` to 1, then falls to `last` after the last step.

  `peak` is the part of training that it rises in: 0 (no rise) to 1 (no fall).
  """
  peak_step = int(peak * last_step)
  step = tf.minimum(tf.cast(global_step, tf.float32), float(last_step))
  rise = 1.0 if peak_step == 0 else first + (1 - first) * step / peak_step
  fall = last + (1 - last) * (last_step - step) / max(last_step - peak_step, 1)
  return tf.where(step <= peak_step, rise, fall)
