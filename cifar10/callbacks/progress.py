"""How training and evaluation come along: lines in the log, examples/s in TensorBoard."""

import time
from typing import Any

import tensorflow as tf

from cifar10.platform.logs import log

_EVERY_SECONDS = 10  # Between two lines about progress.


class ProgressHook(tf.compat.v1.train.SessionRunHook):
  """Logs a line every few seconds, and writes examples/s beside the other summaries."""

  def __init__(
    self,
    tensors: dict[str, tf.Tensor],
    last_step: int,
    examples_per_step: int,
    output_dir: str,
    *,
    is_chief: bool = True,
  ):
    """Args:
    tensors: scalars to show, by name.
    last_step: the global step at which training ends: what time is left is told from it.
    examples_per_step: of a global step, all workers' together.
    output_dir: where TensorBoard reads.
    is_chief: whether to write there: one process does.
    """
    self._tensors = tensors
    self._last_step = last_step
    self._examples_per_step = examples_per_step
    self._output_dir = output_dir
    self._is_chief = is_chief
    self._show = False
    self._step = 0

  def begin(self) -> None:
    self._global_step = tf.compat.v1.train.get_global_step()
    if self._is_chief:
      self._writer = tf.compat.v1.summary.FileWriterCache.get(self._output_dir)

  def after_create_session(self, session: Any, coord: Any) -> None:
    step_before, self._step = self._step, session.run(self._global_step)
    self._since = time.monotonic()
    if self._step != step_before:  # Again and again while a task is away: once is enough.
      verb = 'resuming' if self._is_chief else 'joining'
      log.info('%s at step %s of %s', verb, f'{self._step:,}', f'{self._last_step:,}')

  def before_run(self, run_context: Any) -> Any:
    # Only every few seconds: a fetch of every step would copy four scalars from the device.
    self._show = time.monotonic() - self._since >= _EVERY_SECONDS
    if not self._show:
      return None
    return tf.compat.v1.train.SessionRunArgs([self._global_step, self._tensors])

  def after_run(self, run_context: Any, run_values: Any) -> None:
    if self._show:
      self._report(*run_values.results)

  def _report(self, step: int, values: dict[str, float]) -> None:
    now = time.monotonic()
    if step <= self._step:
      return
    steps_per_second = (step - self._step) / (now - self._since)
    examples_per_second = steps_per_second * self._examples_per_step
    seconds_left = max(self._last_step - step, 0) / steps_per_second
    shown = '  '.join(f'{name} {value:.4g}' for name, value in values.items())
    log.info(
      'step %s of %s  %s  %.0f images/s  %s left',
      f'{step:,}',
      f'{self._last_step:,}',
      shown,
      examples_per_second,
      format_duration(seconds_left),
    )
    if self._is_chief:
      summary = tf.compat.v1.Summary()
      summary.value.add(tag='examples_per_second', simple_value=examples_per_second)
      self._writer.add_summary(summary, step)
    self._step, self._since = step, now


class EvaluationLogHook(tf.compat.v1.train.SessionRunHook):
  """Logs one line when an evaluation is over."""

  def __init__(self, values: dict[str, tf.Tensor]):
    """`values` are the metrics' value tensors, by name."""
    self._values = values

  def begin(self) -> None:
    self._global_step = tf.compat.v1.train.get_global_step()

  def end(self, session: Any) -> None:
    step, values = session.run([self._global_step, self._values])
    shown = '  '.join(f'{name} {value:.4f}' for name, value in values.items())
    log.info('evaluated at step %s  %s', f'{step:,}', shown)


def format_duration(seconds: float) -> str:
  """7 -> '7 s', 90 -> '2 min', 5400 -> '1 h 30 min'."""
  if seconds < 60:
    return f'{seconds:.0f} s'
  minutes = round(seconds / 60)
  return f'{minutes} min' if minutes < 60 else f'{minutes // 60} h {minutes % 60} min'
