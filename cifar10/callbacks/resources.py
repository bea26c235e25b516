"""Writes CPU, memory and GPU use of a training for TensorBoard, every ten seconds."""

import functools
import time
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from cifar10.callbacks.base import Callback, Step
from cifar10.callbacks.summaries import write_scalars
from cifar10.core import limits
from cifar10.job.run import Run

_EVERY_SECONDS = 10.0


def make(run: Run) -> Callback | None:
  """Returns the callback in the chief, which writes the training's curves."""
  if not run.is_chief:
    return None
  if not tf.config.list_physical_devices('GPU'):
    return Resources(run.job_dir)
  from cifar10.callbacks import gpu_use  # noqa: PLC0415  (only if there are GPUs)

  return Resources(run.job_dir, functools.partial(gpu_use.read, gpu_use.visible_gpus()))


class Resources(Callback):
  """Writes TensorBoard's group 'resources': this process's CPU and memory, and each GPU's use."""

  def __init__(self, job_dir: str, gpu_use: Callable[[], Iterable[tuple[str, float]]] = tuple):
    """`gpu_use` returns pairs of a name and the use of a GPU."""
    self._job_dir = job_dir
    self._gpu_use = gpu_use
    self._step = 0
    self._restart()

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._restart()

  def on_step_end(self, step: Step) -> None:
    self._step = step.step
    if time.monotonic() - self._since >= _EVERY_SECONDS:
      self._write()

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    if self._step:  # A short training gets one point, too.
      self._write()

  def _restart(self) -> None:
    self._since, self._processor_seconds = time.monotonic(), time.process_time()

  def _write(self) -> None:
    seconds = max(time.monotonic() - self._since, 1e-9)
    used = (time.process_time() - self._processor_seconds) / seconds / limits.cores()
    values = {'cpu_percent': 100 * used, **dict(self._gpu_use())}
    for kibibytes in limits.numbers('/proc/self/status', 'VmRSS:'):
      values['memory_gib'] = kibibytes / 2**20
    named = {f'resources/{name}': value for name, value in values.items()}
    write_scalars(self._job_dir, self._step, named)
    self._restart()
