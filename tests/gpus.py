"""The devices of the tests marked gpu: this machine's GPUs under TEST_GPUS=1, else its CPU.

  python tests/gpus.py

ends with code 2 and one line where NVIDIA's driver shows no GPU. `make gpu` runs it first, with a
Python that need not have TensorFlow.
"""

import ctypes
import functools
import os
import sys

ASKED = os.environ.get('TEST_GPUS', '0') != '0'


def reason_for_none():
  """Why TensorFlow sees no GPU; '' where there is one. It is asked itself under TEST_GPUS=1."""
  try:
    code = ctypes.CDLL('libcuda.so.1').cuInit(0)
  except OSError as error:
    return f"NVIDIA's driver cannot be loaded ({error}); install it (docs/support.md)"
  if code:
    shown = os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')
    return f"NVIDIA's driver gives it none (cuInit: {code}; CUDA_VISIBLE_DEVICES is {shown})"
  if ASKED and not visible():
    return 'the CUDA libraries are missing, or do not fit the driver (docs/support.md)'
  return ''


@functools.cache
def visible():
  """How many GPUs the tests use: 0 unless TEST_GPUS=1 is set."""
  import tensorflow as tf  # noqa: PLC0415  (not installed when `make gpu` begins)

  return len(tf.config.list_physical_devices('GPU')) if ASKED else 0


def set_environment():
  """What TensorFlow and the processes of tests read: no GPU, or GPUs that compute in float32."""
  if not ASKED:
    # A test that does not expect a GPU would train in another format and dtype there.
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
    return
  os.environ['NVIDIA_TF32_OVERRIDE'] = '0'  # By default float32 products have 10 bits.
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')


def flags(num_towers):
  """The program's flags for so many towers, or for all GPUs where there are fewer."""
  if visible():
    return ['--num-gpus', min(num_towers, visible()), '--dtype', 'float32']
  return ['--num-cpu-towers', num_towers]


def session_config():
  """The program's ConfigProto, with three CPUs; one GPU becomes two virtual ones of 2 GiB."""
  from cifar10.core import devices  # noqa: PLC0415  (it loads TensorFlow)

  config = devices.session_config(num_cpu_towers=3, num_gpus=2)
  if visible() == 1:
    config.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[2048, 2048])
  return config


if __name__ == '__main__':
  reason = reason_for_none()
  if reason:
    print(f'error: TensorFlow sees no GPU on this machine: {reason}', file=sys.stderr)
    sys.exit(2)
