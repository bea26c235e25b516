"""What `python -m cifar10.checkpoint` does: lists, dumps and averages checkpoints."""

import argparse
import math
import sys
from typing import Any

import numpy as np

from cifar10.core import logs
from cifar10.core.errors import InputError
from cifar10.job import job_config, variable_files
from cifar10.training import batch_norm_recalibration, network_size

_WIDEST = 120  # Names in the table.


def list_variables(command: argparse.Namespace) -> dict[str, Any]:
  """Prints the table of variables on standard error; returns its sums by kind."""
  source = variable_files.open_source(command.path)
  kinds = source.kinds
  sums: dict[str, dict[str, int]] = {}
  width = min(max(map(len, source.all_shapes), default=0), _WIDEST)
  for name, shape in sorted(source.all_shapes.items()):
    dtype, count = source.dtypes[name], math.prod(shape)
    size = count * dtype.size
    row = f'{name:{width}}  {kinds[name]:9}  {dtype.name:8}  {size:>11,}  {shape}'
    print(logs.one_line(row), file=sys.stderr)
    total = sums.setdefault(kinds[name], {'variables': 0, 'numbers': 0, 'bytes': 0})
    for what, number in zip(total, (1, count, size)):
      total[what] += number
  for kind, total in sums.items():
    counts = ', '.join(f'{number:,} {what}' for what, number in total.items())
    print(f'{kind}: {counts}', file=sys.stderr)
  return {'checkpoint': source.path, 'global_step': source.global_step, **sums}


def dump(command: argparse.Namespace) -> dict[str, Any]:
  """Writes the variables that inference needs, or their averages."""
  variable_files.check_new(command.out)
  source = variable_files.open_source(command.path)
  values = {name: source.value(name) for name in source.shapes}
  if command.use_ema:
    if not source.averaged:
      raise InputError(
        f'--use-ema: {source.path} has no averages of the weights; its job was trained without '
        '--ema-decay; leave it out'
      )
    values.update({name: source.value(average) for name, average in source.averaged.items()})
  return _written(command.out, values, source.global_step)


def average(command: argparse.Namespace) -> dict[str, Any]:
  """Writes the mean of several checkpoints, batch norm's averages recomputed."""
  variable_files.check_new(command.out)
  config = job_config.read_config(command.job_dir)
  if config is None:
    raise InputError(f'--job-dir {command.job_dir} holds no job; name the job of the checkpoints')
  hparams = job_config.adopt_config({}, config, command.job_dir, training=False)
  if hparams.source:
    raise InputError(
      f'--job-dir {command.job_dir} was trained on --source {hparams.source}, whose images average '
      'does not read for batch norm; train with --ema-decay for an average'
    )
  data = job_config.described_data(command.job_dir, command.data_dir)
  sources = [variable_files.open_source(path) for path in command.paths]
  shapes, trained = network_size.variable_shapes(hparams, data)
  for source in sources:
    variable_files.check_network(source, shapes, hparams.family.NAME)
    if whole := [name for name in sorted(trained) if source.dtypes[name].is_integer]:
      raise InputError(f'{source.named} has {whole[0]} in whole numbers; name another')
  # In float64: a float32 sum of many nearly equal values would lose digits.
  means = {}
  for name in shapes:
    values = [source.value(name) for source in sources]
    means[name] = np.mean(values, 0, np.float64).astype(values[0].dtype)
  averaged = batch_norm_recalibration.recomputed(hparams, data, command.data_dir, means)
  return _written(command.out, averaged, max(source.global_step for source in sources))


def _written(path: str, values: dict[str, np.ndarray], global_step: int) -> dict[str, Any]:
  variable_files.write(path, values, global_step)
  numbers = sum(value.size for value in values.values())
  print(f'wrote {len(values)} variables, {numbers:,} numbers, to {path}', file=sys.stderr)
  return {'out': path, 'global_step': global_step, 'variables': len(values), 'numbers': numbers}
