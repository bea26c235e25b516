"""Writes a report on one or several jobs as a single page, to read and send.

  python -m cifar10.report JOB [JOB...] --out report.html

evaluates each job's checkpoint on the test split and writes a page that needs no other file and no
network: numbers with 95 % intervals, learning curves, classes, confusion matrix, calibration, worst
mistakes, configuration and history. `--table` prints the same numbers as text, and as JSON in the
last line on standard output. docs/report.md explains them.
"""

if __name__ == '__main__':  # Before the imports, which Ctrl-C must not interrupt.
  from cifar10.core.errors import run_process

  run_process('cifar10.report')

import argparse
import datetime
import importlib.util
import os
import string
import sys
from collections.abc import Sequence
from typing import Any

import cifar10
from cifar10.core import cli, errors, files, logs, start_tensorflow, storage_errors
from cifar10.core.errors import InputError
from cifar10.data.manifest import SPLITS
from cifar10.options import checks

_INSTALLED_BY = "pip install 'jinja2>=3.1.5,<4' 'matplotlib>=3.10,<3.11'"  # In any folder.
_LIBRARIES = ('jinja2', 'matplotlib')


def main() -> None:
  """Runs the command: reads and evaluates the jobs, writes the page, prints the numbers."""
  command = _parser().parse_args()
  _check(command)
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  start_tensorflow.start()  # Late, so that --help and errors are fast.
  from cifar10.reporting import job_report, summary  # noqa: PLC0415

  logs.set_up()
  wanted = job_report.Wanted(command.subset, command.checkpoint, command.data_dir)
  jobs = [
    job_report.collect(letter, path, wanted)
    for letter, path in zip(string.ascii_uppercase, command.jobs)
  ]
  result: dict[str, Any] = {'jobs': [summary.to_json(job) for job in jobs]}
  if command.out:
    result = {'report': command.out, 'bytes': _write_page(command.out, jobs), **result}
  if command.table:
    print(summary.terminal_table(jobs), file=sys.stderr)
  errors.print_result(files.json_text(result))


def _check(command: argparse.Namespace) -> None:
  """Raises InputError for flags that can be refused before anything is read."""
  for name in ('out', 'checkpoint', 'data_dir'):
    if getattr(command, name) == '':
      raise InputError(f'--{name.replace("_", "-")} is empty; give a path, or leave it out')
  if not command.out and not command.table:
    raise InputError('nothing to make: give --out FILE for a page, --table for text')
  if len(command.jobs) > len(string.ascii_uppercase):
    raise InputError(
      f'{len(command.jobs)} jobs: at most {len(string.ascii_uppercase)} fit beside '
      'each other; name fewer'
    )
  if command.checkpoint not in (None, 'best') and len(command.jobs) > 1:
    raise InputError(
      f'--checkpoint {command.checkpoint} belongs to one job, and there are {len(command.jobs)}; '
      'name that job alone'
    )
  missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
  if command.out and missing:
    raise InputError(
      f'a page needs {" and ".join(missing)}, not installed here; run: {_INSTALLED_BY}, or ask for '
      '--table'
    )
  if command.out:
    checks.check_out(command.out)


def _write_page(path: str, jobs: Sequence[Any]) -> int:
  """Writes the page atomically; returns its size in bytes."""
  os.environ['MPLBACKEND'] = 'agg'  # A notebook names one of its own, which need not be installed.
  from cifar10.reporting import page  # noqa: PLC0415 - needs libraries that --table does not

  now = datetime.datetime.now(datetime.timezone.utc)
  made = f'Made {now:%Y-%m-%d %H:%M} UTC by cifar10-estimator {cifar10.__version__}'
  # A path may have bytes that are not UTF-8.
  content = page.render(jobs, made).encode('utf-8', 'backslashreplace')
  folder = os.path.dirname(files.absolute(path))
  named, refusing = storage_errors.named('--out', folder), storage_errors.refusing('--out', path)
  with named, refusing, files.writing(path) as file:
    file.write(content)
  return len(content)


def _parser() -> argparse.ArgumentParser:
  parser = cli.OneLineParser(description=__doc__)
  parser.add_argument(
    'jobs', type=cli.path, nargs='+', metavar='JOB', help='job dirs, shown side by side'
  )
  parser.add_argument('--out', metavar='FILE', help='the page to write')
  parser.add_argument('--table', action='store_true', help='print the numbers on standard error')
  parser.add_argument('--subset', choices=SPLITS, help='the split to evaluate (default: eval)')
  parser.add_argument('--checkpoint', help='what to evaluate (default: the latest)')
  parser.add_argument('--data-dir', help="the record files (default: where the job's were)")
  return parser
