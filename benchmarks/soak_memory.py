"""What a long training leaves behind: memory, file handles, threads, temporary files.

  python benchmarks/soak_memory.py --data-dir DATA

trains ResNet-8 with batch 1 for 20,000 steps, and another job that is evaluated 200 times on the
way, each in one process, which is looked at five times a second. The slopes are of straight lines
through what was seen after the first fifth, with their standard errors.

Resident memory is what the system has given the process. Where glibc tells it, the benchmark also
has what the program holds of that (`mallinfo2`): the rest lies free between what is held, and is
used again.
"""

import ctypes
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import commands
import environment
import numpy as np
import psutil

from cifar10.core import cli, errors
from cifar10.job import metrics_log

_NETWORK = ['--num-layers', 8, '--train-batch-size', 1, '--eval-batch-size', 100]
_MIB = 2**20
_LOOK_SECONDS = 0.2  # A fast machine makes an evaluation of few images in less than a second.
_FEWEST_SAMPLES = 4  # For a line and its error in each half.
_SETTLED = 0.2  # Of the way; before that TensorFlow's pools fill.
_COUNTED = ('handles', 'threads', 'temporary_files', 'graphs')
_HELD_FILE = 'SOAK_MEMORY_HELD_FILE'  # Set for a training: where its process writes what it holds.

Sample = dict[str, float]


def main() -> None:
  """Trains both jobs; prints slopes and extremes."""
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True)
  parser.add_argument('--steps', type=commands.count, default=20_000)
  parser.add_argument('--evaluations', type=commands.count, default=200)
  flags = parser.parse_args()
  record = {
    **environment.head('soak_memory', parser, flags),
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
  """The slopes of the memory, and the least and the most of what is counted."""
  settled = [sample for sample in samples if sample['at'] >= _SETTLED * samples[-1]['at']]
  if len(settled) < _FEWEST_SAMPLES:
    raise errors.InputError(
      f'only {len(samples)} looks, five a second, for the slope per {name}; give more --steps or '
      '--evaluations'
    )
  halves = settled[: len(settled) // 2], settled[len(settled) // 2 :]
  per = name.replace(' ', '_')
  counts = [name for name in _COUNTED if name in settled[0]]
  return {
    **_sloped(settled, 'memory_mib', unit, f'mib_per_{per}', 'standard_error'),
    **_sloped(settled, 'held_mib', unit, f'mib_held_per_{per}', 'standard_error_of_held'),
    **{counted: _extremes(settled, counted) for counted in counts},
    # Between an evaluation's beginning and its end there are more: the least are what stays.
    'at_rest_in_each_half': {
      counted: [min(sample[counted] for sample in half) for half in halves] for counted in counts
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


def _sloped(
  samples: list[Sample], key: str, unit: int, slope_name: str, error_name: str
) -> dict[str, Any]:
  """The slope of what these samples have of it, its error and its extremes; else nothing."""
  known = [sample for sample in samples if key in sample]
  if len(known) < _FEWEST_SAMPLES:
    return {}
  slope, error = fitted([each['at'] / unit for each in known], [each[key] for each in known])
  return {
    slope_name: round(slope, 4),
    error_name: round(error, 4),
    key: _extremes(known, key),
  }


def _extremes(samples: list[Sample], key: str) -> list[float]:
  values = [sample[key] for sample in samples]
  return [round(min(values), 1), round(max(values), 1)]


def _watch(flags: list[Any], event: str) -> list[Sample]:
  """Runs the program -> what was seen of it, each with the number of steps or of such events."""
  with tempfile.TemporaryDirectory() as folder:
    job, temporary = os.path.join(folder, 'job'), os.path.join(folder, 'temporary')
    os.mkdir(temporary)
    held = os.path.join(folder, 'held')
    command = [*_NETWORK, *flags, '--job-dir', job, '--num-gpus', 0]
    with subprocess.Popen(
      [sys.executable, os.path.abspath(__file__), *map(str, command)],
      env={**os.environ, 'TMPDIR': temporary, _HELD_FILE: held},
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
    ) as process:
      samples: list[Sample] = []
      while process.poll() is None:
        time.sleep(_LOOK_SECONDS)
        events = metrics_log.read(job)
        found = [each['step'] for each in events if each['event'] == event]
        at = len(found) if event == 'evaluate' else max(found, default=0)
        ending = any(each['event'] == 'end' for each in events)  # Then files are being closed.
        if at and not ending:
          samples += sample(process.pid, at, temporary, held)
  if process.returncode or not samples:
    raise errors.InputError(f'the training ended with code {process.returncode}: {command}')
  return samples


def sample(pid: int, at: int, temporary: str, held: str = '') -> list[Sample]:
  """What is seen of a process; nothing where the process has just ended, or is about to."""
  try:
    process = psutil.Process(pid)
    memory = process.memory_info().rss / _MIB
    found = {'at': at, 'memory_mib': memory, 'handles': process.num_fds()}
    found['threads'] = process.num_threads()
  except psutil.Error:
    return []
  if os.path.exists(held):
    with open(held, encoding='utf-8') as file:
      found['held_mib'] = float(file.read())
  return [{**found, 'temporary_files': len(os.listdir(temporary))}] if memory else []


class _Mallinfo2(ctypes.Structure):
  """glibc's, in bytes."""

  _fields_ = [
    *((name, ctypes.c_size_t) for name in ('arena', 'ordblks', 'smblks', 'hblks', 'hblkhd')),
    *((name, ctypes.c_size_t) for name in ('usmblks', 'fsmblks', 'uordblks', 'fordblks')),
    ('keepcost', ctypes.c_size_t),
  ]


def mallinfo() -> Any:
  """glibc's function that tells what the process holds; None where there is another library."""
  read = getattr(ctypes.CDLL(None), 'mallinfo2', None)
  if read:
    read.restype = _Mallinfo2
  return read


def held_mib(read: Any) -> float:
  """What `mallinfo`'s function tells now."""
  info = read()
  return (info.uordblks + info.hblkhd) / _MIB


def run_program(held: str) -> None:
  """Runs the program in this process; a thread writes into a file what is held, in MiB."""
  if read := mallinfo():
    threading.Thread(target=_tell_held, args=[read, held], daemon=True).start()
  sys.argv[0] = commands.PROGRAM[1]
  runpy.run_path(sys.argv[0], run_name='__main__')


def _tell_held(read: Any, path: str) -> None:
  while True:
    with open(f'{path}.new', 'w', encoding='utf-8') as file:
      file.write(str(held_mib(read)))
    os.replace(f'{path}.new', path)
    time.sleep(_LOOK_SECONDS)


if __name__ == '__main__':
  if _HELD_FILE in os.environ:
    run_program(os.environ[_HELD_FILE])
  else:
    cli.run_command(main)
