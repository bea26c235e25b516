"""Finds a user's own network for --network module:NAME: a family, or a function that is one."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, ClassVar

from cifar10.core import start_tensorflow
from cifar10.core.errors import CommandError, InputError
from cifar10.core.option import declarations
from cifar10.core.user_code import imported, others_code
from cifar10.options.family import Family

_FLAG = '--network'
_KERAS = ('keras', 'tf_keras')
_METHODS = ('__init__', 'describe', 'group')  # Of a user's family: `__init__` calls `check`.
NO_KERAS = (
  'Keras models cannot be built in these graphs; name a function (images, is_training, '
  'num_classes) -> logits that calls tf.compat.v1.get_variable and tf.nn'
)


def load(place: str) -> type[Family]:
  """Returns the family that 'module:NAME' names, or a family made of the function it names.

  Raises:
    InputError: the name cannot be imported, or is neither a family nor a function.
  """
  start_tensorflow.start()  # First, because the user's module may import it and print lines.
  named = imported(_FLAG, place)
  mro = inspect.getmro(named if isinstance(named, type) else type(named))
  if any(each.__module__.partition('.')[0] in _KERAS for each in mro):
    raise InputError(f'{_FLAG} {place}: {NO_KERAS}')
  if not isinstance(named, type):
    _check_parameters(place, named)
    return _family_of(place, named)
  if not issubclass(named, Family):
    raise InputError(
      f'{_FLAG} {place} is the class {named.__name__}; name a subclass of cifar10.Family, or a '
      'function'
    )
  _check_family(place, named)
  own = {'PLACE': place, '__module__': named.__module__}
  guarded = {name: _guarded(place, getattr(named, name)) for name in _METHODS}
  return type(named.__name__, (named,), {**own, **guarded})


def _guarded(place: str, method: Callable[..., Any]) -> Callable[..., Any]:
  """Returns a method of a user's own family whose errors are one line."""

  @functools.wraps(method)
  def call(*args: Any, **given: Any) -> Any:
    with _others_code(place):
      return method(*args, **given)

  return call


def _others_code(place: str) -> contextlib.AbstractContextManager[None]:
  return others_code(
    lambda said: InputError(f'{_FLAG} {place} fails: {said}'), None, but=(CommandError,)
  )


def _check_family(place: str, named: type[Family]) -> None:
  missing = [name for name in ('NAME', 'TITLE') if not hasattr(named, name)]
  missing += sorted(named.__abstractmethods__)
  if named.NETWORK is None:
    missing.append('NETWORK')
  if missing:
    raise InputError(f'{_FLAG} {place} has no {", ".join(missing)}; see docs/python.md, and add it')
  if not re.fullmatch(r'[A-Za-z0-9.][\w.-]*', named.NAME, re.ASCII):
    raise InputError(
      f'{_FLAG} {place} has the NAME {named.NAME!r}, a scope of variables; use letters, digits, '
      '_, - and .'
    )
  undeclared = any(isinstance(value, dataclasses.Field) for value in vars(named).values())
  if undeclared or not dataclasses.is_dataclass(named):
    raise InputError(
      f'{_FLAG} {place} is no dataclass; put @dataclasses.dataclass(frozen=True) before it'
    )
  with _others_code(place):  # Types may be names of nothing.
    declarations(named)


def _check_parameters(place: str, function: Callable[..., Any]) -> None:
  try:
    signature = inspect.signature(function)
  except ValueError:  # A function written in C has no signature.
    return
  try:
    signature.bind(None, False, 10)
  except TypeError:
    raise InputError(
      f'{_FLAG} {place} has the parameters {signature}; it must have (images, is_training, '
      'num_classes)'
    ) from None


def _family_of(place: str, function: Callable[..., Any]) -> type[Family]:
  @dataclasses.dataclass(frozen=True)
  class OwnNetwork(Family):
    """Without options."""

    NAME: ClassVar[str] = 'network'  # Not the function's name: another name can start with it.
    PLACE: ClassVar[str] = place
    TITLE: ClassVar[str] = place
    FUNCTION: ClassVar[Any] = staticmethod(function)

    def describe(self) -> str:
      return place

  return OwnNetwork
