"""Trains to the end through deaths: kills the command at random times, moves the job, goes on.

  python benchmarks/soak.py --data-dir data --work-dir runs/soak --name classic_soak \
    -- --dtype bfloat16

Each life of the training command ends by SIGKILL or SIGTERM after a random time; each second time
its job dir gets another name before the same command goes on. The script itself may be killed and
started again: it keeps the deaths in WORK_DIR/deaths.jsonl. When the training has made its last
step, benchmarks/results/NAME.json gets accuracy, deaths and lost steps, and NAME.csv the
evaluations on the way.
"""

import argparse
import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import commands
import environment

from cifar10.callbacks import metrics_file
from cifar10.platform import errors

RESULTS = os.path.join(commands.ROOT, 'benchmarks', 'results')
_FOLDERS = ('job', 'moved')  # The names that the job dir has in turn.


def main() -> None:
  """Trains until the command ends by itself, then writes the record."""
  parser = _parser()
  flags = parser.parse_args()
  os.makedirs(flags.work_dir, exist_ok=True)
  while (result := _live(flags)) is None:
    pass
  record = {
    'name': flags.name,
    'command': commands.command_line(parser, flags),
    'n': 1,
    **environment.describe(),
    'result': result,
    **_history(flags),
  }
  for path in (flags.work_dir, RESULTS):
    with open(os.path.join(path, flags.name + '.json'), 'w', encoding='utf-8') as file:
      json.dump(record, file, indent=2)
      file.write('\n')
  _write_curve(flags)
  print(json.dumps(record))


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True, help='record files')
  parser.add_argument('--work-dir', required=True, help='where the job and its deaths are')
  parser.add_argument('--name', required=True, help='of the record in benchmarks/results/')
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
  deaths = os.path.join(flags.work_dir, 'deaths.jsonl')
  with open(deaths, 'a', encoding='utf-8') as file:
    event = {
      'signal': how.name,
      'exit_code': training.returncode,
      'seconds': round(seconds),
      'last_step_heard_of': max((e['step'] for e in metrics_file.read(job)), default=0),
      'time': round(time.time()),
    }
    file.write(json.dumps(event) + '\n')
  with open(deaths, encoding='utf-8') as file:
    moves = len(file.readlines()) % 2 == 0
  if moves and os.path.isdir(job):
    here = os.path.basename(job)
    os.rename(job, os.path.join(flags.work_dir, _FOLDERS[1 - _FOLDERS.index(here)]))


def _history(flags: argparse.Namespace) -> dict[str, Any]:
  """How often the training began, what it lost, and how it was killed."""
  with open(os.path.join(flags.work_dir, 'deaths.jsonl'), encoding='utf-8') as file:
    deaths = [json.loads(line) for line in file]
  events = metrics_file.read(_job_dir(flags.work_dir))
  starts = [event for event in events if event['event'] == 'start']
  lost = [event['steps_lost'] for event in starts]
  steps = [event['step'] for event in events if event['event'] == 'train']
  return {
    'starts': len(starts),
    'deaths': {how: sum(d['signal'] == how for d in deaths) for how in ('SIGKILL', 'SIGTERM')},
    'steps_lost': {'most': max(lost), 'in_all': sum(lost)},
    'one_curve': steps == sorted(set(steps)),
  }


def _write_curve(flags: argparse.Namespace) -> None:
  columns = ['step', 'split', 'accuracy', 'cross_entropy']
  path = os.path.join(RESULTS, flags.name + '.csv')
  with open(path, 'w', newline='', encoding='utf-8') as file:
    writer = csv.DictWriter(file, columns, lineterminator='\n', extrasaction='ignore')
    writer.writeheader()
    for event in metrics_file.read(_job_dir(flags.work_dir)):
      if event['event'] == 'evaluate':
        writer.writerow({'split': event['subset'], **event})


if __name__ == '__main__':
  errors.run_command(main)
