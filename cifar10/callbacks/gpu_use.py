"""Measures memory and utilization of this process's GPUs, with NVIDIA's management library."""

import contextlib
import importlib
import os
from collections.abc import Iterator
from typing import Any

from cifar10.core.logs import log

_GIB = 2**30


def visible_gpus() -> list[Any]:
  """Returns handles of the GPUs that this process may use; [] without nvidia-ml-py."""
  try:
    nvml = importlib.import_module('pynvml')
    nvml.nvmlInit()
    every = ','.join(map(str, range(nvml.nvmlDeviceGetCount())))
  except Exception as error:  # A driver's error must not stop training.
    is_missing = isinstance(error, ImportError)
    why = 'that needs `pip install nvidia-ml-py`' if is_missing else error
    log.info('TensorBoard will not show how busy the GPU is: %s', why)
    return []
  names = os.environ.get('CUDA_VISIBLE_DEVICES', every)
  handles = []
  for name in map(str.strip, names.split(',')):  # A number, or a UUID's start 'GPU-...'.
    with contextlib.suppress(nvml.NVMLError):
      if name.isdecimal():
        handles.append(nvml.nvmlDeviceGetHandleByIndex(int(name)))
      elif name:
        handles.append(nvml.nvmlDeviceGetHandleByUUID(name))
  return handles


def read(handles: list[Any]) -> Iterator[tuple[str, float]]:
  """Yields each GPU's memory and utilization; a MIG partition has only its memory."""
  if not handles:  # Then the library may be missing.
    return
  nvml = importlib.import_module('pynvml')
  for index, handle in enumerate(handles):
    with contextlib.suppress(nvml.NVMLError):
      yield f'gpu_{index}_memory_gib', nvml.nvmlDeviceGetMemoryInfo(handle).used / _GIB
    with contextlib.suppress(nvml.NVMLError):
      yield f'gpu_{index}_percent', float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
