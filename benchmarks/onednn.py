"""What TensorFlow's oneDNN kernels gain or cost, switched on and off in turn, in one run.

  python benchmarks/onednn.py --data-dir DATA

TensorFlow switches them on by itself only on processors with AVX512_VNNI, AVX512_BF16, AVX_VNNI or
AMX. `ONEDNN_MAX_CPU_ISA=AVX2` in the environment makes a newer processor behave like an older one.
Each measurement is a process of its own: the switch is read once.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from typing import Any, NamedTuple

import commands
import environment
import tensorflow as tf

from cifar10.core import cli
from cifar10.job import run as job_run
from cifar10.options import hparams, run_options
from cifar10.training import evaluator, experiment

_SWITCH = 'TF_ENABLE_ONEDNN_OPTS'
_WARM_UP = 5  # Steps.


class Case(NamedTuple):
  """What is measured: a recipe, the hyper-parameters given beside it, and the threads."""

  recipe: str
  given: dict[str, Any]
  steps: int
  threads: int = 0  # 0: as many as cores
  evaluates: bool = False


CASES = {
  'ResNet-20, batch 128': Case('classic', {'num_layers': 20}, 40),
  'ResNet-20, batch 128, one thread': Case('classic', {'num_layers': 20}, 20, 1),
  'ResNet-20, evaluation': Case('classic', {'num_layers': 20}, 0, evaluates=True),
  'ResNet-8, batch 128': Case('classic', {'num_layers': 8}, 100),
  'ResNet-8, batch 1': Case('classic', {'num_layers': 8, 'train_batch_size': 1}, 500),
  'fast94 in float32, batch 500': Case('fast94', {'train_batch_size': 500, 'dtype': 'float32'}, 6),
}


class StepTimes(tf.compat.v1.train.SessionRunHook):
  """When each step ended, in seconds."""

  def __init__(self) -> None:
    self.times: list[float] = []

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self.times.append(time.perf_counter())


def main() -> None:
  """Measures every case with and without, in turn; prints images/s and ratios."""
  parser = _parser()
  flags = parser.parse_args()
  if flags.case:
    print(json.dumps(_measure(flags.data_dir, CASES[flags.case])))
    return
  rates: dict[str, list[float]] = {}
  for pair in range(flags.pairs):
    for case in CASES:
      for value, state in (('0', 'off'), ('1', 'on')):
        rate = _in_a_process(flags.data_dir, case, value)
        rates.setdefault(f'{case}, {state}', []).append(rate)
        print(f'pair {pair + 1}: {case}, {state} {rate:,.0f} images/s', file=sys.stderr)
  record = {
    **environment.head('onednn', parser, flags),
    'instruction_sets': os.environ.get('ONEDNN_MAX_CPU_ISA', 'all of this processor'),
    'images_per_second': commands.medians(rates),
    'ratios': {
      f'{case}, on / off': commands.ratio(rates[f'{case}, on'], rates[f'{case}, off'])
      for case in CASES
    },
    'all_images_per_second': rates,
  }
  print(json.dumps(record))


def _in_a_process(data_dir: str, case: str, value: str) -> float:
  command = ['env', f'{_SWITCH}={value}', sys.executable, os.path.abspath(__file__)]
  return commands.last_line([*command, '--data-dir', data_dir, '--case', case])


def _measure(data_dir: str, case: Case) -> float:
  """Images/s of training, or of an evaluation's session."""
  tf.get_logger().setLevel('ERROR')
  chosen = hparams.from_values(
    hparams.recipe_values(case.recipe, {**case.given, 'train_steps': max(_WARM_UP + case.steps, 1)})
  )
  with tempfile.TemporaryDirectory() as folder:
    options = run_options.RunOptions(
      job_dir=folder,
      data_dir=data_dir,
      num_gpus=0,
      subset='validation',
      num_intra_threads=case.threads,
      num_inter_threads=case.threads,
    )
    step_times = StepTimes()
    work = job_run.begin(chosen, options)
    experiment.train(work, [step_times])
    if not case.evaluates:
      times = step_times.times[_WARM_UP - 1 :]
      return (len(times) - 1) * chosen.train_batch_size / (times[-1] - times[0])
    since = time.perf_counter()
    examples = evaluator.evaluate_once(work)['examples']
    return examples / (time.perf_counter() - since)


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True, help='record files')
  parser.add_argument('--pairs', type=commands.count, default=3)
  parser.add_argument('--case', choices=tuple(CASES), help='measure one, in this process')
  return parser


if __name__ == '__main__':
  cli.run_command(main)
