"""The errors that end a command with one line on standard error and an exit code."""

import contextlib
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from cifar10.core import cli, logs
from cifar10.core.logs import log, one_line
from estimator_again import NotTestedError


class CommandError(Exception):
  """A command cannot do what it was asked: one line, and an exit code."""

  code = 1


class InputError(CommandError, ValueError):
  """The user's input is at fault. The message names the value and the remedy, in one line."""

  code = 2

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


class TaskLostError(CommandError):
  """Another task of the cluster, without which this one cannot go on, is gone."""

  code = 138  # No signal's: a supervisor starts the task again, unlike after a mistake or a disk.


class SomeFailedError(CommandError):
  """Some of what was asked for could not be done, and all else was."""


class StorageError(CommandError):
  """A folder or a file cannot be used any more, through no fault in the input."""


class SourceError(CommandError, ValueError):
  """A --source failed, or gave what is no example, in the middle of a training."""

  def __init__(self, message: str):
    """`message` is made one line: TensorFlow passes it on in the middle of others."""
    super().__init__(' '.join(message.splitlines()))


class CallbackError(CommandError):
  """A callback of the user's own failed."""


class NetworkError(CommandError):
  """An operation of the user's own network failed as it ran."""


class Terminated(Exception):  # noqa: N818  (an end in good order, not an error)
  """SIGTERM, Ctrl-C or SIGHUP ended the run in good order: the training is saved."""

  def __init__(self, heard: str = 'SIGTERM'):
    """`heard`: the signal's name, or 'SIGTERM' for what else told the process to end."""
    super().__init__(heard)
    self.heard = heard
    self.exit_code = 128 + signal.Signals[heard]  # What a shell reports after that signal.


def print_result(line: str) -> None:
  """Prints a line on standard output; raises StorageError if that is a file on a full disk."""
  try:
    logs.print_line(line)
  except BrokenPipeError:
    raise
  except OSError as error:
    raise StorageError(f'standard output cannot be written ({error.strerror})') from None


@contextlib.contextmanager
def interrupted_later() -> Iterator[None]:
  """Ctrl-C waits for the end of an import: modules that it interrupts say much about it."""
  heard: list[int] = []
  waits = threading.current_thread() is threading.main_thread()
  waits &= signal.getsignal(signal.SIGINT) is signal.default_int_handler
  if waits:  # No mask of signals: threads of numpy hear them, too.
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
  try:
    yield
  finally:
    if waits:
      signal.signal(signal.SIGINT, signal.default_int_handler)
  if heard:
    raise KeyboardInterrupt


def run_process(module: str) -> NoReturn:
  """Imports a command's module and runs its `main` as `run_command` does, and with an end.

  Standard output is for results alone. What others left running (a thread that is no daemon) has
  ten seconds to end by itself.
  """

  def main() -> None:
    with interrupted_later():
      command = importlib.import_module(module)
    command.main()

  if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
    # Linux keeps from a container's first process the signals that it has no handler for. This one
    # does what happens to any other process, until a training sets its own.
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
  with logs.output_for_results():
    try:
      run_command(main)
    except SystemExit as end:
      code = end.code if isinstance(end.code, int) else bool(end.code)
      threading.Thread(target=_end_after_main, args=[code], daemon=True).start()
      raise


def _end_after_main(code: int) -> None:
  threading.main_thread().join()
  time.sleep(10)
  log.info('not waiting any longer for what the code of others has left running')
  os._exit(code)


def run_command(main: Callable[[], None]) -> NoReturn:
  """Runs a command's main function and exits.

  The code is 0 when done, a CommandError's own (2 on an InputError), 130 on Ctrl-C, 141 when nobody
  reads the output any more, 143 on SIGTERM.
  """
  try:
    main()
  except CommandError as error:
    message = cli.as_typed(one_line(str(error)))
    print(f'error: {message}', file=sys.stderr)
    sys.exit(error.code)
  except NotTestedError as error:  # A TensorFlow that the Estimator does not fit to.
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  except Terminated as end:
    print(f'ended by {end}; the same command goes on from the last checkpoint', file=sys.stderr)
    sys.exit(end.exit_code)
  except BrokenPipeError:  # As `| head` leaves it.
    sys.exit(128 + signal.SIGPIPE)
  except KeyboardInterrupt:
    print('interrupted', file=sys.stderr)
    sys.exit(130)
  except (OSError, MemoryError) as error:  # Of the last resort: who knows more names it.
    message = 'not enough memory' if isinstance(error, MemoryError) else str(error)
    print(f'error: {message:.500}', file=sys.stderr)
    sys.exit(1)
  except Exception as error:  # TensorFlow's, of a GPU or of what its own allocator refuses.
    _, found, rest = str(error).partition('OOM when allocating')
    if not found:
      raise
    line = (found + rest).splitlines()[0]
    what = 'lower --train-batch-size or --eval-batch-size, or free the GPU'
    print(f'error: not enough memory ({line:.300}); {what}', file=sys.stderr)
    sys.exit(1)
  sys.exit(0)


def end_process(message: str, code: int = 1) -> NoReturn:
  """Ends the process from another thread: the main one is inside TensorFlow, and none wakes it."""
  log.error('error: %s', message)
  sys.stderr.flush()
  os._exit(code)
