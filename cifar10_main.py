"""Trains, evaluates, exports and applies networks on CIFAR-10 and similar data sets.

  python cifar10_main.py --data-dir DATA --job-dir JOB

trains ResNet-44 for 80,000 steps, evaluates on the validation split on the way and on the test
split at the end, and prints the result as one JSON line. The same command resumes.
"""

import importlib
import json

from cifar10 import modes
from cifar10.core import errors, lazy_tf, logs
from cifar10.options import flags


def main() -> None:
  """Runs the command: parses and checks the flags, then runs one mode."""
  command = flags.parse(__doc__)
  plan = modes.check(command)
  if command.verbose:
    importlib.import_module('tensorflow')
  else:
    lazy_tf.import_tensorflow()  # Late, so that --help and errors are fast.
  logs.set_up(command.verbose)
  for result in modes.run(plan):
    errors.print_result(json.dumps(result))


if __name__ == '__main__':
  errors.run_command(main)
