"""The progress of a training: lines in the log, or a bar on a terminal."""

import sys
from typing import Any

import tensorflow as tf
import tqdm

from cifar10.callbacks.base import Callback, Evaluation, Run, Step
from cifar10.callbacks.meter import Means, Window
from cifar10.core.logs import IMAGES_BAR, format_duration, log

_REDRAW_SECONDS = 0.5
_BAR = '{percentage:3.0f}%|{bar}| step {n_fmt} of {total_fmt}  {desc}'


def make(run: Run) -> Callback:
  """A bar where standard error is a terminal and this process is alone; lines elsewhere."""
  is_alone = not run.cluster.is_distributed
  return ProgressBar(run) if is_alone and sys.stderr.isatty() else ProgressLines(run)


class _Progress(Callback):
  """Logs the step at which training begins, and reports means over steps every few seconds."""

  def __init__(self, run: Run, every_seconds: float):
    self._run = run
    self._every_seconds = every_seconds
    self._window = Window()
    self._began_at = 0  # The step at which this process's latest session went on.

  def begin(self) -> None:
    self._global_step = tf.compat.v1.train.get_global_step()

  def after_create_session(self, session: Any, coord: Any) -> None:
    began_before, step = self._began_at, int(session.run(self._global_step))
    self._window.restart(step)
    self._began_at = step
    if step != began_before:  # While a task is away, sessions begin again and again.
      verb = 'resuming' if self._run.is_chief else 'joining'
      log.info('%s at step %s of %s', verb, f'{step:,}', f'{self._run.last_step:,}')

  def on_step_end(self, step: Step) -> None:
    self._window.add(step)
    if self._window.seconds >= self._every_seconds and not self._window.is_empty:
      self.report(self._window.take())

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    self._window.skip()

  def report(self, means: Means) -> None:
    """Shows the means of some steps."""
    raise NotImplementedError

  def described(self, means: Means) -> str:
    """'loss 1.234  accuracy 0.5  learning_rate 0.1  1200 images/s  2 min left'"""
    shown = '  '.join(f'{name} {value:.4g}' for name, value in means.values.items())
    seconds_left = max(self._run.last_step - means.step, 0) / means.steps_per_second
    return (
      f'{shown}  {means.steps_per_second * self._run.examples_per_step:.0f} images/s  '
      f'{format_duration(seconds_left)} left'
    )


class ProgressLines(_Progress):
  """Lines in the log."""

  def __init__(self, run: Run):
    super().__init__(run, run.options.log_every)

  def report(self, means: Means) -> None:
    log.info(
      'step %s of %s  %s', f'{means.step:,}', f'{self._run.last_step:,}', self.described(means)
    )


class ProgressBar(_Progress):
  """A bar at the foot of the terminal; lines of the log run above it."""

  def __init__(self, run: Run):
    super().__init__(run, _REDRAW_SECONDS)
    self._bar: Any = None

  def after_create_session(self, session: Any, coord: Any) -> None:
    super().after_create_session(session, coord)
    self._close()
    self._bar = tqdm.tqdm(
      total=self._run.last_step,
      initial=self._window.step,
      bar_format=_BAR,
      dynamic_ncols=True,
      leave=False,
      mininterval=0,
    )

  def report(self, means: Means) -> None:
    epoch = means.step * self._run.examples_per_step / self._run.examples_per_epoch
    self._bar.n = means.step
    self._bar.set_description_str(f'epoch {epoch:.1f}  {self.described(means)}')

  def end(self, session: Any) -> None:
    self._close()

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    self._close()  # After an error `end` is not called.

  def _close(self) -> None:
    if self._bar is not None:
      self._bar.close()
      self._bar = None


class EvaluationBarHook(tf.compat.v1.train.SessionRunHook):
  """The bar of one evaluation, where standard error is a terminal."""

  def __init__(self, split: str, num_examples: int, batch_size: int):
    """Args:
    split: its name.
    num_examples: of the split.
    batch_size: of each run of the session but the last.
    """
    self._split = split
    self._num_examples = num_examples
    self._batch_size = batch_size
    self._bar: Any = None

  def begin(self) -> None:
    self._bar = tqdm.tqdm(
      total=self._num_examples,
      desc=f'evaluating {self._split}',
      bar_format=IMAGES_BAR,
      dynamic_ncols=True,
      leave=False,
      disable=not sys.stderr.isatty(),
    )

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self._bar.update(min(self._batch_size, self._num_examples - self._bar.n))

  def end(self, session: Any) -> None:
    self._bar.close()
