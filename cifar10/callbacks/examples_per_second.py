"""A session hook that logs the examples a second, for Estimators of one's own."""

import tensorflow as tf

from cifar10.core.logs import log


class ExamplesPerSecondHook(tf.compat.v1.train.StepCounterHook):
  """Logs the rate since the line before, and that of all its steps."""

  def __init__(
    self, batch_size: int, every_n_steps: int | None = 100, every_n_secs: float | None = None
  ):
    """Args:
    batch_size: how many examples a global step learns from.
    every_n_steps: how many steps lie between two lines.
    every_n_secs: how many seconds, in place of steps.
    """
    super().__init__(None if every_n_secs else every_n_steps, every_n_secs)
    self._batch_size = batch_size
    self._steps = 0
    self._seconds = 0.0

  def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
    self._steps += elapsed_steps
    self._seconds += elapsed_time
    current = self._batch_size * elapsed_steps / elapsed_time
    average = self._batch_size * self._steps / self._seconds
    log.info('Average examples/sec: %g (%g), step = %s', average, current, f'{int(global_step):,}')
