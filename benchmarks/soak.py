"""Trains to the end through deaths: kills the command at random times, moves the job, goes on.

  python benchmarks/soak.py --data-dir data --work-dir runs/soak -- --dtype bfloat16 \
    > runs/soak.json

Each life of the training command ends by SIGKILL or SIGTERM after a random time; each second time
its job dir gets another name before the same command goes on. The script itself may be killed and
started again: it keeps the deaths in WORK_DIR/deaths.jsonl. When the training has made its last
step, it prints the accuracy, the evaluations on the way, the deaths and the steps lost.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import time
from typing import Any

import commands
import environment

from cifar10.core import cli, errors
from cifar10.job import metrics_log

_CURVE = ('step', 'subset', 'accuracy', 'cross_entropy')
_DEATHS = 'deaths.jsonl'
_FOLDERS = ('job', 'moved')  # The names that the job dir has in turn.


def main() -> None:
  """Trains until the command ends by itself, then prints the record."""
  parser = _parser()
  flags = parser.parse_args()
  os.makedirs(flags.work_dir, exist_ok=True)
  while (result := _live(flags)) is None:
    pass
  record = {
    'name': 'soak',
    'command': commands.command_line(parser, flags),
    'n': 1,
    **environment.describe(),
    'result': result,
    **_history(flags),
  }
  print(json.dumps(record))


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True, help='record files')
  parser.add_argument('--work-dir', required=True, help='where the job and its deaths are')
  parser.add_argument('--min-minutes', type=float, default=5, help='of a life (default: 5)')
  parser.add_argument('--max-minutes', type=float, default=60, help='of a life (default: 60)')
  parser.add_argument('flags', nargs='*', help='of cifar10_main.py, after --')
  return parser


def _live(flags: argparse.Namespace) -> dict[str, Any] | None:
  """One life of the training command -> what it printed at its end; None: it was killed."""
  job = _job_dir(flags.work_dir)
  words = [*commands.PROGRAM, '--data-dir', flags.data_dir, '--job-dir', job, *flags.flags]
  seconds = random.uniform(flags.min_minutes, flags.max_minutes) * 60
  with (
    open(os.path.join(flags.work_dir, 'log.txt'), 'a', encoding='utf-8') as log,
    subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True) as training,
  ):
    try:
      output, _ = training.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
      _kill(flags, training, job, seconds)
      return None
    finally:
      training.kill()
  if training.returncode:
    raise errors.InputError(
      f'{" ".join(words)} ended with exit code {training.returncode} that nobody asked for; '
      f'{flags.work_dir}/log.txt says why'
    )
  return json.loads(output.splitlines()[-1])


def _job_dir(work_dir: str) -> str:
  paths = [os.path.join(work_dir, name) for name in _FOLDERS]
  return next((path for path in paths if os.path.isdir(path)), paths[0])


def _kill(
  flags: argparse.Namespace, training: 'subprocess.Popen[str]', job: str, seconds: float
) -> None:
  """Kills the command, notes its death, and moves its job dir every second time."""
  how = random.choice((signal.SIGKILL, signal.SIGTERM))
  training.send_signal(how)
  training.communicate()
  with open(os.path.join(flags.work_dir, _DEATHS), 'a', encoding='utf-8') as file:
    event = {
      'signal': how.name,
      'exit_code': training.returncode,
      'seconds': round(seconds),
      'last_step_heard_of': max((e['step'] for e in metrics_log.read(job)), default=0),
      'time': round(time.time()),
    }
    file.write(json.dumps(event) + '\n')
  moves = len(_deaths(flags.work_dir)) % 2 == 0
  if moves and os.path.isdir(job):
    here = os.path.basename(job)
    os.rename(job, os.path.join(flags.work_dir, _FOLDERS[1 - _FOLDERS.index(here)]))


def _deaths(work_dir: str) -> list[dict[str, Any]]:
  try:
    with open(os.path.join(work_dir, _DEATHS), encoding='utf-8') as file:
      return [json.loads(line) for line in file]
  except FileNotFoundError:
    return []


def _history(flags: argparse.Namespace) -> dict[str, Any]:
  """How often the training began, what it lost, and how it was killed."""
  deaths = _deaths(flags.work_dir)
  events = metrics_log.read(_job_dir(flags.work_dir))
  evaluations = [event for event in events if event['event'] == 'evaluate']
  starts = [event for event in events if event['event'] == 'start']
  lost = [event['steps_lost'] for event in starts]
  steps = [event['step'] for event in events if event['event'] == 'train']
  return {
    'starts': len(starts),
    'deaths': {how: sum(d['signal'] == how for d in deaths) for how in ('SIGKILL', 'SIGTERM')},
    'steps_lost': {'most': max(lost), 'in_all': sum(lost)},
    'one_curve': steps == sorted(set(steps)),
    'evaluations': [{key: event[key] for key in _CURVE} for event in evaluations],
  }


if __name__ == '__main__':
  cli.run_command(main)
