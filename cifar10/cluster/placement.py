"""Selects the devices and the precision of this process, from options and hardware.

The device setters in training/towers.py then place each variable.
"""

import dataclasses
from typing import NamedTuple

from cifar10.core import devices
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.core.option import flag_of
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions


class Placement(NamedTuple):
  """The devices of a replica's towers and variables, and the layout of its activations."""

  num_gpus: int  # Each has a tower; without any there are CPU towers.
  variable_strategy: str  # 'CPU' or 'GPU'
  num_cpu_towers: int
  data_format: str  # 'channels_first' or 'channels_last'

  @property
  def tower_devices(self) -> list[str]:
    """Returns a device per tower: all GPUs, or else virtual CPUs."""
    kind, count = ('GPU', self.num_gpus) if self.num_gpus else ('CPU', self.num_cpu_towers)
    return [f'/device:{kind}:{index}' for index in range(count)]


def num_gpus(options: RunOptions, visible: int) -> int:
  """Returns how many GPUs to use; raises InputError for a combination that cannot run."""
  count = visible if options.num_gpus is None else options.num_gpus
  # TensorFlow's own words on it are hidden with the rest of its log.
  cannot_use = options.num_gpus != 0 and not visible and devices.has_unused_gpu()
  remedy = 'make install GPU=1, or a newer driver (docs/support.md)'
  if count > visible:
    instead = remedy if cannot_use else 'ask for fewer'
    raise InputError(f'--num-gpus {count} but TensorFlow sees {visible}; {instead}')
  if cannot_use:
    log.warning('this machine has a GPU that TensorFlow cannot use: %s', remedy)
  if count and (towers := options.num_cpu_towers) > 1:
    raise InputError(f'--num-cpu-towers {towers} and {count} GPUs; add --num-gpus 0')
  for flag, value in (('variable_strategy', 'GPU'), ('data_format', 'channels_first')):
    if getattr(options, flag) == value and not count:
      raise InputError(f'{flag_of(flag)} {value} needs a GPU and there is none; leave it out')
  return count


def placement(options: RunOptions, num_gpus: int) -> Placement:
  """Returns the devices of the towers and the variables."""
  data_format = options.data_format or layout(num_gpus)
  return Placement(num_gpus, options.variable_strategy, options.num_cpu_towers, data_format)


def layout(num_gpus: int) -> str:
  """Returns the data format that these devices are fast with."""
  return 'channels_first' if num_gpus else 'channels_last'


def with_dtype(hparams: HParams, num_gpus: int) -> HParams:
  """Resolves --dtype auto for these devices; logs if the given dtype is slow here."""
  fast, reason = devices.fast_dtype(num_gpus)
  if hparams.dtype == 'bfloat16' and fast != 'bfloat16':
    slow = '--dtype bfloat16 is slow here, on a CPU about a fifth as fast as float32'
    log.warning('%s: %s; --dtype auto would take float32', slow, reason)
  if hparams.dtype != 'auto':
    return hparams
  log.info('--dtype auto is %s: %s', fast, reason)
  return dataclasses.replace(hparams, dtype=fast)
