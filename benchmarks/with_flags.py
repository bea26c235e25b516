"""Training speed with some flags of the program and without them, in turn, in one run.

  python benchmarks/with_flags.py --data-dir DATA --name frozen_trunk \\
    --more "--freeze=resnet/(init|stage)" -- --num-layers 20

The flags after `--` are there in both. The speed is that of a job's second hundred steps.
"""

import argparse
import json
import shlex
import sys
import tempfile

import commands
import environment

from cifar10.core import cli
from cifar10.job import metrics_log

_STEPS = 200  # The metrics have the speed of each hundred.


def main() -> None:
  """Measures in turn; prints images/s and the ratio."""
  parser = _parser()
  flags = parser.parse_args()
  settings = {'without': flags.flags, 'with': [*flags.flags, *shlex.split(flags.more)]}
  rates: dict[str, list[float]] = {name: [] for name in settings}
  for pair in range(flags.pairs):
    for name, given in settings.items():
      rates[name].append(_images_per_second(flags.data_dir, given))
      print(f'pair {pair + 1}: {name} {rates[name][-1]:,.0f} images/s', file=sys.stderr)
  record = {
    **environment.head(flags.name, parser, flags),
    'images_per_second': commands.medians(rates),
    'ratios': {'with / without': commands.ratio(rates['with'], rates['without'])},
    'all_images_per_second': rates,
  }
  print(json.dumps(record))


def _images_per_second(data_dir: str, given: list[str]) -> float:
  with tempfile.TemporaryDirectory() as folder:
    job = ['--data-dir', data_dir, '--job-dir', folder, '--mode', 'train', '--train-steps', _STEPS]
    commands.last_line([*commands.PROGRAM, *job, *given])
    return next(
      event['images_per_second']
      for event in metrics_log.read(folder)
      if event['event'] == 'train' and event['step'] == _STEPS
    )


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True, help='record files')
  parser.add_argument('--name', default='with_flags', help='of the record')
  parser.add_argument('--more', required=True, help='the flags whose speed is in question')
  parser.add_argument('--pairs', type=commands.count, default=3)
  parser.add_argument('flags', nargs='*', help='flags of cifar10_main.py, after --')
  return parser


if __name__ == '__main__':
  cli.run_command(main)
