"""Learning-rate schedules as functions of the global step; the length of an epoch in steps."""

import fractions
import math
from collections.abc import Sequence

import tensorflow as tf


def boundaries_in_steps(
  epochs: Sequence[float], examples_per_epoch: int, examples_per_step: int
) -> list[int]:
  """Returns the steps that end `epochs` epochs: ceil(epochs x examples / examples per step)."""
  # As written: 1.1 epochs of 100 steps are 110, though the nearest float is a little above 1.1.
  written = [fractions.Fraction(str(epoch)) for epoch in epochs]
  return [math.ceil(epoch * examples_per_epoch / examples_per_step) for epoch in written]


def learning_rate(
  global_step: tf.Tensor, boundaries: Sequence[int], values: Sequence[float]
) -> tf.Tensor:
  """Returns values[i] if i boundaries are reached; step boundaries[0] is the first with values[1].

  `tf.compat.v1.train.piecewise_constant` changes one step later, at boundaries + 1; He et al. cut
  'at 32k iterations', after 32,000 steps, numbers 0 to 31,999.

  Args:
    global_step: int64 scalar, the number of updates before this one.
    boundaries: rising steps.
    values: one more than boundaries.

  Returns:
    float32 scalar.
  """
  assert len(values) == len(boundaries) + 1
  reached = tf.reduce_sum(tf.cast(global_step >= tf.constant(boundaries, tf.int64), tf.int32))
  return tf.gather(tf.constant(values, tf.float32), reached)


def triangle(
  global_step: tf.Tensor, last_step: int, first: float, peak: float, last: float
) -> tf.Tensor:
  """Returns a factor that rises from `first` to 1 in the fraction `peak`, then falls to `last`.

  Args:
    global_step: int64 scalar, the number of updates before this one.
    last_step: the last step of training.
    first, last: factors at step 0 and at `last_step`.
    peak: 0 (no rise) to 1 (no fall).

  Returns:
    float32 scalar.
  """
  peak_step = int(peak * last_step)
  step = tf.minimum(tf.cast(global_step, tf.float32), float(last_step))
  rise = 1.0 if peak_step == 0 else first + (1 - first) * step / peak_step
  fall = last + (1 - last) * (last_step - step) / max(last_step - peak_step, 1)
  return tf.where(step <= peak_step, rise, fall)
