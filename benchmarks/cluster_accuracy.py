"""Test accuracy of a synchronous cluster beside one process: the same examples, several seeds.

  python benchmarks/cluster_accuracy.py --data-dir DATA

A chief and a worker with half the batch each make the updates of one process with the whole batch,
but for batch normalisation, which sees half as many images at a time, and the order of examples.
"""

import argparse
import json
import statistics
import sys
import tempfile
from typing import Any

import commands
import environment

from cifar10.core import cli, errors
from cifar10.local_cluster import LocalCluster, show


def main() -> None:
  """Trains with every seed both ways; prints accuracies, means and spreads."""
  parser = _parser()
  flags = parser.parse_args()
  batch = flags.batch_size
  accuracies: dict[str, list[float]] = {'one process': [], 'chief and worker': []}
  for seed in map(int, flags.seeds.split(',')):
    accuracies['one process'].append(_accuracy(flags, seed, batch, 0, 0))
    accuracies['chief and worker'].append(_accuracy(flags, seed, batch // 2, 1, 1))
    print(f'seed {seed}: {accuracies}', file=sys.stderr)
  record = {
    'name': 'cluster_accuracy',
    'command': commands.command_line(parser, flags),
    'flags': ' '.join(map(str, _training(flags, batch))),
    'examples': flags.steps * batch,
    **environment.describe(),
    'accuracies': accuracies,
    'mean': {name: round(statistics.mean(values), 4) for name, values in accuracies.items()},
    'spread': {name: round(max(v) - min(v), 4) for name, v in accuracies.items()},
  }
  print(json.dumps(record))


def _accuracy(flags: argparse.Namespace, seed: int, batch: int, workers: int, ps: int) -> float:
  """On the test images, at the end; a cluster is synchronous."""
  with tempfile.TemporaryDirectory() as folder:
    command = ['--data-dir', flags.data_dir, '--job-dir', folder, '--num-gpus', 0, '--seed', seed]
    command += [*_training(flags, batch), *(['--sync'] if workers else [])]
    with LocalCluster(command, workers, ps, show=show) as cluster:
      cluster.start()
      codes = cluster.wait(3600)
    if set(codes.values()) != {0}:
      raise errors.InputError(f'training ended with {codes}; try its flags: {command}')
    return json.loads(cluster.results['chief 0'])['accuracy']


def _training(flags: argparse.Namespace, batch: int) -> list[Any]:
  """cifar10_main.py's flags: the learning rate falls after two thirds and five sixths."""
  steps = flags.steps
  network = ['--num-layers', 20, '--dtype', 'bfloat16', '--train-on', 'train+validation']
  schedule = ['--lr-values', '1,0.1,0.01', '--lr-boundaries-steps']
  schedule.append(f'{2 * steps // 3},{5 * steps // 6}')
  # At the default decay the moving averages would still hold much of the start.
  averages = ['--batch-norm-decay', 0.99, '--eval-every-steps', 10**6]
  return [*network, '--train-batch-size', batch, '--train-steps', steps, *schedule, *averages]


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True)
  parser.add_argument('--steps', type=commands.count, default=1200)
  parser.add_argument('--batch-size', type=commands.count, default=128, help='of an update')
  parser.add_argument('--seeds', default='0,1,2')
  return parser


if __name__ == '__main__':
  cli.run_command(main)
