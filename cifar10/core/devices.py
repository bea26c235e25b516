"""Capabilities of this machine's processors, and how TensorFlow uses them."""

import contextlib
import ctypes
import os
import platform
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port

from cifar10.core import limits


def fast_dtype(num_gpus: int) -> tuple[str, str]:
  """Returns ('bfloat16' or 'float32', the reason): bfloat16 if the hardware multiplies it."""
  if num_gpus:
    gpu = tf.config.list_physical_devices('GPU')[0]
    capability = tf.config.experimental.get_device_details(gpu).get('compute_capability', (0, 0))
    named = f'the GPU has compute capability {".".join(map(str, capability))}'
    return ('bfloat16' if capability >= (8, 0) else 'float32'), named
  if not _pywrap_util_port.IsMklEnabled():  # TensorFlow's own bfloat16 is slow everywhere.
    return 'float32', described_kernels()
  if fast := sorted({'avx512_bf16', 'amx_bf16'}.intersection(_cpuinfo().split())):
    return 'bfloat16', f'this processor has {" and ".join(fast)}'
  return 'float32', 'this processor does not say that it has avx512_bf16 or amx_bf16'


def has_unused_gpu() -> bool:
  """Tells whether NVIDIA's driver has a GPU for this process, whatever TensorFlow sees."""
  try:
    return ctypes.CDLL('libcuda.so.1').cuInit(0) == 0
  except OSError:
    return False


def described_kernels() -> str:
  """Describes the CPU kernels: 'oneDNN kernels are on (TF_ENABLE_ONEDNN_OPTS is 1)'."""
  state = 'on' if _pywrap_util_port.IsMklEnabled() else 'off'
  switch = os.environ.get('TF_ENABLE_ONEDNN_OPTS', 'not set')
  return f'oneDNN kernels are {state} (TF_ENABLE_ONEDNN_OPTS is {switch})'


def described_hardware() -> dict[str, Any]:
  """Returns the hardware for records: {'processor', 'cores', 'memory_gib', 'gpus': [names]}."""
  named = re.search(r'^model name\s*: (.+)$', _cpuinfo(), re.MULTILINE)
  memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  gpus = tf.config.list_physical_devices('GPU')
  details = tf.config.experimental.get_device_details
  return {
    'processor': named[1].strip() if named else platform.processor() or platform.machine(),
    'cores': limits.cores(),
    'memory_gib': round(memory / 2**30, 1),
    'gpus': [details(gpu).get('device_name', gpu.name) for gpu in gpus],
  }


def _cpuinfo() -> str:
  """Returns Linux's description of the processors; '' if there is none."""
  with contextlib.suppress(OSError), open('/proc/cpuinfo', encoding='utf-8') as file:
    return file.read()
  return ''


def session_config(
  num_cpu_towers: int = 1, num_gpus: int = 0, device_filters: Sequence[str] = ()
) -> tf.compat.v1.ConfigProto:
  """Returns the settings that every session has."""
  return tf.compat.v1.ConfigProto(
    allow_soft_placement=True,  # Some operations have no GPU kernel.
    # Or operations that have no device would run on a GPU that is not this program's.
    device_count={'CPU': num_cpu_towers, 'GPU': num_gpus},
    device_filters=device_filters,
    # By `limits.set_threads`: TensorFlow may have read the variables before they were set.
    intra_op_parallelism_threads=int(os.environ.get('TF_NUM_INTRAOP_THREADS') or 0),
    inter_op_parallelism_threads=int(os.environ.get('TF_NUM_INTEROP_THREADS') or 0),
  )


@contextlib.contextmanager
def side_graph() -> Iterator[tf.Graph]:
  """A separate default graph, to inspect a network or data."""
  with tf.Graph().as_default() as graph:
    tf.compat.v1.set_random_seed(0)  # Without one --deterministic refuses what could be random.
    yield graph
