"""How a command ends early: one line on standard error and an exit code, never a traceback."""

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from cifar10.core import logs
from cifar10.core.logs import log


class InputError(ValueError):
  """The user's input is at fault. The message names the value and the remedy, in one line."""

  def __init__(self, message: str):
    """`message` may name a path or a value with line ends in it."""
    super().__init__('\\n'.join(message.splitlines()))


class DamagedError(InputError):
  """A file is there and is not what it should be: nothing takes its place unasked."""


class TaskLostError(Exception):
  """Another task of the cluster, without which this one cannot go on, is gone. Exit code 1."""


class SomeFailedError(Exception):
  """Some of what was asked for could not be done, and all else was. Exit code 1."""


class StorageError(Exception):
  """A folder cannot be written any more, through no fault in the input. Exit code 1."""


class SourceError(ValueError):
  """A --source failed, or gave what is no example, in the middle of a training. Exit code 1."""

  def __init__(self, message: str):
    """`message` is made one line: TensorFlow passes it on in the middle of others."""
    super().__init__(' '.join(message.splitlines()))


class CallbackError(Exception):
  """A callback of the user's own failed. Exit code 1."""


class Terminated(Exception):  # noqa: N818  (an end in good order, not an error)
  """SIGTERM ended the run in good order: what was learned is saved."""

  exit_code = 128 + 15  # What a shell reports for a process that SIGTERM ended.


def _as_typed(text: str) -> str:
  from cifar10.core import cli  # noqa: PLC0415  (for --help and errors alone)

  return cli.as_typed(text, cli.typed_name())


def print_result(line: str) -> None:
  """Prints a line on standard output, which may be a file on a full disk; raises StorageError."""
  try:
    logs.print_line(line)
  except BrokenPipeError:
    raise
  except OSError as error:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more.
    raise StorageError(f'standard output cannot be written ({error.strerror})') from None


def run_command(main: Callable[[], None]) -> NoReturn:
  """Runs a command's main function and exits.

  The code is 0 when done, 1 on a TaskLostError, a SomeFailedError, a SourceError, a CallbackError
  or a StorageError, 2 on an InputError, 130 on Ctrl-C, 141 when nobody reads the output any more,
  143 on SIGTERM.
  """
  try:
    main()
  except (
    InputError,
    TaskLostError,
    SomeFailedError,
    SourceError,
    CallbackError,
    StorageError,
  ) as error:
    print(f'error: {_as_typed(str(error))}', file=sys.stderr)
    sys.exit(2 if isinstance(error, InputError) else 1)
  except Terminated:
    print('ended by SIGTERM; the same command goes on from the last checkpoint', file=sys.stderr)
    sys.exit(Terminated.exit_code)
  except BrokenPipeError:  # As `| head` leaves it: what is still buffered would raise it once more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(128 + signal.SIGPIPE)
  except KeyboardInterrupt:
    print('interrupted', file=sys.stderr)
    sys.exit(130)
  sys.exit(0)


def end_process(message: str, code: int = 1) -> NoReturn:
  """Ends the process from another thread: the main one is inside TensorFlow, and none wakes it."""
  log.error('error: %s', message)
  sys.stderr.flush()
  os._exit(code)
