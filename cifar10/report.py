"""One page about one or several jobs, to be read and sent.

  python -m cifar10.report JOB [JOB...] --out report.html

evaluates each job's checkpoint on the test split and writes a page that needs no other file and no
network: numbers with 95 % intervals, learning curves, classes, confusion matrix, calibration, the
worst mistakes, configuration, what happened. `--table` prints the same numbers as text, and as JSON
in the last line on standard output. docs/report.md explains them.
"""

import argparse
import datetime
import importlib.util
import os
import string
import sys
from collections.abc import Sequence
from typing import Any

import cifar10
from cifar10.core import cli, errors, files, lazy_tf, logs, storage_errors
from cifar10.core.errors import InputError
from cifar10.data.manifest import SPLITS

_REQUIREMENTS = 'requirements-report.txt'
_LIBRARIES = ('jinja2', 'matplotlib')


def main() -> None:
  """The command: reads and evaluates the jobs, writes the page, prints numbers."""
  command = _parser().parse_args()
  _check(command)
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  lazy_tf.import_tensorflow()  # Not before: --help and refusals do not wait for it.
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
      f'a page needs {" and ".join(missing)}, not installed here; run: pip install -r '
      f'{_REQUIREMENTS}, or ask for --table'
    )
  folder = os.path.dirname(command.out or '') or '.'
  if not files.is_url(folder) and not files.is_dir(folder):
    raise InputError(f'--out {command.out}: there is no folder {folder}; make it')
  if command.out and not files.is_url(folder) and files.is_dir(command.out):
    raise InputError(f'--out {command.out} is a folder; name a file')


def _write_page(path: str, jobs: Sequence[Any]) -> int:
  """Writes the page, whole or not at all -> its bytes."""
  from cifar10.reporting import page  # noqa: PLC0415 - it takes libraries that --table does not

  now = datetime.datetime.now(datetime.timezone.utc)
  made = f'Made {now:%Y-%m-%d %H:%M} UTC by cifar10-estimator {cifar10.__version__}'
  # A path may have bytes that are no UTF-8.
  content = page.render(jobs, made).encode('utf-8', 'backslashreplace')
  folder = os.path.dirname(files.absolute(path))
  named, refusing = storage_errors.named('--out', folder), storage_errors.refusing('--out', path)
  with named, refusing, files.writing(path) as file:
    file.write(content)
  return len(content)


def _parser() -> argparse.ArgumentParser:
  parser = cli.OneLineParser(
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument('jobs', nargs='+', metavar='JOB', help='job dirs, shown side by side')
  parser.add_argument('--out', metavar='FILE', help='the page to write')
  parser.add_argument('--table', action='store_true', help='print the numbers on standard error')
  parser.add_argument('--subset', choices=SPLITS, help='the split to evaluate (default: eval)')
  parser.add_argument('--checkpoint', help='what to evaluate (default: the latest)')
  parser.add_argument('--data-dir', help="the record files (default: where the job's were)")
  return parser


if __name__ == '__main__':
  errors.run_process(main)
