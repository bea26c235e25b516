"""How busy the machine is, with a clock that the test turns, and a GPU that it makes up."""

import sys
import types

import pytest

from cifar10.callbacks import gpu_use, resources
from cifar10.callbacks.base import Step


def test_use_of_the_processor_is_a_share_of_all_cores(monkeypatch, tmp_path):
  """In ten seconds 12 s of processor time on four cores: 30 %."""
  clock, written = {'now': 0.0, 'used': 0.0}, []
  monkeypatch.setattr(resources.time, 'monotonic', lambda: clock['now'])
  monkeypatch.setattr(resources.time, 'process_time', lambda: clock['used'])
  monkeypatch.setattr(resources.limits, 'cores', lambda: 4)
  monkeypatch.setattr(resources, 'write_scalars', lambda *given: written.append(given))
  callback = resources.Resources(str(tmp_path))
  for number in range(1, 12):
    clock.update(now=number * 1.0, used=number * 1.2)
    callback.on_step_end(Step(number, {}))
  [(job_dir, step, values)] = written
  assert (job_dir, step) == (str(tmp_path), 10)
  assert values['resources/cpu_percent'] == pytest.approx(30)
  assert 0.05 < values['resources/memory_gib'] < 64


class NoGpuError(Exception):
  """As NVIDIA's library raises it."""


def made_up_nvml():
  """Three: one is 75 % busy with 3 GiB; the next, a part of one, does not say; one is lost."""

  def utilization(handle):
    if handle == 1:
      raise NoGpuError
    return types.SimpleNamespace(gpu=75)

  def by_index(index):
    if index > 1:
      raise NoGpuError
    return index

  return types.SimpleNamespace(
    NVMLError=NoGpuError,
    nvmlInit=lambda: None,
    nvmlDeviceGetCount=lambda: 3,
    nvmlDeviceGetHandleByIndex=by_index,
    nvmlDeviceGetHandleByUUID=lambda name: {'GPU-1': 1}[name],
    nvmlDeviceGetMemoryInfo=lambda handle: types.SimpleNamespace(used=(3 - handle) * 2**30),
    nvmlDeviceGetUtilizationRates=utilization,
  )


@pytest.mark.parametrize(
  ('visible', 'handles'),
  [(None, [0, 1]), ('1,0', [1, 0]), ('GPU-1', [1]), ('0,7', [0]), ('', [])],
)
def test_gpus_that_this_process_may_use(monkeypatch, visible, handles):
  monkeypatch.setitem(sys.modules, 'pynvml', made_up_nvml())
  if visible is None:
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
  else:
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', visible)
  assert gpu_use.visible_gpus() == handles


def test_use_of_gpus(monkeypatch):
  monkeypatch.setitem(sys.modules, 'pynvml', made_up_nvml())
  assert dict(gpu_use.read([0, 1])) == {
    'gpu_0_memory_gib': 3.0,
    'gpu_0_percent': 75.0,
    'gpu_1_memory_gib': 2.0,
  }
