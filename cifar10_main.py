"""Trains, evaluates, exports and applies networks on CIFAR-10 and similar data sets.

  python cifar10_main.py --data-dir DATA --job-dir JOB

trains ResNet-44 for 80,000 steps, evaluates on the validation split on the way and on the test
split at the end, and prints the result as one JSON line. The same command resumes.
"""

if __name__ == '__main__':  # Before the imports, which Ctrl-C must not interrupt.
  from cifar10.core.errors import run_process

  run_process('cifar10_main')

import contextlib

from cifar10 import plan
from cifar10.core import cli, errors, files, logs, start_tensorflow
from cifar10.options import flags


def main() -> None:
  """Runs the command: parses and checks the flags, then runs one mode."""
  command = flags.parse(__doc__)
  planned = plan.check(command)
  start_tensorflow.start(command.verbose)  # So late that --help and refusals do not wait.
  from cifar10 import modes  # noqa: PLC0415  (all that needs TensorFlow)

  logs.set_up(command.verbose)
  writes_once = command.mode in ('predict', 'export')  # All others hear signals themselves.
  with cli.ended_by_signals() if writes_once else contextlib.nullcontext():
    for result in modes.results(planned):
      errors.print_result(files.json_text(result))
