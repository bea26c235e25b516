"""Trains, evaluates, exports and applies networks on CIFAR-10 and similar data sets.

  python cifar10_main.py --data-dir DATA --job-dir JOB

trains ResNet-44 for 80,000 steps, evaluates on the validation split on the way and on the test
split at the end, and prints the result as one JSON line. The same command resumes.
"""

import functools

from cifar10 import plan
from cifar10.core import cli, files, logs, start_tensorflow
from cifar10.options import flags


def main() -> None:
  """Runs the command: parses and checks the flags, then runs one mode."""
  planned = plan.check(flags.parse(__doc__))
  verbose = planned.command.verbose
  start_tensorflow.start(verbose)  # So late that --help and refusals do not wait.
  from cifar10 import api  # noqa: PLC0415  (all that needs TensorFlow)

  logs.set_up(verbose)
  for result in api.results(planned):
    cli.print_result(files.json_text(result))


run = functools.partial(cli.run_process, main)  # The script of pyproject.toml.

if __name__ == '__main__':
  run()
