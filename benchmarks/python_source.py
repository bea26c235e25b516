"""Images/s from a Python function to shuffled batches, beside tensorpack's DataFlow, in turn.

  python benchmarks/python_source.py --data-dir DATA --torch-python .venv-bench/bin/python

Two functions (source_examples.py) yield one image at a time: one has them ready, the other makes
each anew. Both sides draw batches from a buffer of 10,000 and distort nothing. They run the
function in the measuring process, or in two more: here by a source that starts them, as
examples/parallel_source.py does.
"""

import argparse
import json
import os
import sys
from typing import Any

import commands
import environment
import tensorflow as tf

from cifar10.core import cli
from cifar10.data import input_pipeline
from cifar10.job import run as job_run
from cifar10.options import hparams
from cifar10.options.run_options import RunOptions
from cifar10.training.examples import training_examples

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_SOURCES = {'ready': 'images that are ready', 'noisy': 'images made anew'}
_COUNT = 40_000  # An epoch of each.
_OURS, _PEER = 'this program', 'tensorpack DataFlow'


def main() -> None:
  """Measures both sides in turn, `--pairs` times; prints one JSON object."""
  parser = _parser()
  flags = parser.parse_args()
  rates: dict[str, list[float]] = {}
  versions: dict[str, str] = {}  # The peer's.
  for pair in range(flags.pairs):
    for source, what in _SOURCES.items():
      for processes in (0, 2):
        case = f'{what}, in {f"{processes} more processes" if processes else "its own process"}'
        found = _in_program(flags, f'source_examples:{source}{"_in_two" if processes else ""}')
        rates.setdefault(f'{_OURS}, {case}', []).append(found)
        if flags.torch_python:
          result = _in_tensorpack(flags, f'source_examples:{source}', processes)
          versions = result['versions']
          rates.setdefault(f'{_PEER}, {case}', []).append(result['images_per_second'])
    shown = '  '.join(f'{name} {values[-1]:,.0f}' for name, values in rates.items())
    print(f'pair {pair + 1} of {flags.pairs}: {shown} images/s', file=sys.stderr)
  medians = commands.medians(rates)
  record = {
    **environment.head('python source', parser, flags),
    **({'peers': versions} if versions else {}),
    'images_per_second': medians,
    'ratios': {
      f'{_OURS} / {_PEER}, {case}': round(medians[f'{_OURS}, {case}'] / value, 2)
      for side, _, case in (name.partition(', ') for name in medians)
      if side == _PEER
      for value in [medians[f'{_PEER}, {case}']]
    },
  }
  print(json.dumps(record))


def _in_program(flags: argparse.Namespace, source: str) -> float:
  chosen = hparams.from_values(
    hparams.recipe_values(
      'classic',
      {
        'source': source,
        'examples_per_epoch': _COUNT,
        'use_distortion_for_training': False,
      },
    )
  )
  options = RunOptions('unused', data_dir=flags.data_dir, num_gpus=0)
  made = training_examples(job_run.begin(chosen, options))
  made.num_examples_per_epoch()  # Looks at the first example, as the program does.
  with made.reading(), tf.Graph().as_default(), tf.compat.v1.Session() as session:
    batches = input_pipeline.cut(made.make_batch(flags.batch_size), 1)
    batch = tf.compat.v1.data.make_initializable_iterator(batches)
    session.run(batch.initializer)
    element = batch.get_next()
    read = iter(lambda: session.run(element), None)  # Without end.
    return commands.images_per_second(read, flags.batches, flags.batch_size)


def _in_tensorpack(flags: argparse.Namespace, source: str, processes: int) -> dict[str, Any]:
  script = os.path.join(_FOLDER, 'loader_peer.py')
  words = [flags.torch_python, script, '--loader', 'tensorpack', '--source', source]
  words += ['--workers', processes, '--batch-size', flags.batch_size, '--batches', flags.batches]
  return commands.last_line(words)


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True, help='record files')
  parser.add_argument('--batch-size', type=commands.count, default=128)
  parser.add_argument('--pairs', type=commands.count, default=3)
  parser.add_argument('--torch-python', help='of the environment that has tensorpack; or none')
  parser.add_argument('--batches', type=commands.count, default=800, help='in each measurement')
  return parser


if __name__ == '__main__':
  cli.run_command(main)
