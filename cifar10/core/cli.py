"""What all commands share: their parser, their names in messages, and how their process ends.

A command is started as a file of the checkout, `python cifar10_main.py`, or as the script that
`pip install .` makes of it, `cifar10-train`. Messages name files, or scripts where one is started.
"""

import argparse
import contextlib
import importlib.metadata
import os
import platform
import re
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import cifar10
from cifar10.core import logs
from cifar10.core.errors import CommandError, InputError, StorageError, Terminated
from cifar10.core.logs import one_line
from estimator_again import NotTestedError

# How a command is started from a checkout, and the script of pyproject.toml.
SCRIPTS = {
  'generate_cifar10_tfrecords.py': 'cifar10-generate',
  'cifar10_main.py': 'cifar10-train',
  '-m cifar10.local_cluster': 'cifar10-cluster',
  '-m cifar10.report': 'cifar10-report',
  '-m cifar10.control': 'cifar10-control',
  '-m cifar10.checkpoint': 'cifar10-checkpoint',
}
_IN_TEXT = re.compile(rf'(?<![\w./-])(?:python )?({"|".join(map(re.escape, SCRIPTS))})\b')


def typed_name() -> str:
  """Returns the command as started: 'cifar10-train', 'cifar10_main.py', 'python -m cifar10.report'.

  argparse itself distinguishes `python -m` from a file only from Python 3.14 on.
  """
  spec = getattr(sys.modules['__main__'], '__spec__', None)
  [path] = sys.argv[:1] or ['']
  if spec is not None and spec.origin == path:
    return f'python -m {spec.name}'
  return os.path.basename(path)


def as_typed(text: str) -> str:
  """Returns a message that names files with the scripts' names if a script was started."""
  if typed_name() not in SCRIPTS.values():
    return text
  return _IN_TEXT.sub(lambda match: SCRIPTS[match[1]], text)


def version() -> str:
  """Returns '0.1.0 (TensorFlow 2.15.1, Python 3.11.7)', without importing TensorFlow."""
  tensorflow = importlib.metadata.version('tensorflow')
  return f'{cifar10.__version__} (TensorFlow {tensorflow}, Python {platform.python_version()})'


def path(text: str) -> str:
  """The type of a path that must be given."""
  if not text:
    raise argparse.ArgumentTypeError('it is empty; give a path')
  return text


class _Version(argparse.Action):
  def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> NoReturn:
    print_result(f'{parser.prog} {version()}')
    parser.exit()


class OneLineParser(argparse.ArgumentParser):
  """An argument parser that fails like everything else, by an InputError, and knows --version."""

  def __init__(self, prog: str | None = None, **settings: Any):
    settings.setdefault('formatter_class', argparse.RawDescriptionHelpFormatter)
    super().__init__(prog or typed_name(), **settings)
    text = 'print the versions of the program, TensorFlow and Python'
    self.add_argument('--version', action=_Version, nargs=0, default=argparse.SUPPRESS, help=text)

  def format_help(self) -> str:
    return as_typed(super().format_help())

  def print_help(self, file: object = None) -> None:
    print_result(self.format_help().rstrip('\n'))

  def error(self, message: str) -> NoReturn:
    raise InputError(f'{message}; see --help')


def print_result(line: str) -> None:
  """Prints a line on standard output; raises StorageError if that is a file on a full disk."""
  try:
    logs.print_line(line)
  except BrokenPipeError:
    raise
  except OSError as error:
    raise StorageError(f'standard output cannot be written ({error.strerror})') from None


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
  """A context that SIGTERM and SIGHUP leave as Ctrl-C does: what is half written is removed."""
  heard: list[int] = []

  def end(number: int, frame: object) -> None:
    heard.append(number)
    if len(heard) == 1:  # `timeout` sends two, and the second may come later.
      raise KeyboardInterrupt

  before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
  for number, handler in before.items():
    if handler is not signal.SIG_IGN:  # As behind `nohup`.
      signal.signal(number, end)
  try:
    yield
  except KeyboardInterrupt:
    if not heard:
      raise
    print(f'ended by {signal.Signals(heard[0]).name}', file=sys.stderr)
    raise SystemExit(128 + heard[0]) from None
  finally:
    for number, handler in before.items():
      signal.signal(number, handler or signal.SIG_DFL)


def run_process(main: Callable[[], None]) -> NoReturn:
  """Runs a command's `main` as a process, whose standard output is for results alone."""
  if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
    # Linux keeps from a container's first process the signals that it has no handler for. This one
    # does what happens to any other process, until a training sets its own.
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
  with logs.output_for_results():
    run_command(main)


def run_command(main: Callable[[], None]) -> NoReturn:
  """Runs a command's main function and exits.

  The code is 0 when done, a CommandError's own (2 on an InputError), 130 on Ctrl-C, 141 when nobody
  reads the output any more, 143 on SIGTERM. Any other exception is a bug, with its traceback.
  """
  try:
    main()
  except CommandError as error:
    _end(as_typed(str(error)), error.code)
  except NotTestedError as error:  # A TensorFlow that the Estimator does not fit to.
    _end(str(error), InputError.code)
  except Terminated as end:
    print(f'ended by {end}; the same command goes on from the last checkpoint', file=sys.stderr)
    sys.exit(end.exit_code)
  except BrokenPipeError:  # As `| head` leaves it.
    sys.exit(128 + signal.SIGPIPE)
  except KeyboardInterrupt:
    print('interrupted', file=sys.stderr)
    sys.exit(130)
  except (OSError, MemoryError) as error:  # Of the last resort: who knows more names it.
    _end('not enough memory' if isinstance(error, MemoryError) else str(error), 1)
  except Exception as error:  # TensorFlow's, of a GPU or of what its own allocator refuses.
    _, found, rest = str(error).partition('OOM when allocating')
    if not found:
      raise
    what = 'lower --train-batch-size or --eval-batch-size, or free the GPU'
    _end(f'not enough memory ({(found + rest).splitlines()[0]:.300}); {what}', 1)
  sys.exit(0)


def _end(message: str, code: int) -> NoReturn:
  print(f'error: {one_line(message)}', file=sys.stderr)
  sys.exit(code)
