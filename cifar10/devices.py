"""Flags and hardware -> the devices that this process computes on, and in what precision."""

import tensorflow as tf

from cifar10 import towers
from cifar10.errors import InputError
from cifar10.estimator import REDUCES_BETWEEN_PROCESSES
from cifar10.hparams import RunOptions
from cifar10.model_fn import Placement


def check_distribution(options: RunOptions) -> None:
  """Raises InputError for an all-reduce that this TensorFlow's Estimator cannot do."""
  name = 'multi_worker_mirrored'
  if options.distribute == name and not REDUCES_BETWEEN_PROCESSES:
    raise InputError(
      f"--distribute {name} needs the Estimator's part in TensorFlow, which {tf.__version__} no "
      'longer has; use parameter servers, or Python 3.10 or 3.11 with TensorFlow 2.15.1'
    )


def num_gpus(options: RunOptions, visible: int) -> int:
  """How many GPUs to use; raises InputError for a combination that cannot run."""
  count = visible if options.num_gpus is None else options.num_gpus
  if count > visible:
    raise InputError(f'--num-gpus {count} but TensorFlow sees {visible}; ask for fewer')
  if count and options.num_cpu_towers > 1:
    raise InputError(
      f'--num-cpu-towers {options.num_cpu_towers} and {count} GPUs; add --num-gpus 0'
    )
  if options.variable_strategy == 'GPU' and not count:
    raise InputError('--variable-strategy GPU needs a GPU and there is none; use CPU')
  if options.data_format == 'channels_first' and not count:
    raise InputError(
      '--data-format channels_first needs a GPU and there is none; use channels_last'
    )
  return count


def placement(options: RunOptions, num_gpus: int) -> Placement:
  """The towers and where the variables are."""
  return Placement(
    towers.tower_devices(num_gpus, options.num_cpu_towers),
    options.variable_strategy,
    num_gpus,
    options.data_format or ('channels_first' if num_gpus else 'channels_last'),
  )


def fast_dtype(num_gpus: int) -> tuple[str, str]:
  """('bfloat16' or 'float32', why): bfloat16 where the hardware multiplies it."""
  if num_gpus:
    gpu = tf.config.list_physical_devices('GPU')[0]
    capability = tf.config.experimental.get_device_details(gpu).get('compute_capability', (0, 0))
    named = f'the GPU has compute capability {".".join(map(str, capability))}'
    return ('bfloat16' if capability >= (8, 0) else 'float32'), named
  try:
    with open('/proc/cpuinfo', encoding='utf-8') as file:
      flags = set(file.read().split())
  except OSError:
    return 'float32', 'this system does not say what its processor can do'
  found = sorted(flags & {'avx512_bf16', 'amx_bf16'})
  if found:
    return 'bfloat16', f'this processor has {" and ".join(found)}'
  return 'float32', 'this processor has neither avx512_bf16 nor amx_bf16'
