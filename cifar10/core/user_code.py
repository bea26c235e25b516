"""The doors for code of users: imports and runs what may fail in any way.

A door is an option whose value is 'module:function': --network, --source, --validation-source,
--optimizer, --schedule, --augmentation, --callback. Python calls take the objects themselves.
"""

import contextlib
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import cifar10
from cifar10.core.errors import InputError, SourceError
from cifar10.core.logs import one_line

# In the names of files that are nobody's own code.
_NOT_OWN = [f'{cifar10.__path__[0]}/', '<frozen importlib', '/tensorflow/python/']
_NOT_OWN += ['/contextlib.py', '/pkgutil.py']
_GIVEN = 'given:'  # Begins the names of objects that no module has.


class Given(str):
  """The name of an object that a Python call was given, with the object itself."""

  made: Any

  def __deepcopy__(self, memo: object) -> 'Given':
    return self


def given(made: object) -> str:
  """Returns the place in a module by which an object is found again, or else a `Given` name."""
  place = f'{getattr(made, "__module__", "")}:{getattr(made, "__qualname__", "")}'
  with contextlib.suppress(ImportError, AttributeError, ValueError):
    if pkgutil.resolve_name(place) is made:
      return place
  named = Given(f'{_GIVEN}{type(made).__name__}')
  named.made = made
  return named


def require_given(flag: str, name: object) -> None:
  """Raises InputError for the name of an object, in config.json, that only a Python call gives."""
  if isinstance(name, str) and name.startswith(_GIVEN):
    raise InputError(f'{flag} {name} is an object that a call in Python was given; give it again')


def imported(flag: str, name: str) -> Any:
  """Imports a flag's 'package.module:name', as `python -m` looks it up: in this folder, too."""
  if isinstance(name, Given):
    return name.made
  require_given(flag, name)
  if not {'', os.getcwd()} & set(sys.path):
    sys.path.append(os.getcwd())  # Whichever way the command was started.
  remedy = 'correct it, or run from its folder or with that in PYTHONPATH'
  if name.startswith('__main__:'):
    remedy = 'the script or notebook that holds it can go on with this job'
  with others_code(
    lambda said: InputError(f'{flag} {name} cannot be imported: {said}; {remedy}'), None
  ):
    function = pkgutil.resolve_name(name)
  if not callable(function):
    raise InputError(f'{flag} {name} is {function!r:.60}, not a function; name another')
  return function


def called(flag: str, name: str, call: Callable[..., Any] | None = None) -> Callable[..., Any]:
  """Returns `call`, or the function that a flag names, so that it raises InputError for failures.

  Raises InputError if that cannot be imported.
  """
  call = call or imported(flag, name)
  return others_code(lambda said: InputError(f'{flag} {name} fails: {said}'), call)(call)


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
