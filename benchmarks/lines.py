"""Training speed of both lines of TensorFlow, in turn, in one run.

  python benchmarks/lines.py --data-dir DATA .venv-3.11/bin/python .venv-3.13/bin/python

Each measurement is benchmarks/training.py's of the whole program, under one of the two Pythons.
"""

import argparse
import json
import os
import statistics
import sys

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# The program lies beside this folder, and is not installed.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import commands
import environment

from cifar10.platform import errors

_TRAINING = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'training.py')
_ASK = (
  'import json, platform; from importlib.metadata import version; '
  'print(json.dumps(f"TensorFlow {version(\'tensorflow\')} Python {platform.python_version()}"))'
)


def main() -> None:
  """Measures in turn; prints images/s and the second Python's over the first's."""
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True)
  parser.add_argument('--pairs', type=commands.count, default=3)
  parser.add_argument('--steps', type=commands.count, default=120)
  parser.add_argument('pythons', nargs=2, metavar='PYTHON')
  flags = parser.parse_args()
  names = [commands.last_line([python, '-c', _ASK]) for python in flags.pythons]
  rates: dict[str, list[float]] = {}
  for pair in range(flags.pairs):
    for dtype in ('float32', 'bfloat16'):
      for python, name in zip(flags.pythons, names):
        rate = _images_per_second(flags, python, dtype)
        rates.setdefault(f'{name} {dtype}', []).append(rate)
        print(f'pair {pair + 1}: {name}, {dtype} {rate:,.0f} images/s', file=sys.stderr)
  first, second = names
  record = {
    'name': 'lines',
    'command': f'python benchmarks/lines.py --data-dir data --pairs {flags.pairs} '
    f'--steps {flags.steps} {" ".join(_place(python) for python in flags.pythons)}',
    'pairs': flags.pairs,
    **environment.describe(),
    'images_per_second': {name: statistics.median(values) for name, values in rates.items()},
    'ratios': {
      f'{second} / {first}, {dtype}': round(
        statistics.median(
          new / old for new, old in zip(rates[f'{second} {dtype}'], rates[f'{first} {dtype}'])
        ),
        3,
      )
      for dtype in ('float32', 'bfloat16')
    },
    'all_images_per_second': rates,
  }
  print(json.dumps(record))


def _place(python: str) -> str:
  """'.venv-3.11/bin/python' of wherever that environment lies."""
  return os.path.join(*os.path.abspath(python).split(os.sep)[-3:])


def _images_per_second(flags: argparse.Namespace, python: str, dtype: str) -> float:
  """ResNet-20, batch 128, the whole program."""
  command = [python, _TRAINING, '--variant', 'program', '--dtypes', dtype]
  command += ['--data-dir', flags.data_dir, '--steps', str(flags.steps)]
  return commands.last_line(command)


if __name__ == '__main__':
  errors.run_command(main)
