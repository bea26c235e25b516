"""Writes a finished job's result and learning curve to benchmarks/results/.

  python benchmarks/learning_curve.py --job-dir JOB --result RESULT.json --name NAME \
    --title TITLE --command 'python cifar10_main.py ...' --commit COMMIT --minutes MINUTES

RESULT.json is the standard output of the training command; NAME.json gets it with the command, the
commit and the environment, NAME.csv one line for each evaluation in JOB/metrics.jsonl.
"""

import argparse
import csv
import json
import os

import environment
from records import RESULTS

from cifar10.reporting import history


def main() -> None:
  """Reads the job dir, writes both files."""
  flags = _parse_flags()
  rows = curve(flags.job_dir)
  with open(os.path.join(RESULTS, flags.name + '.csv'), 'w', newline='', encoding='utf-8') as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(('step', 'split', 'accuracy', 'cross_entropy'))
    writer.writerows(rows)
  with open(flags.result, encoding='utf-8') as file:
    result = json.loads(file.read().splitlines()[-1])
  result['checkpoint'] = os.path.basename(result['checkpoint'])
  record = {
    'name': flags.name,
    'title': flags.title,
    'command': flags.command,
    'minutes': flags.minutes,
    'n': 1,
    **environment.describe(),
    'commit': flags.commit,  # Of the training, not of today.
    'result': result,
  }
  with open(os.path.join(RESULTS, flags.name + '.json'), 'w', encoding='utf-8') as file:
    json.dump(record, file, indent=2)
    file.write('\n')
  print(json.dumps(record))


def curve(job_dir: str) -> list[tuple]:
  """A row for each evaluation, in order of split and step; of one step the last evaluation."""
  events = history.read(job_dir).of('evaluate')
  found = {(event['subset'], event['step']): event for event in events}
  return [
    (step, split, round(event['accuracy'], 4), round(event['cross_entropy'], 4))
    for (split, step), event in sorted(found.items())
  ]


def _parse_flags() -> argparse.Namespace:
  parser = argparse.ArgumentParser(description=__doc__)
  for flag in ('--job-dir', '--result', '--name', '--title', '--command', '--commit'):
    parser.add_argument(flag, required=True)
  parser.add_argument('--minutes', type=float, required=True, help='wall time of the command')
  return parser.parse_args()


if __name__ == '__main__':
  main()
