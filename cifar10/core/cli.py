"""What all commands share: their parser, and how their process ends."""

import argparse
import contextlib
import difflib
import importlib.metadata
import os
import platform
import re
import signal
import sys
from collections.abc import Callable
from typing import IO, Any, NoReturn

import tqdm

import cifar10
from cifar10.core import gone
from cifar10.core.errors import CommandError, InputError, StorageError, Terminated
from cifar10.core.logs import one_line
from estimator_again import NotTestedError

# Words of the field -> the flag that is meant, where another one is spelt more alike.
_MEANT = {
  '--batch-size': '--train-batch-size',
  '--lr': '--learning-rate',
  '--mixup': '--augmentation',
}

_results: IO[str] | None = None  # Standard output, in a process that keeps it for results.


def path(text: str) -> str:
  """The type of a path that must be given."""
  if not text:
    raise argparse.ArgumentTypeError('it is empty; give a path')
  return text


class Printed(argparse.Action):
  """Prints what a function, its `const`, returns, and ends the process, like --help."""

  def __init__(self, option_strings: list[str], dest: str, const: Callable[..., str], help: str):
    super().__init__(option_strings, dest, 0, const, argparse.SUPPRESS, help=help)

  def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> NoReturn:
    print_result(self.const(parser))
    parser.exit()


def _versions(parser: argparse.ArgumentParser) -> str:
  """Returns 'PROGRAM 1.0.0 (TensorFlow 2.15.1, Python 3.11.7)', without importing TensorFlow."""
  versions = importlib.metadata.version('tensorflow'), platform.python_version()
  return '{} {} (TensorFlow {}, Python {})'.format(parser.prog, cifar10.__version__, *versions)


class OneLineParser(argparse.ArgumentParser):
  """An argument parser that fails like everything else, by an InputError, and knows --version."""

  def __init__(self, **settings: Any):
    super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
    text = 'print the versions of the program, TensorFlow and Python'
    self.add_argument('--version', action=Printed, const=_versions, help=text)

  def print_help(self, file: object = None) -> None:
    print_result(self.format_help().rstrip('\n'))

  def error(self, message: str) -> NoReturn:
    """Raises InputError; of an unknown flag, with what took its place or is probably meant."""
    unknown = re.match(r'(?:unrecognized arguments|ambiguous option): (--[\w-]+)', message)
    flag = unknown[1].replace('_', '-') if unknown else ''
    if flag in gone.FLAGS:
      raise InputError(f'{flag} is gone since version 2: {gone.FLAGS[flag]}')
    known = [each for each in self._option_string_actions if not each.startswith('--no-')]
    meant = [each for each in (_MEANT.get(flag),) if each in known]
    meant += difflib.get_close_matches(flag, known, 1, 0.72)
    raise InputError(f'{message}; {f"did you mean {meant[0]}? " if meant else ""}see --help')


def print_result(line: str) -> None:
  """Prints a line on standard output; raises StorageError if that is a file on a full disk."""
  out = _results or sys.stdout
  # Above a progress bar that the same terminal may show.
  with tqdm.tqdm.external_write_mode(out) if out.isatty() else contextlib.nullcontext():
    try:
      print(line, file=out, flush=True)
    except OSError as error:  # Python would flush what is left once more at the end.
      os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
      if isinstance(error, BrokenPipeError):
        raise
      raise StorageError(f'standard output cannot be written ({error.strerror})') from None


def run_process(main: Callable[[], None]) -> NoReturn:
  """Runs a command's `main` as a process, whose standard output is for results alone.

  SIGTERM and SIGHUP end it as Ctrl-C does, so that what is half written is removed; while a
  training runs, a `SignalMonitor` hears them. In a container the first process hears only signals
  for which it has a handler.
  """

  def end(number: int, frame: object) -> None:
    for each in heard:  # `timeout` sends two, and the second may come later.
      signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(number)

  numbers = (signal.SIGTERM, signal.SIGHUP)
  heard = [each for each in numbers if signal.getsignal(each) is not signal.SIG_IGN]  # `nohup`.
  for number in heard:
    signal.signal(number, end)
  global _results  # noqa: PLW0603
  _results = open(os.dup(1), 'w', encoding='utf-8')  # noqa: SIM115
  os.dup2(2, 1)  # What others print, C++ too, goes to standard error.
  sys.stdout = sys.stderr
  run_command(main)


def run_command(main: Callable[[], None]) -> NoReturn:
  """Runs a command's main function and exits.

  The code is 0 when done, a CommandError's own (2 on an InputError), 130 on Ctrl-C, 141 when nobody
  reads the output any more, 143 on SIGTERM. Any other exception is a bug, with its traceback.
  """
  try:
    main()
  except (CommandError, NotTestedError) as error:
    _end(f'error: {error}', error.code)
  except Terminated as end:
    line = f'ended by {end}; the same command goes on from the last checkpoint'
    _end(line, 128 + signal.Signals[str(end)])  # What a shell reports after that signal.
  except BrokenPipeError:  # As `| head` leaves it.
    sys.exit(128 + signal.SIGPIPE)
  except KeyboardInterrupt as end:  # `run_process` gives it the signal's number.
    [number] = end.args or [signal.SIGINT]
    _end(f'ended by {signal.Signals(number).name}', 128 + number)
  except (OSError, MemoryError) as error:  # Of the last resort: who knows more names it.
    _end(f'error: {"not enough memory" if isinstance(error, MemoryError) else error}', 1)
  except Exception as error:  # TensorFlow's, of a GPU or of what its own allocator refuses.
    _, found, rest = str(error).partition('OOM when allocating')
    if not found:
      raise
    what = 'lower --train-batch-size or --eval-batch-size, or free the GPU'
    _end(f'error: not enough memory ({(found + rest).splitlines()[0]:.300}); {what}', 1)
  sys.exit(0)


def _end(line: str, code: int) -> NoReturn:
  with contextlib.suppress(OSError):  # The disk is full, or nobody reads: the code still counts.
    print(one_line(line), file=sys.stderr)
  sys.exit(code)
