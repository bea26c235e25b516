"""The progress bar of training, for terminals and notebooks."""

from typing import Any

from cifar10.callbacks.base import Run
from cifar10.callbacks.meter import Means
from cifar10.callbacks.progress import ProgressLines
from cifar10.core import logs

_REDRAW_SECONDS = 0.5
_BAR = '{percentage:3.0f}%|{bar}| step {n_fmt} of {total_fmt}  {desc}'


class ProgressBar(ProgressLines):
  """Shows a bar in the last line of the terminal; the log's other lines appear above it."""

  def __init__(self, run: Run):
    super().__init__(run)
    self._every_seconds = _REDRAW_SECONDS
    self._bar: Any = None

  def after_create_session(self, session: Any, coord: Any) -> None:
    super().after_create_session(session, coord)
    self._close()
    self._bar = logs.bar(
      total=self._run.last_step,
      initial=self._step,
      bar_format=_BAR,
      dynamic_ncols=True,
      leave=False,
      mininterval=0,
    )

  def averaged(self, means: Means) -> None:
    epoch = means.step * self._run.examples_per_step / self._run.examples_per_epoch
    self._bar.n = means.step
    self._bar.set_description_str(f'epoch {epoch:.1f}  {self.described(means)}')

  def end(self, session: Any) -> None:
    self._close()

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    self._close()  # After an error TensorFlow does not call `end`.

  def _close(self) -> None:
    if self._bar is not None:
      self._bar.close()
      self._bar = None
