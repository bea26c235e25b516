"""Images/s of a chief, a worker and a parameter server beside one process, on the same cores.

  python benchmarks/cluster.py --data-dir DATA

Each measurement is the median of what the chief's log says every ten seconds, after the first line.
A second part shows what the protocol costs: milliseconds of a synchronous step with batch 1, as
workers are added; all share the same cores, so the computation grows, too. `--beside` names another
checkout of the program, whose steps are measured in turn with these.
"""

import argparse
import itertools
import json
import os
import re
import statistics
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

import commands
import environment

from cifar10.core import cli, errors
from cifar10.local_cluster import LocalCluster

_VARIANTS: dict[str, tuple[int, int, list[str]]] = {  # Workers, parameter servers, flags.
  'one process': (0, 0, []),
  'parameter server, asynchronous': (1, 1, []),
  'parameter server, synchronous': (1, 1, ['--sync']),
  'all-reduce': (1, 0, ['--distribute', 'multi_worker_mirrored']),
}
_PROTOCOL_LAYERS = (8, 20)  # ResNets of the second part,
_MOST_WORKERS = 2  # and the workers beside the chief.


def main() -> None:
  """Measures in turn; prints images/s, ratios and milliseconds a step."""
  parser = _parser()
  flags = parser.parse_args()
  rates: dict[str, list[float]] = {name: [] for name in _VARIANTS}
  network = ['--num-layers', flags.num_layers, '--train-batch-size', flags.batch_size]
  checkouts = [commands.ROOT, *([flags.beside] if flags.beside else [])]
  milliseconds: dict[str, dict[str, list[float]]] = {checkout: {} for checkout in checkouts}
  for pair in range(flags.pairs):
    for name, variant in _VARIANTS.items():
      rates[name].append(_images_per_second(flags, [*network, '--dtype', flags.dtype], variant))
      print(f'pair {pair + 1}: {name} {rates[name][-1]:,.0f} images/s', file=sys.stderr)
    for layers, workers in itertools.product(_PROTOCOL_LAYERS, range(1, _MOST_WORKERS + 1)):
      small = ['--num-layers', layers, '--train-batch-size', 1]
      variant = (workers, 1, ['--sync'])
      name = f'ResNet-{layers}, chief and {workers} worker(s)'
      for checkout in checkouts:
        rate = _images_per_second(flags, small, variant, checkout)
        milliseconds[checkout].setdefault(name, []).append(round(1000 * (1 + workers) / rate, 2))
        print(f'{checkout}: {name} {milliseconds[checkout][name][-1]} ms', file=sys.stderr)
  steps = [commands.medians(milliseconds[checkout]) for checkout in checkouts]
  alone = rates['one process']
  record = {
    **environment.head('cluster', parser, flags),
    'images_per_second': commands.medians(rates),
    'ratios': {
      f'{name} / one process': commands.ratio(values, alone)
      for name, values in rates.items()
      if values is not alone
    },
    'all_images_per_second': rates,
    'milliseconds_per_step': steps[0],
    'all_milliseconds_per_step': milliseconds[commands.ROOT],
  }
  if flags.beside:
    record['beside'] = {
      'commit': environment.commit(flags.beside),
      'milliseconds_per_step': steps[1],
      'all_milliseconds_per_step': milliseconds[flags.beside],
    }
  print(json.dumps(record))


class _Cluster(LocalCluster):
  """A cluster of a checkout's program."""

  def __init__(self, checkout: str, *arguments: Any, **settings: Any):
    super().__init__(*arguments, **settings)
    self._checkout = checkout

  def command(self, name: str) -> list[str]:
    python, _, *flags = super().command(name)
    return [python, os.path.join(self._checkout, 'cifar10_main.py'), *flags]


def _images_per_second(
  flags: argparse.Namespace,
  network: Sequence[Any],
  variant: tuple[int, int, list[str]],
  checkout: str = commands.ROOT,
) -> float:
  """The median of the rates in the chief's log, without the first, which has the warm-up."""
  workers, ps, more = variant
  rates: list[float] = []
  enough = threading.Event()

  def read(name: str, line: str) -> None:
    found = re.search(r'([\d.]+) images/s', line)
    if name == 'chief 0' and found:
      rates.append(float(found[1]))
    if 'error: ' in line or len(rates) > flags.lines:
      enough.set()

  with tempfile.TemporaryDirectory() as folder:
    common = ['--data-dir', flags.data_dir, '--job-dir', folder, '--num-gpus', 0]
    endless = ['--train-steps', 10**7, '--eval-every-steps', 10**7]
    command = [*common, *endless, *network, *more]
    with _Cluster(checkout, command, workers, ps, show=read) as cluster:
      cluster.start()
      enough.wait(600)
  if len(rates) <= flags.lines:
    raise errors.InputError(f'the cluster did not train; try its flags: {command}')
  # In asynchronous training a step is one worker's batch, so that the rate counts all of them.
  return statistics.median(rates[1:])


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True)
  parser.add_argument('--num-layers', type=commands.count, default=20)
  parser.add_argument('--batch-size', type=commands.count, default=128, help="each worker's")
  parser.add_argument('--dtype', choices=('float32', 'bfloat16'), default='float32')
  parser.add_argument('--beside', help='another checkout of the program, for the second part')
  parser.add_argument('--pairs', type=commands.count, default=3)
  parser.add_argument(
    '--lines',
    type=commands.count,
    default=2,
    help='in the log, one every 10 s, for each measurement',
  )
  return parser


if __name__ == '__main__':
  cli.run_command(main)
