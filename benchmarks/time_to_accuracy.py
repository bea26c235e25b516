"""Seconds from command to test accuracy: a fast recipe beside its PyTorch twins.

  python benchmarks/time_to_accuracy.py --data-dir DATA --torch-python .venv-bench/bin/python

Of the program the whole command is timed, to its exit: imports, graph, training and the test with
further views of each image that it is not certain of; once for each seed. The twins see six views
of every image. They run in the environment of `make bench-install`, eager (airbench94 compiled,
too), in the program's precision, from arrays that are in memory already. By default only some of
their steps are measured and the others taken to last as long; their accuracy is then not known.

- airbench94: the published recipe (SGD, lookahead, batch 1024, 9.9 epochs);
- fulcrum: the sizes and epochs of fulcrumresearch's cifar-10-speedrun, hiverge's batch, no jitter;
- same recipe: Muon, with the program's batch, steps and gradients.

A ratio is of seconds: below 1 the program is faster.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')  # The runs need the GPU's memory.

import commands
import environment
import peers
import tensorflow as tf

from cifar10.core import cli, devices, errors
from cifar10.job import run
from cifar10.options import hparams, run_options

# Compiled only where all images have one size: else it compiles anew in the few steps measured.
_TWINS = ('airbench94', 'airbench94, compiled', 'fulcrum', 'same recipe')


def main() -> None:
  """Runs every seed and, between them, the twins; prints one JSON object."""
  parser = _parser()
  flags = parser.parse_args()
  if flags.torch_python and flags.recipe != 'fast94':
    raise errors.InputError(
      f"--recipe {flags.recipe}, but PyTorch's twins are fast94's; leave --torch-python out"
    )
  asked = run_options.RunOptions('.', num_gpus=flags.num_gpus)
  run.gpus_to_use(asked, len(tf.config.list_physical_devices('GPU')))  # Refuses what is not here.
  dtype, _ = devices.fast_dtype(flags.num_gpus)
  twins = _twins(flags, dtype)
  ours: list[dict] = []
  theirs: dict[str, list[dict]] = {
    name: [] for name in twins if flags.torch_python and flags.twin in (None, name)
  }
  with tempfile.TemporaryDirectory() as folder:
    if theirs:
      peers.export_arrays(flags.data_dir, folder)
    for seed in flags.seeds:
      # The twins first, so that a Python without PyTorch fails before an hour of training.
      for name, runs in theirs.items():
        settings = ['--steps', flags.twin_steps, *twins[name]]
        runs.append(peers.run_torch(flags.torch_python, 'fastnet', folder, settings))
        print(f'{name}: {runs[-1]}', file=sys.stderr)
      ours.append(_train(flags, seed, os.path.join(folder, str(seed))))
      print(f'seed {seed}: {ours[-1]}', file=sys.stderr)
  seconds = statistics.median(run['seconds'] for run in ours)
  record = {
    **environment.head('time_to_accuracy', parser, flags),
    'recipe': flags.recipe,
    'dtype': dtype,
    'accuracy_mean': round(statistics.mean(run['accuracy'] for run in ours), 5),
    'accuracy_without_tta_mean': round(
      statistics.mean(run['accuracy_without_tta'] for run in ours), 5
    ),
    'seconds_median': round(seconds, 1),
    'runs': ours,
    'twins': theirs,
    'ratios': {
      name: round(seconds / statistics.median(run['seconds'] for run in runs), 3)
      for name, runs in theirs.items()
    },
  }
  print(json.dumps(record))


def _twins(flags: argparse.Namespace, dtype: str) -> dict[str, list]:
  """The flags of each PyTorch twin, by its name."""
  recipe = hparams.from_values(hparams.recipe_values(flags.recipe, {}))
  epochs = recipe.train_steps * recipe.train_batch_size / 50_000
  bias_steps = hparams.all_values(recipe)['first_bias_steps'] or recipe.train_steps
  recipes = {
    'airbench94': ['--optimizer', 'sgd', '--batch-size', 1024, '--epochs', 9.9],
    'fulcrum': [
      *('--optimizer', 'muon', '--batch-size', 1536, '--epochs', 8.875, '--bias-epochs', 0.2),
      *('--muon-learning-rate', 0.2255, '--resolutions', 24, 3 / 8.875, 28, 6 / 8.875),
    ],
    'same recipe': [
      *('--optimizer', 'muon', '--batch-size', recipe.train_batch_size, '--epochs', epochs),
      *('--muon-learning-rate', recipe.muon_learning_rate),
      *('--bias-epochs', epochs * bias_steps / recipe.train_steps),
      *('--resolutions', *recipe.resolutions),
    ],
  }
  where = ['--dtype', dtype, '--device', 'cuda' if flags.num_gpus else 'cpu']
  return {
    name + form: [*settings, *where, *more]
    for name, settings in recipes.items()
    for form, more in (('', []), (', compiled', ['--compile']))
    if name + form in _TWINS
  }


def _train(flags: argparse.Namespace, seed: int, job_dir: str) -> dict:
  """One run of the program: its accuracies, and the seconds to its exit."""
  command = [*commands.PROGRAM, '--recipe', flags.recipe, '--num-gpus', str(flags.num_gpus)]
  command += ['--data-dir', flags.data_dir, '--job-dir', job_dir, '--seed', str(seed)]
  since = time.perf_counter()
  line = commands.last_line(command)
  seconds = time.perf_counter() - since
  named = {name: line[name] for name in ('accuracy', 'accuracy_without_tta', 'global_step')}
  return {'seed': seed, 'seconds': round(seconds, 1), **named}


def _seeds(text: str) -> list[int]:
  if not all(part.isdecimal() for part in text.split(',')):
    raise argparse.ArgumentTypeError(f'{text!r} is not whole numbers with commas between')
  return [int(part) for part in text.split(',')]


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True, help='record files of the whole CIFAR-10')
  parser.add_argument('--recipe', choices=('fast94', 'fast95', 'fast96'), default='fast94')
  parser.add_argument('--num-gpus', type=int, choices=(0, 1), default=0)
  parser.add_argument('--seeds', type=_seeds, default=[0, 1, 2])
  parser.add_argument('--torch-python', help='of the environment that has PyTorch; or no twins')
  parser.add_argument('--twin', choices=_TWINS, help='the only one to measure; default: all')
  parser.add_argument('--twin-steps', type=int, default=30, help='to measure; 0: all')
  return parser


if __name__ == '__main__':
  cli.run_command(main)
