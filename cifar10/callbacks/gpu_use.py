"""How busy each GPU of this process is, by NVIDIA's management library."""

import contextlib
import importlib
import os
from collections.abc import Iterator
from typing import Any

from cifar10.core.logs import log

_GIB = 2**30


def visible_gpus() -> list[Any]:
  """Handles of the GPUs that this process may use; [] without nvidia-ml-py."""
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


def read(handles: list[Any]) -> Iterator[tuple[str, float]]:
  """Memory and utilization of each GPU; a MIG partition reports its memory alone."""
  if not handles:  # The library may be missing.
    return
  nvml = importlib.import_module('pynvml')
  for index, handle in enumerate(handles):
    with contextlib.suppress(nvml.NVMLError):
      yield f'gpu_{index}_memory_gib', nvml.nvmlDeviceGetMemoryInfo(handle).used / _GIB
    with contextlib.suppress(nvml.NVMLError):
      yield f'gpu_{index}_percent', float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
