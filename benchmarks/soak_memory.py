"""What a long training leaves behind: memory, file handles, threads, temporary files.

  python benchmarks/soak_memory.py --data-dir DATA

trains ResNet-8 with batch 1 for 20,000 steps, and another job that is evaluated 200 times on the
way, each in one process, which is looked at every second. The slopes are of straight lines through
what was seen after the first fifth, with their standard errors.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# The program lies beside this folder, and is not installed.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import commands
import environment
import numpy as np
import psutil

from cifar10.callbacks import metrics_file
from cifar10.platform import errors

_NETWORK = ['--num-layers', 8, '--train-batch-size', 1, '--eval-batch-size', 100]
_MIB = 2**20
_LOOK_SECONDS = 1.0
_SETTLED = 0.2  # Of the way; before that TensorFlow's pools fill.
_COUNTED = ('handles', 'threads', 'temporary_files')

Sample = dict[str, float]


def main() -> None:
  """Trains both jobs; prints slopes and extremes."""
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True)
  parser.add_argument('--steps', type=commands.count, default=20_000)
  parser.add_argument('--evaluations', type=commands.count, default=200)
  flags = parser.parse_args()
  record = {
    'name': 'soak_memory',
    'command': commands.command_line(parser, flags),
    **environment.describe(),
    'training': described(watch_steps(flags.data_dir, flags.steps), 1000, '1,000 steps'),
    'evaluating': described(watch_evaluations(flags.data_dir, flags.evaluations), 1, 'evaluation'),
  }
  print(json.dumps(record))


def watch_steps(data_dir: str, steps: int) -> list[Sample]:
  """Samples of a training without evaluations, by global step."""
  flags = ['--mode', 'train', '--train-steps', steps, '--save-every-steps', max(steps // 10, 1)]
  return _watch([*flags, '--data-dir', data_dir], 'train')


def watch_evaluations(data_dir: str, evaluations: int) -> list[Sample]:
  """Samples of a training with an evaluation after every second step, by their number."""
  flags = ['--train-steps', 2 * evaluations, '--eval-every-steps', 2]
  return _watch([*flags, '--data-dir', data_dir], 'evaluate')


def described(samples: list[Sample], unit: int, name: str) -> dict[str, Any]:
  """The slope of the memory, and the least and the most of what is counted."""
  settled = [sample for sample in samples if sample['at'] >= _SETTLED * samples[-1]['at']]
  halves = settled[: len(settled) // 2], settled[len(settled) // 2 :]
  slope, error = fitted(
    [sample['at'] / unit for sample in settled], [sample['memory_mib'] for sample in settled]
  )
  return {
    f'mib_per_{name.replace(" ", "_")}': round(slope, 4),
    'standard_error': round(error, 4),
    'memory_mib': _extremes(settled, 'memory_mib'),
    **{counted: _extremes(settled, counted) for counted in _COUNTED},
    # Between an evaluation's beginning and its end there are more: the least are what stays.
    'at_rest_in_each_half': {
      counted: [min(sample[counted] for sample in half) for half in halves] for counted in _COUNTED
    },
    'reached': samples[-1]['at'],
    'samples': len(settled),
  }


def fitted(x: list[float], y: list[float]) -> tuple[float, float]:
  """The slope of the least squares' line, and its standard error for independent errors."""
  centred = np.asarray(x) - np.mean(x)
  squares = float(np.sum(centred**2))
  slope = float(np.sum(centred * y)) / squares
  rest = np.asarray(y) - np.mean(y) - slope * centred
  return slope, float(np.sqrt(np.sum(rest**2) / (len(x) - 2) / squares))


def _extremes(samples: list[Sample], key: str) -> list[float]:
  values = [sample[key] for sample in samples]
  return [round(min(values), 1), round(max(values), 1)]


def _watch(flags: list[Any], event: str) -> list[Sample]:
  """Runs the program -> what was seen of it, each with the number of steps or of such events."""
  with tempfile.TemporaryDirectory() as folder:
    job, temporary = os.path.join(folder, 'job'), os.path.join(folder, 'temporary')
    os.mkdir(temporary)
    command = [*_NETWORK, *flags, '--job-dir', job, '--num-gpus', 0]
    with subprocess.Popen(
      [*commands.PROGRAM, *map(str, command)],
      env={**os.environ, 'TMPDIR': temporary},
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
    ) as process:
      samples: list[Sample] = []
      while process.poll() is None:
        time.sleep(_LOOK_SECONDS)
        events = metrics_file.read(job)
        found = [each['step'] for each in events if each['event'] == event]
        at = len(found) if event == 'evaluate' else max(found, default=0)
        ending = any(each['event'] == 'end' for each in events)  # Then files are being closed.
        if at and not ending:
          samples += _sample(process.pid, at, temporary)
  if process.returncode or not samples:
    raise errors.InputError(f'the training ended with code {process.returncode}: {command}')
  return samples


def _sample(pid: int, at: int, temporary: str) -> list[Sample]:
  """None where the process has just ended, or is about to."""
  try:
    process = psutil.Process(pid)
    memory = process.memory_info().rss / _MIB
    found = {'at': at, 'memory_mib': memory, 'handles': process.num_fds()}
    found['threads'] = process.num_threads()
  except psutil.Error:
    return []
  return [{**found, 'temporary_files': len(os.listdir(temporary))}] if memory else []


if __name__ == '__main__':
  errors.run_command(main)
