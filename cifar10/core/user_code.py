"""Imports and runs the code of users: sources, networks, callbacks, which may fail in any way."""

import contextlib
import functools
import importlib
import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import cifar10
from cifar10.core.errors import InputError, SourceError

_MOST_SHOWN = 300  # Characters of a message.
_PROGRAM = os.path.join(cifar10.__path__[0], '')
_is_beside_main = False


def find(place: str) -> Any:
  """Imports 'package.module:NAME'; raises ImportError or AttributeError."""
  module, _, path = place.partition(':')
  return functools.reduce(getattr, path.split('.'), importlib.import_module(module))


def imported(flag: str, name: str) -> Any:
  """Imports 'package.module:name', which need not be a part of the program.

  Args:
    flag: the option that names it.
    name: its module is looked up as by `python -m`, in the current folder, too.

  Raises:
    InputError: it cannot be imported, does not exist, or is not callable.
  """
  module_name, _, path = name.partition(':')
  here = os.getcwd()
  if here not in sys.path and '' not in sys.path:
    sys.path.append(here)  # Whichever way the command was started.

  def fault(said: str) -> InputError:
    return InputError(
      f'{flag} {name} cannot be imported: {said}; correct it, or run from its folder or with that '
      'in PYTHONPATH'
    )

  with others_code(fault, None):
    module = importlib.import_module(module_name)
  try:
    function = find(name)
  except AttributeError:
    file = getattr(module, '__file__', module_name)
    raise InputError(f'{flag} {name}: there is no {path} in {file}; name another') from None
  if not callable(function):
    raise InputError(f'{flag} {name} is {function!r:.60}, not a function; name another')
  return function


@contextlib.contextmanager
def others_code(
  fault: Callable[[str], Exception],
  function: Callable[..., Any] | None,
  but: tuple[type[Exception], ...] = (SourceError,),
) -> Iterator[None]:
  """A context for code that is not ours, which leaves the working folder as it was.

  Beside the main thread, which may go to another folder meanwhile, it leaves that to the code.

  Args:
    fault: makes an exception of ours of what `described` says of theirs.
    function: whose code it is; None: a module's, while it is imported.
    but: exceptions that pass.
  """
  here = os.getcwd()
  try:
    yield
  except but:
    raise
  except BaseException as error:
    if isinstance(error, KeyboardInterrupt) and threading.current_thread().name == 'MainThread':
      raise
    raise fault(described(error, function)) from None
  finally:
    if not _is_beside_main:
      os.chdir(here)


def is_beside_main() -> None:
  """Takes note that a call runs in a thread of the user's own, beside the main thread."""
  global _is_beside_main  # noqa: PLW0603
  _is_beside_main = True


def described(error: BaseException, function: Callable[..., Any] | None) -> str:
  """Describes an exception in one line: type, message, and the line of the user's file."""
  frames = list(traceback.extract_tb(error.__traceback__))
  files = {getattr(inspect.unwrap(function), '__code__', None)} if function else set()
  own = {code.co_filename for code in files if code}
  if function is None:  # An error on import: frames of this program and of Python come first.
    frames = [frame for frame in frames if 'importlib' not in frame.filename]
  others = [frame for frame in frames if not frame.filename.startswith(_PROGRAM)]
  inside = (
    [frame for frame in frames if frame.filename in own]
    or [frame for frame in others if f'{os.sep}tensorflow{os.sep}' not in frame.filename]
    or others
  )
  where = f' ({inside[-1].filename}, line {inside[-1].lineno})' if inside else ''
  try:
    message = str(error)
  except BaseException:
    message = 'it has no message that can be shown'
  # What a terminal or TensorFlow could not show: control characters, halves of surrogate pairs.
  shown = ''.join(each if each.isprintable() else ' ' for each in message[:_MOST_SHOWN])
  message = ' '.join(shown.split())
  return f'{type(error).__name__:.80}{": " if message else ""}{message}{where}'
