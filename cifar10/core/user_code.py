"""Imports and runs the code of users: sources, networks, callbacks, which may fail in any way."""

import contextlib
import functools
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import cifar10
from cifar10.core.errors import InputError, SourceError
from cifar10.core.logs import one_line

# In the names of files that are nobody's own code.
_NOT_OWN = (f'{cifar10.__path__[0]}/', '<frozen importlib', '/tensorflow/', '/contextlib.py')


class Given(str):
  """The name of an object that a Python call was given, with the object itself."""

  made: Any

  def __deepcopy__(self, memo: object) -> 'Given':
    return self


def given(made: object) -> str:
  """Returns the place in a module by which an object is found again, or else a `Given` name."""
  place = f'{getattr(made, "__module__", "")}:{getattr(made, "__qualname__", "")}'
  with contextlib.suppress(ImportError, AttributeError, ValueError):
    if _found(place) is made:
      return place
  named = Given(f'given:{type(made).__name__}')
  named.made = made
  return named


def _found(place: str) -> Any:
  module, _, path = place.partition(':')
  return functools.reduce(getattr, path.split('.'), importlib.import_module(module))


def imported(flag: str, name: str) -> Any:
  """Imports a flag's 'package.module:name', as `python -m` looks it up: in this folder, too."""
  if isinstance(name, Given):
    return name.made
  if name.startswith('given:'):
    raise InputError(f'{flag} {name} is an object that a call in Python was given; give it again')
  if not {'', os.getcwd()} & set(sys.path):
    sys.path.append(os.getcwd())  # Whichever way the command was started.
  remedy = 'correct it, or run from its folder or with that in PYTHONPATH'
  with others_code(
    lambda said: InputError(f'{flag} {name} cannot be imported: {said}; {remedy}'), None
  ):
    function = _found(name)
  if not callable(function):
    raise InputError(f'{flag} {name} is {function!r:.60}, not a function; name another')
  return function


@contextlib.contextmanager
def others_code(
  fault: Callable[[str], Exception],
  function: object,
  but: tuple[type[Exception], ...] = (SourceError,),
) -> Iterator[None]:
  """A context for code that is not ours, of whose exceptions `fault` makes one of ours.

  `function` is whose code it is; None: a module's, while it is imported. Those of `but` pass.
  """
  try:
    yield
  except BaseException as error:  # It may call sys.exit.
    if isinstance(error, (KeyboardInterrupt, GeneratorExit, *but)):
      raise
    # As the cause, TensorFlow's C++ would read its message, which may be no UTF-8, and crash.
    raise fault(_described(error, function)) from None


def _described(error: BaseException, function: Any) -> str:
  """Describes an exception in one line: type, message, and the line of the user's file."""
  stack = traceback.extract_tb(error.__traceback__)
  frames = [each for each in stack if not any(part in each.filename for part in _NOT_OWN)]
  code = getattr(inspect.unwrap(function), '__code__', None)
  inside = [frame for frame in frames if code and frame.filename == code.co_filename] or frames
  where = f' ({inside[-1].filename}, line {inside[-1].lineno})' if inside else ''
  message = one_line(' '.join(str(error)[:300].split()))
  return f'{type(error).__name__}{": " if message else ""}{message}{where}'
