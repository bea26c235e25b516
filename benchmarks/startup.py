"""Seconds from command to the first step and to exit, and of an evaluation on the way.

  python benchmarks/startup.py --data-dir DATA

Beside them stands the import of TensorFlow and its Estimator alone. An evaluation on the way is
half of what two more of them add to a run of three steps. `--before` names a checkout of an older
commit, which is measured in turn with this one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import commands
import environment
import tensorflow as tf

from cifar10.core import cli, errors

_IMPORT = 'import of TensorFlow and its Estimator'
_LOAD = (
  'from cifar10.core import start_tensorflow; start_tensorflow.start(); '
  'from estimator_again import estimator; estimator.Estimator'
)
_NETWORK = ['--num-layers', '20']


def main() -> None:
  """Measures in turn, `--pairs` times; prints medians."""
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True, help='record files of the whole CIFAR-10')
  parser.add_argument('--pairs', type=commands.count, default=3, help='of runs')
  parser.add_argument('--before', help='a checkout of an older commit; or no such rows')
  flags = parser.parse_args()
  programs = {'': commands.PROGRAM}
  if flags.before:
    programs[', before'] = [sys.executable, os.path.join(flags.before, 'cifar10_main.py')]
  seconds: dict[str, list[float]] = {}
  for pair in range(flags.pairs):
    measured = {_IMPORT: _run([sys.executable, '-c', _LOAD])}
    for suffix, program in programs.items():
      measured |= {f'{case}{suffix}': each for case, each in _program(program, flags).items()}
    print(f'pair {pair + 1}: {measured}', file=sys.stderr)
    for case, value in measured.items():
      seconds.setdefault(case, []).append(value)
  record = {
    **environment.head('startup', parser, flags),
    'seconds': {case: round(value, 2) for case, value in commands.medians(seconds).items()},
  }
  print(json.dumps(record))


def _program(program: list[str], flags: argparse.Namespace) -> dict[str, float]:
  """Seconds of one step, and of runs of three with three evaluations and with one."""
  with tempfile.TemporaryDirectory() as folder:
    jobs = [os.path.join(folder, name) for name in ('step', 'often', 'once')]
    train = [*program, '--data-dir', flags.data_dir, *_NETWORK, '--job-dir']
    since = time.time()
    one_step = _run([*train, jobs[0], '--mode', 'train', '--train-steps', '1'])
    first_step = _first_step(jobs[0]) - since
    three = ['--train-steps', '3', '--eval-every-steps']
    often = _run([*train, jobs[1], *three, '1'])
    once = _run([*train, jobs[2], *three, '3'])
  return {
    'command to the end of the first step': first_step,
    'command to exit, one step': one_step,
    'an evaluation on the way, on `validation`': (often - once) / 2,
  }


def _run(command: Sequence[str]) -> float:
  """Seconds to a command's exit."""
  since = time.perf_counter()
  code = subprocess.run(command, cwd=commands.ROOT, stdout=subprocess.DEVNULL, check=False)
  if code.returncode:
    raise errors.InputError(f'{" ".join(command)} ended with code {code.returncode}; see above')
  return time.perf_counter() - since


def _first_step(job_dir: str) -> float:
  """When the first step's summary was written, in seconds since 1970."""
  return min(
    event.wall_time
    for path in tf.io.gfile.glob(os.path.join(job_dir, 'events.out.tfevents.*'))
    for event in tf.compat.v1.train.summary_iterator(path)
    if any(value.tag == 'loss' for value in event.summary.value)
  )


if __name__ == '__main__':
  cli.run_command(main)
