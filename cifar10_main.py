"""Trains, evaluates, exports and applies networks on CIFAR-10 and similar data sets.

  python cifar10_main.py --data-dir DATA --job-dir JOB

trains ResNet-44 for 80,000 steps, evaluates on the validation split on the way and on the test
split at the end, and prints the result as one JSON line. The same command resumes.
"""

if __name__ == '__main__':  # Before the imports, which Ctrl-C must not interrupt.
  from cifar10.core.errors import run_process

  run_process('cifar10_main')

import contextlib

from cifar10 import modes
from cifar10.core import errors, files, lazy_tf, logs, parts
from cifar10.options import flags


def main() -> None:
  """Runs the command: parses and checks the flags, then runs one mode."""
  command = flags.parse(__doc__)
  plan = modes.check(command)
  lazy_tf.import_tensorflow(command.verbose)  # So late that --help and refusals do not wait.
  logs.set_up(command.verbose)
  writes_once = command.mode in ('predict', 'export')  # All others hear signals themselves.
  ended = parts.find('cifar10.core.cli:ended_by_signals') if writes_once else contextlib.nullcontext
  with ended():
    for result in modes.run(plan):
      errors.print_result(files.json_text(result))
