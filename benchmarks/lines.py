"""Training speed of both lines of TensorFlow, in turns of seconds.

  python benchmarks/lines.py --data-dir DATA .venv-3.11/bin/python .venv-3.13/bin/python

Both train ResNet-20 with the whole program as benchmarks/training.py does, each under its Python.
"""

import json
import os
import tempfile

import commands
import environment
import turns

from cifar10.core import cli, errors

_TRAINING = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'training.py')
_BATCH_SIZE, _WARM_UP = 128, 15  # Steps.
_ASK = (
  'import json, platform; from importlib.metadata import version; '
  'print(json.dumps(f"TensorFlow {version(\'tensorflow\')} Python {platform.python_version()}"))'
)


def main() -> None:
  """Measures in turn; prints images/s and the second Python's over the first's."""
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True)
  parser.add_argument('--turns', type=commands.count, default=10, help='of each process')
  parser.add_argument('--seconds', type=commands.count, default=4, help='of a turn')
  parser.add_argument('pythons', nargs=2, metavar='PYTHON')
  flags = parser.parse_args()
  names = [commands.last_line([python, '-c', _ASK]) for python in flags.pythons]
  if names[0] == names[1]:
    raise errors.InputError(f'both Pythons have {names[0]}; name two that differ')
  rates: dict[str, list[float]] = {}
  with tempfile.TemporaryDirectory() as folder:
    for dtype in ('float32', 'bfloat16'):
      taking_turns = {
        f'{name} {dtype}': _command(
          python, flags.data_dir, dtype, os.path.join(folder, f'{number} {dtype}')
        )
        for number, (python, name) in enumerate(zip(flags.pythons, names))
      }
      steps = turns.steps_per_second(taking_turns, flags.turns, flags.seconds, _WARM_UP)
      for name, values in steps.items():
        rates[name] = [_BATCH_SIZE * rate for rate in values]
  first, second = names
  record = {
    **environment.head('lines', parser, flags),
    'command': f'python benchmarks/lines.py --data-dir data --turns {flags.turns} '
    f'--seconds {flags.seconds} {" ".join(_place(python) for python in flags.pythons)}',
    'images_per_second': commands.medians(rates),
    'ratios': {
      f'{second} / {first}, {dtype}': commands.ratio(
        rates[f'{second} {dtype}'], rates[f'{first} {dtype}']
      )
      for dtype in ('float32', 'bfloat16')
    },
    'all_images_per_second': rates,
  }
  print(json.dumps(record))


def _place(python: str) -> str:
  """'.venv-3.11/bin/python' of wherever that environment lies."""
  return os.path.join(*os.path.abspath(python).split(os.sep)[-3:])


def _command(python: str, data_dir: str, dtype: str, job_dir: str) -> list[str]:
  """ResNet-20, the whole program."""
  command = [python, _TRAINING, '--variant', 'program', '--dtypes', dtype, '--job-dir', job_dir]
  return [*command, '--data-dir', data_dir, '--batch-size', str(_BATCH_SIZE)]


if __name__ == '__main__':
  cli.run_command(main)
