"""CPU, memory and GPU use of a training, every ten seconds, for TensorBoard."""

import contextlib
import importlib
import os
import time
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from cifar10.callbacks.base import Callback, Run, Step
from cifar10.callbacks.summaries import write_scalars
from cifar10.core import limits
from cifar10.core.logs import log

_EVERY_SECONDS = 10.0
_GIB = 2**30


def make(run: Run) -> Callback | None:
  """In the chief, which writes the curves of training."""
  return Resources(run.job_dir, visible_gpus()) if run.is_chief else None


class Resources(Callback):
  """Writes TensorBoard's group 'resources': CPU and memory of this process, use of each GPU."""

  def __init__(self, job_dir: str, gpus: list[Any]):
    """Args:
    job_dir: whose event file is written.
    gpus: handles of NVIDIA's management library.
    """
    self._job_dir = job_dir
    self._gpus = gpus
    self._step = 0
    self._restart()

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._restart()

  def on_step_end(self, step: Step) -> None:
    self._step = step.step
    if time.monotonic() - self._since >= _EVERY_SECONDS:
      self._write()

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    if self._step:  # So that a short training has one point, too.
      self._write()

  def _restart(self) -> None:
    self._since, self._processor_seconds = time.monotonic(), time.process_time()

  def _write(self) -> None:
    seconds = max(time.monotonic() - self._since, 1e-9)
    used = (time.process_time() - self._processor_seconds) / seconds / limits.cores()
    values = {'cpu_percent': 100 * used, **dict(_memory()), **dict(_gpu_use(self._gpus))}
    named = {f'resources/{name}': value for name, value in values.items()}
    write_scalars(self._job_dir, self._step, named)
    self._restart()


def visible_gpus() -> list[Any]:
  """Handles of the GPUs that this process may use; [] without nvidia-ml-py."""
  if not tf.config.list_physical_devices('GPU'):
    return []
  try:
    nvml = importlib.import_module('pynvml')
    nvml.nvmlInit()
  except ImportError:
    log.info('TensorBoard will not show how busy the GPU is: that needs `pip install nvidia-ml-py`')
    return []
  except Exception as error:  # A driver's error is no reason not to train.
    log.info('TensorBoard will not show how busy the GPU is: %s', error)
    return []
  names = os.environ.get('CUDA_VISIBLE_DEVICES')
  if names is None:
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
  return [handle for name in names.split(',') for handle in _handles(nvml, name.strip())]


def _handles(nvml: Any, name: str) -> Iterator[Any]:
  """The handle of a GPU in CUDA_VISIBLE_DEVICES: a number, or 'GPU-' and the start of an UUID."""
  with contextlib.suppress(nvml.NVMLError):
    if name.isdecimal():
      yield nvml.nvmlDeviceGetHandleByIndex(int(name))
    elif name:
      yield nvml.nvmlDeviceGetHandleByUUID(name)


def _memory() -> Iterator[tuple[str, float]]:
  with contextlib.suppress(OSError), open('/proc/self/statm', encoding='ascii') as file:
    pages = int(file.read().split()[1])
    yield 'memory_gib', pages * os.sysconf('SC_PAGE_SIZE') / _GIB


def _gpu_use(handles: list[Any]) -> Iterator[tuple[str, float]]:
  """Memory and utilization of each GPU; a MIG partition reports its memory alone."""
  if not handles:
    return
  nvml = importlib.import_module('pynvml')
  for index, handle in enumerate(handles):
    with contextlib.suppress(nvml.NVMLError):
      yield f'gpu_{index}_memory_gib', nvml.nvmlDeviceGetMemoryInfo(handle).used / _GIB
    with contextlib.suppress(nvml.NVMLError):
      yield f'gpu_{index}_percent', float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
