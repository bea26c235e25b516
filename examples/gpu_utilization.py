"""Curves of how busy each GPU and this process's cores are, every ten seconds:

pip install nvidia-ml-py
PYTHONPATH=examples python cifar10_main.py --callback gpu_utilization:GpuUtilization ...
"""

import os
import time

import pynvml

import cifar10


class GpuUtilization(cifar10.Callback):
  def __init__(self, run):
    self.run = run
    self.last = time.monotonic(), time.process_time()
    pynvml.nvmlInit()
    every = ','.join(map(str, range(pynvml.nvmlDeviceGetCount())))
    visible = os.environ.get('CUDA_VISIBLE_DEVICES', every).split(',')
    self.gpus = [pynvml.nvmlDeviceGetHandleByIndex(int(each)) for each in visible if each.strip()]

  def on_step_end(self, step):
    if time.monotonic() - self.last[0] >= 10:
      self.write()

  def on_train_end(self, reason, message, step):
    self.write()  # A short training gets one point, too.

  def write(self):
    now = time.monotonic(), time.process_time()
    seconds, of_processors = (after - before for after, before in zip(now, self.last))
    self.last = now
    use = {'cpu_percent': 100 * of_processors / seconds / os.cpu_count()}
    for number, gpu in enumerate(self.gpus):
      use[f'gpu_{number}_memory_gib'] = pynvml.nvmlDeviceGetMemoryInfo(gpu).used / 2**30
      use[f'gpu_{number}_percent'] = pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu
    for name, value in use.items():
      self.run.put_scalar(f'resources/{name}', value)
