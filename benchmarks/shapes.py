"""Images/s of the program beside Keras and PyTorch by network and batch.

  python benchmarks/shapes.py --data-dir DATA --torch-python .venv-bench/bin/python

Each network and batch is one run of benchmarks/training.py, in which they take turns; without
compiled PyTorch, for the time that compiling takes.
"""

import argparse
import json
import os
import sys

import commands
import environment
import networks

from cifar10.core import cli

_TRAINING = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'training.py')
_SHAPES = [
  *(f'resnet-20:{batch}' for batch in (32, 128, 512, 2048)),
  'resnet-56:128',
  'resnet-110:128',
  'wrn-16-4:128',
]
_WARM_UP_IMAGES, _MOST_WARM_UP, _LEAST_WARM_UP = 2560, 15, 3


def main() -> None:
  """Measures each shape; prints images/s and ratios of each."""
  parser = _parser()
  flags = parser.parse_args()
  records: dict[str, dict] = {}
  for shape in flags.shapes:
    network, _, batch_size = shape.partition(':')
    named = f'{network}, batch {batch_size}'
    print(named, file=sys.stderr)
    records[named] = _measure(flags, network, int(batch_size))
  first = next(iter(records.values()))
  record = {
    **environment.head('shapes', parser, flags),
    **({'torch': first['torch']} if 'torch' in first else {}),
    'images_per_second': _named(records, 'images_per_second'),
    'ratios': _named(records, 'ratios'),
  }
  print(json.dumps(record))


def _measure(flags: argparse.Namespace, network: str, batch_size: int) -> dict:
  """What training.py prints of it and its twins."""
  warm_up = min(max(_WARM_UP_IMAGES // batch_size, _LEAST_WARM_UP), _MOST_WARM_UP)
  command = [sys.executable, _TRAINING, '--data-dir', flags.data_dir, '--network', network]
  command += ['--batch-size', batch_size, '--dtypes', ','.join(flags.dtypes)]
  command += ['--warm-up', warm_up, '--turns', flags.turns, '--seconds', flags.seconds]
  others = ['keras']
  if flags.torch_python:
    command += ['--torch-python', flags.torch_python]
    others += ['torch']
  return commands.last_line([*command, '--beside', ','.join(others)])


def _named(records: dict[str, dict], key: str) -> dict[str, float]:
  """{'resnet-20, batch 128: program float32': its value}"""
  return {
    f'{shape}: {name}': value
    for shape, record in records.items()
    for name, value in record[key].items()
  }


def _shapes(text: str) -> list[str]:
  """'resnet-20:32,wrn-16-4:128'"""
  for shape in text.split(','):
    network, colon, batch_size = shape.partition(':')
    if not colon:
      raise argparse.ArgumentTypeError(f'{shape!r} is not like resnet-20:128')
    networks.name(network)
    commands.count(batch_size)
  return text.split(',')


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True, help='record files')
  parser.add_argument(
    '--shapes', type=_shapes, default=_SHAPES, help='networks and batch sizes, with commas'
  )
  parser.add_argument('--dtypes', type=commands.dtypes, default=['float32', 'bfloat16'])
  parser.add_argument('--turns', type=commands.count, default=5, help='of each process')
  parser.add_argument('--seconds', type=commands.count, default=4, help='of a turn')
  parser.add_argument('--torch-python', help='of the environment that has PyTorch; or no twins')
  return parser


if __name__ == '__main__':
  cli.run_command(main)
