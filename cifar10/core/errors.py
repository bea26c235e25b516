"""The errors that end a command with one line on standard error and an exit code."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from cifar10.core import limits, logs
from cifar10.core.logs import log, one_line

_GRACE_SECONDS = 10  # For what others have left running when a command is done.


class InputError(ValueError):
  """The user's input is wrong. The message has one line: the value and the remedy."""

  def __init__(self, message: str):
    """`message` may name a path or a value with anything in it."""
    super().__init__(one_line(message))


class DamagedError(InputError):
  """A file exists but is damaged; it is never replaced unasked."""


class MisfitError(DamagedError):
  """A whole checkpoint lacks what is to be restored from it, or has it in another shape or type."""

  def __init__(self, checkpoint: str, fault: str):
    """`checkpoint`: its path; `fault`: what TensorFlow says."""
    super().__init__(f'{checkpoint} does not fit the network ({fault}); name another --checkpoint')
    self.checkpoint, self.fault = checkpoint, one_line(fault)


class TaskLostError(Exception):
  """Another task of the cluster, which this one needs, is gone. Exit code 1."""


class SomeFailedError(Exception):
  """Some of the requested work failed, and the rest was done. Exit code 1."""


class StorageError(Exception):
  """A folder can no longer be written, through no fault of the input. Exit code 1."""


class SourceError(ValueError):
  """A --source failed, or yielded something invalid, during training. Exit code 1."""

  def __init__(self, message: str):
    """`message` is made one line: TensorFlow passes it on in the middle of others."""
    super().__init__(' '.join(message.splitlines()))


class CallbackError(Exception):
  """A user's own callback failed. Exit code 1."""


class Terminated(Exception):  # noqa: N818  (an end in good order, not an error)
  """SIGTERM ended the run in good order: the training is saved."""

  exit_code = 128 + 15  # What a shell reports for a process that SIGTERM ended.


def _as_typed(text: str) -> str:
  from cifar10.core import cli  # noqa: PLC0415  (for --help and errors alone)

  return cli.as_typed(text, cli.typed_name())


def print_result(line: str) -> None:
  """Prints a line on standard output; raises StorageError if that is a file on a full disk."""
  try:
    logs.print_line(line)
  except BrokenPipeError:
    raise
  except OSError as error:
    raise StorageError(f'standard output cannot be written ({error.strerror})') from None


def run_process(main: Callable[[], None]) -> NoReturn:
  """As `run_command`, with standard output for results alone, and with an end.

  What others left running (a thread that is no daemon) has ten seconds to end by itself.
  """
  with logs.output_for_results():
    if limits.room() is not None:
      from cifar10.core import little_memory  # noqa: PLC0415  (few have such a limit)

      little_memory.watch()
    try:
      run_command(main)
    except SystemExit as end:
      code = end.code if isinstance(end.code, int) else bool(end.code)
      threading.Thread(target=_end_after_main, args=[code], daemon=True).start()
      raise


def _end_after_main(code: int) -> None:
  threading.main_thread().join()
  time.sleep(_GRACE_SECONDS)
  left = [each.name for each in threading.enumerate() if not each.daemon and each.is_alive()]
  log.info('ending without %s, which did not end', ', '.join(left) or 'what runs at exit')
  os._exit(code)


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
    print(f'error: {_as_typed(one_line(str(error)))}', file=sys.stderr)
    sys.exit(2 if isinstance(error, InputError) else 1)
  except Terminated:
    print('ended by SIGTERM; the same command goes on from the last checkpoint', file=sys.stderr)
    sys.exit(Terminated.exit_code)
  except BrokenPipeError:  # As `| head` leaves it.
    sys.exit(128 + signal.SIGPIPE)
  except KeyboardInterrupt:
    print('interrupted', file=sys.stderr)
    sys.exit(130)
  except (OSError, MemoryError) as error:  # Of the last resort: who knows more names it.
    said = getattr(error, 'strerror', None) or f'not enough memory ({error})'
    name = getattr(error, 'filename', None)
    print(f'error: {said}{f": {name}" if name else ""}', file=sys.stderr)
    sys.exit(1)
  sys.exit(0)


def end_process(message: str, code: int = 1) -> NoReturn:
  """Ends the process from another thread: the main one is inside TensorFlow, and none wakes it."""
  log.error('error: %s', message)
  sys.stderr.flush()
  os._exit(code)
