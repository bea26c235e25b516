"""Writes a report on one or several jobs as a single page, to read and send.

  python -m cifar10.report JOB [JOB...] --out report.html

evaluates each job's checkpoint on the test split and writes a page that needs no other file and no
network. The last line on standard output is JSON with its numbers, which docs/watching.md explains.
"""

import functools
import importlib.util
import os
import sys
import time
from typing import Any

import cifar10
from cifar10 import plan
from cifar10.core import cli, files, logs, start_tensorflow
from cifar10.core.errors import InputError
from cifar10.data.manifest import SUBSETS

_INSTALLED_BY = "pip install 'jinja2>=3.1.5,<4' 'matplotlib>=3.10,<3.11'"  # In any folder.


def main() -> None:
  """Runs the command: reads and evaluates the jobs, writes the page, prints the numbers."""
  parser, path = cli.OneLineParser(description=__doc__), cli.path
  add = parser.add_argument
  add('jobs', type=path, nargs='+', metavar='JOB', help='job dirs, shown side by side')
  add('--out', type=path, metavar='FILE', help='the page to write')
  add('--table', action='store_true', help='print the numbers on standard error')
  add('--subset', choices=SUBSETS, default='eval', help='the split to evaluate')
  add('--checkpoint', type=path, help='what to evaluate (default: the latest)')
  add('--data-dir', type=path, help="the record files (default: where the job's were)")
  command = parser.parse_args()
  if command.out:
    if not all(importlib.util.find_spec(name) for name in ('jinja2', 'matplotlib')):
      raise InputError(f'--out {command.out}: a page needs what this installs: {_INSTALLED_BY}')
    plan.check_out(command.out)
  os.environ['MPLBACKEND'] = 'agg'  # A notebook names one of its own, which need not be installed.
  start_tensorflow.start()  # Late, so that --help and errors are fast.
  from cifar10.reporting import job_report, summary  # noqa: PLC0415

  logs.set_up()
  jobs = [
    job_report.collect(chr(ord('A') + n), job, command.subset, command.checkpoint, command.data_dir)
    for n, job in enumerate(command.jobs)
  ]
  result: dict[str, Any] = {'jobs': [summary.to_json(job) for job in jobs]}
  if command.out:
    from cifar10.reporting import page  # noqa: PLC0415 - needs libraries that numbers do not

    made = time.strftime('Made %Y-%m-%d %H:%M UTC by cifar10-estimator ', time.gmtime())
    content = page.render(jobs, made + cifar10.__version__)
    with files.naming_errors('--out', command.out, is_first=True):
      files.write_text(command.out, content)
    result = {'report': command.out, 'bytes': len(content.encode()), **result}
  if command.table:
    print(summary.terminal_table(jobs), file=sys.stderr)
  cli.print_result(files.json_text(result))


run = functools.partial(cli.run_process, main)  # The script of pyproject.toml.

if __name__ == '__main__':
  run()
