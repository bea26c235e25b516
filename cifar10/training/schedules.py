"""The learning rate as a function of the global step, and what an epoch is in steps."""

from collections.abc import Sequence

import tensorflow as tf


def examples_per_global_step(batch_size: int, gradients_per_update: int = 1) -> int:
  """How many examples one global step learns from.

  In synchronous training one step takes a batch from every worker, and N batches fewer with N
  backup workers; a batch beyond those that arrives in time is used, but not counted. In
  asynchronous training each worker's batch is a step of its own. The schedule and the examples/s
  counter both call this function.
  """
  return batch_size * gradients_per_update


def boundaries_in_steps(
  epochs: Sequence[float], examples_per_epoch: int, examples_per_step: int
) -> list[int]:
  """The steps at which `epochs` epochs are over: ceil(epochs x examples / examples a step)."""
  return [-int(-epoch * examples_per_epoch // examples_per_step) for epoch in epochs]


def learning_rate(
  global_step: tf.Tensor, boundaries: Sequence[int], values: Sequence[float]
) -> tf.Tensor:
  """values[i] once i boundaries have been reached: step boundaries[0] is the first with values[1].

  `tf.compat.v1.train.piecewise_constant` changes one step later, at boundaries + 1; He et al. cut
  'at 32k iterations', after 32,000 steps, numbers 0 to 31,999.

  Args:
    global_step: int64 scalar, how many updates came before this one.
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
  """Rises linearly from `first` to 1 in the fraction `peak` of training, then falls to `last`.

  Args:
    global_step: int64 scalar, how many updates came before this one.
    last_step: of training.
    first, last: factors at step 0 and at `last_step`.
    peak: 0 (no rise) to 1 (no fall).

  Returns:
    float32 scalar.
  """
  peak_step = int(peak * last_step)
  step = tf.cast(global_step, tf.float32)
  rise = 1.0 if peak_step == 0 else first + (1 - first) * step / peak_step
  fall = last + (1 - last) * (last_step - step) / max(last_step - peak_step, 1)
  return tf.where(step <= peak_step, rise, tf.maximum(fall, last))
