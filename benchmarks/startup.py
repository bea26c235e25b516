"""Seconds from command to first step and to exit, of an evaluation; peak memory; a large graph.

  python benchmarks/startup.py --data-dir DATA

The limit of the first two is the import of TensorFlow and its Estimator alone. An evaluation on
the way is what one more of them adds to a run. Memory is a process's largest resident set, as Linux
keeps it: of training, in a run of 200 steps on all training images. The large graph is ResNet-110's
with 8 towers: how long it takes to build, and what it adds. `--before` takes a checkout of an older
commit, whose start-up and evaluation are measured, too.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import commands
import environment
import tensorflow as tf

from cifar10.core import cli, errors
from cifar10.options import hparams
from cifar10.training import model_fn
from estimator_again import estimator as tf_estimator


def main() -> None:
  """Measures everything in turn, `--pairs` times; prints one JSON object."""
  parser = _parser()
  flags = parser.parse_args()
  if not flags.large_graph and not flags.data_dir:
    parser.error('--data-dir is missing: name the folder of the record files')
  tf.get_logger().setLevel('ERROR')  # No deprecation warnings.
  if flags.large_graph:
    print(json.dumps(_large_graph()))
    return
  seconds: dict[str, list[float]] = {}
  mebibytes: dict[str, list[float]] = {}
  programs = {'': commands.PROGRAM}
  if flags.before:
    programs[', before'] = [sys.executable, os.path.join(flags.before, 'cifar10_main.py')]
  measures: dict[str, Callable] = {
    'import': _import,
    'one-step': lambda: _of_each(_one_step, programs, flags.data_dir),
    'evaluation': lambda: _of_each(_evaluation, programs, flags.data_dir),
    'whole-set': lambda: _whole_set(flags.data_dir, flags.steps),
    'large-graph': _large_graph_in_a_process,
  }
  for pair in range(flags.pairs):
    for name in flags.only:
      new_seconds, new_mebibytes = measures[name]()
      print(f'pair {pair + 1}: {name}: {new_seconds} s, {new_mebibytes} MiB', file=sys.stderr)
      for values, new in ((seconds, new_seconds), (mebibytes, new_mebibytes)):
        for case, value in new.items():
          values.setdefault(case, []).append(value)
  medians = {case: round(statistics.median(values), 2) for case, values in seconds.items()}
  record = {
    **environment.head('startup', parser, flags),
    'seconds': medians,
    'mebibytes': {case: round(statistics.median(values)) for case, values in mebibytes.items()},
    'ratios': {
      f'{case} / {_IMPORT}': round(medians[case] / medians[_IMPORT], 2)
      for case in (_FIRST_STEP, _ONE_STEP)
      if {case, _IMPORT} <= set(medians)
    },
  }
  print(json.dumps(record))


_PARTS = ('import', 'one-step', 'evaluation', 'whole-set', 'large-graph')
_IMPORT = 'import of TensorFlow and its Estimator'
_FIRST_STEP = 'command to the end of the first step'
_ONE_STEP = 'command to exit, one step'

Measured = tuple[dict[str, float], dict[str, float]]


def _of_each(
  measure: Callable[[list[str], str], dict[str, float]],
  programs: dict[str, list[str]],
  data_dir: str,
) -> Measured:
  """The seconds of each of the programs, by turns."""
  return {
    f'{case}{suffix}': value
    for suffix, program in programs.items()
    for case, value in measure(program, data_dir).items()
  }, {}


def _import() -> Measured:
  load = (
    'from cifar10.core import start_tensorflow; start_tensorflow.start(); '
    'from estimator_again import estimator as tf_estimator'
  )
  spent, memory, _ = _run([sys.executable, '-c', load])
  return {_IMPORT: spent}, {f'peak, {_IMPORT}': memory}


def _one_step(program: list[str], data_dir: str) -> dict[str, float]:
  with tempfile.TemporaryDirectory() as folder:
    since = time.time()
    spent, _, _ = _run([*program, *_training(data_dir, folder, 1)])
    return {_FIRST_STEP: _first_step(folder) - since, _ONE_STEP: spent}


def _evaluation(program: list[str], data_dir: str) -> dict[str, float]:
  """Half of what two more evaluations add to a run of three steps."""
  spent = {}
  for every in (1, 3):
    with tempfile.TemporaryDirectory() as folder:
      often = ['--mode', 'train_and_evaluate', '--eval-every-steps', str(every)]
      spent[every], _, _ = _run([*program, *_training(data_dir, folder, 3), *often])
  return {'an evaluation on the way, on `validation`': (spent[1] - spent[3]) / 2}


def _whole_set(data_dir: str, steps: int) -> Measured:
  with tempfile.TemporaryDirectory() as folder:
    whole = [*_training(data_dir, folder, steps), '--train-on', 'train+validation']
    _, memory, _ = _run([*commands.PROGRAM, *whole])
  return {}, {'peak, training ResNet-20 on train and validation': memory}


def _large_graph_in_a_process() -> Measured:
  _, _, output = _run([sys.executable, os.path.abspath(__file__), '--large-graph'])
  line = json.loads(output.splitlines()[-1])
  name = 'ResNet-110, 8 towers: '
  return {name + 'building the graph': line['seconds']}, {
    f'peak, {name}before building': line['before'],
    f'peak, {name}after building': line['after'],
  }


def _training(data_dir: str, folder: str, steps: int) -> list[str]:
  train = ['--mode', 'train', '--data-dir', data_dir, '--job-dir', folder]
  return [*train, '--num-layers', '20', '--train-steps', str(steps)]


def _run(command: Sequence[str]) -> tuple[float, float, str]:
  """Seconds to exit, the process's peak in MiB, and what it printed."""
  with tempfile.TemporaryFile() as output:
    since = time.perf_counter()
    process = subprocess.Popen(command, cwd=commands.ROOT, stdout=output)
    peak = 0.0
    while process.poll() is None:  # wait4's peak can be the parent's, from before the exec.
      peak = max(peak, _peak(process.pid))
      time.sleep(0.02)
    spent = time.perf_counter() - since
    if process.returncode:
      raise errors.InputError(
        f'{" ".join(command)} ended with exit code {process.returncode}; above it says why'
      )
    output.seek(0)
    return spent, peak, output.read().decode()


def _peak(process: Any) -> float:
  """A process's largest resident set so far, in MiB; 0 for one that has just ended."""
  try:
    with open(f'/proc/{process}/status', encoding='utf-8') as file:
      found = re.search(r'VmHWM:\s*(\d+) kB', file.read())
  except FileNotFoundError as error:
    if os.path.isdir('/proc'):
      return 0.0
    raise errors.InputError('there is no /proc to read memory from; measure on Linux') from error
  return int(found.group(1)) / 1024 if found else 0.0


def _first_step(folder: str) -> float:
  """When the first step's summary was written, in seconds since 1970."""
  times = []
  for path in tf.io.gfile.glob(os.path.join(folder, 'events.out.tfevents.*')):
    for event in tf.compat.v1.train.summary_iterator(path):
      if any(value.tag == 'loss' for value in event.summary.value):
        times.append(event.wall_time)
  return min(times)


def _large_graph() -> dict[str, float]:
  """Builds it in this process."""
  chosen = hparams.from_values(hparams.recipe_values('classic', {'num_layers': 110}))
  num_towers = 8
  before = _peak('self')
  since = time.perf_counter()
  with tf.Graph().as_default():
    tf.compat.v1.train.get_or_create_global_step()
    shard = chosen.train_batch_size // num_towers
    images = [tf.zeros([shard, 32, 32, 3], tf.uint8) for _ in range(num_towers)]
    labels = [tf.zeros([shard], tf.int32) for _ in range(num_towers)]
    build = model_fn.get_model_fn(0, 'CPU', 1, num_cpu_towers=num_towers)
    build(images, labels, tf_estimator.ModeKeys.TRAIN, chosen)
  spent = time.perf_counter() - since
  return {'seconds': spent, 'before': before, 'after': _peak('self')}


def _parts(text: str) -> list[str]:
  if not set(text.split(',')) <= set(_PARTS):
    raise argparse.ArgumentTypeError(f'{text!r} is not of {", ".join(_PARTS)}')
  return text.split(',')


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', help='record files of the whole CIFAR-10')
  parser.add_argument(
    '--only', type=_parts, default=list(_PARTS), help='what to measure, with commas'
  )
  parser.add_argument('--pairs', type=commands.count, default=3, help='of runs')
  parser.add_argument(
    '--steps', type=commands.count, default=200, help='of the run whose memory is measured'
  )
  parser.add_argument('--before', help='a checkout of an older commit; or no such rows')
  parser.add_argument('--large-graph', action='store_true', help='build it, in this process')
  return parser


if __name__ == '__main__':
  cli.run_command(main)
