"""Shows the progress of training: lines in the log, or a progress bar on a terminal."""

import sys

import tensorflow as tf
from tensorflow.compat.v1 import Session
from tensorflow.train import Coordinator

from cifar10.callbacks.base import Callback, Evaluation, Means, Step, Window
from cifar10.core import logs
from cifar10.core.logs import format_duration, log
from cifar10.job.run import Run

_REDRAW_SECONDS = 0.5
_BAR = '{percentage:3.0f}%|{bar}| step {n_fmt} of {total_fmt}  {desc}'


def shows_bars() -> bool:
  """Tells whether standard error is a terminal or a notebook's."""
  in_notebook = type(sys.stderr).__module__.startswith('ipykernel')
  return in_notebook or sys.stderr.isatty()


class Progress(Callback):
  """Shows the means over the steps since it last did: every few seconds as lines of the log.

  On a terminal and in a notebook, where this process is alone, it is a bar in the last line.
  """

  def __init__(self, run: Run):
    self._run = run
    self._has_bar = shows_bars() and not run.cluster.is_distributed
    self._every_seconds: float = _REDRAW_SECONDS if self._has_bar else run.options.log_every
    self._window = Window(0)
    self._began_at = 0  # The step at which this process's latest session began.
    self._bar = logs.bar(disable=True)

  def after_create_session(self, session: Session, coord: Coordinator) -> None:
    step, last_step = self._run.step, self._run.last_step
    if step != self._began_at:  # While a task is away, sessions are created again and again.
      verb = 'resuming' if self._run.is_chief else 'joining'
      log.info('%s at step %s of %s', verb, f'{step:,}', f'{last_step:,}')
    self._window, self._began_at = Window(step), step
    self._bar.close()
    if self._has_bar:
      self._bar = logs.bar(
        total=last_step, initial=step, bar_format=_BAR, dynamic_ncols=True, leave=False
      )

  def on_step_end(self, step: Step) -> None:
    if step.step < self._window.step:  # A worker's: the chief has gone back to its checkpoint.
      self._window = Window(step.step)
    is_due = self._window.seconds >= self._every_seconds
    self._window.add(step)
    if is_due and (means := self._window.means()):
      self._window = Window(means.step)
      self._show(means)

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    self._window.leave_out()

  def _show(self, means: Means) -> None:
    run = self._run
    shown = '  '.join(f'{name} {value:.4g}' for name, value in means.values.items())
    images_per_second = means.steps_per_second * run.examples_per_step
    steps_left = max(run.work(run.last_step) - run.work(means.step), 0)
    steps_left /= run.work(means.step) - run.work(means.step - 1)  # In steps like the last one.
    left = format_duration(steps_left / means.steps_per_second)
    shown += f'  {images_per_second:.0f} images/s  {left} left'
    if not self._has_bar:
      log.info('step %s of %s  %s', f'{means.step:,}', f'{run.last_step:,}', shown)
      return
    epoch = means.step * run.examples_per_step / run.examples_per_epoch
    self._bar.n = means.step
    self._bar.set_description_str(f'epoch {epoch:.1f}  {shown}')

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    self._bar.close()


class ExamplesPerSecondHook(tf.compat.v1.train.StepCounterHook):
  """Logs examples a second, from the start and since the line before, to TensorFlow's log."""

  def __init__(
    self, batch_size: int, every_n_steps: int | None = 100, every_n_secs: float | None = None
  ):
    """A line every so many steps, or seconds; a global step learns from `batch_size` examples."""
    super().__init__(None if every_n_secs else every_n_steps, every_n_secs)
    self._batch_size, self._steps, self._seconds = batch_size, 0, 0.0

  def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
    self._steps += elapsed_steps
    self._seconds += elapsed_time
    current = self._batch_size * elapsed_steps / elapsed_time
    average = self._batch_size * self._steps / self._seconds
    line = f'Average examples/sec: {average:g} ({current:g}), step = {int(global_step):,}'
    tf.compat.v1.logging.info(line)
