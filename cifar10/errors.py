"""How a user's mistake ends: one line on standard error and exit code 2, never a traceback."""

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn


class InputError(ValueError):
  """The user's input is at fault. The message names the value and the remedy, in one line."""


class OneLineParser(argparse.ArgumentParser):
  """An argument parser that fails like everything else, without printing its usage first."""

  def error(self, message: str) -> NoReturn:
    self.exit(2, f'error: {message}; see --help\n')


def run_command(main: Callable[[], None]) -> NoReturn:
  """Runs a command's main function and exits: 0 when done, 2 on an InputError, 130 on Ctrl-C."""
  try:
    main()
  except InputError as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  except KeyboardInterrupt:
    print('interrupted', file=sys.stderr)
    sys.exit(130)
  sys.exit(0)
