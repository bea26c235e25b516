"""Declares options: dataclass fields with type, default, help, choices and check.

A frozen dataclass derived from `Options` declares its fields with `option`. The command-line flags,
their help, the refusal of wrong values, the job's configuration and docs/flags.md all come from
this declaration.
"""

import argparse
import dataclasses
import json
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cifar10.core.errors import InputError

# TensorFlow holds most numbers in 32 bits.
_LARGEST = 1 << 31  # Of whole numbers.
_LARGEST_FLOAT = 3.4e38
# The types that a flag can have, alone or with | None, and their names.
_KINDS: dict[Any, str] = {
  int: f'a whole number below {_LARGEST:,}',
  float: 'a finite number',
  str: 'text in UTF-8, without NUL',
  bool: 'True or False',
  tuple[int, ...]: 'whole numbers with commas between',
  tuple[float, ...]: 'finite numbers with commas between',
  tuple[str, ...]: 'texts',
}
_BOOLS = {'true': True, '1': True, 'yes': True, 'false': False, '0': False, 'no': False}
_OPTIONAL = {kind | None: kind for kind in _KINDS}


class Check(NamedTuple):
  """The accepted values of the right type, and the message for others."""

  accepts: Callable[[Any], bool]
  remedy: str  # 'must be 1 or more'


def at_least(low: float) -> Check:
  return Check(lambda value: value >= low, f'must be {low:g} or more')


def between(low: float, high: float) -> Check:
  return Check(lambda value: low <= value <= high, f'must be {low:g} to {high:g}')


def is_address(text: str) -> bool:
  """Tells whether this is host:port, an IPv6 address in brackets, the port not 0."""
  match = re.fullmatch(r'(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})', text, re.ASCII)
  return match is not None and 0 < int(match[1]) < 65536


def _is_pattern(text: str) -> bool:
  try:
    return bool(re.compile(text))
  except (re.error, RecursionError, OverflowError):
    return False


_NAME = r'[^\W\d]\w*(\.[^\W\d]\w*)*'
BELOW_ONE = Check(lambda value: 0 <= value < 1, 'must be at least 0 and below 1')
POSITIVE = Check(lambda value: value > 0, 'must be above 0')
FUNCTION = Check(
  lambda text: bool(re.fullmatch(f'{_NAME}:{_NAME}', text)),
  'must be package.module:function (docs/python.md)',
)
PATTERN = Check(_is_pattern, 'must be a regular expression')


def option(default: Any, help: str | None, check: Check | None = None, **declared: Any) -> Any:
  """Returns a field of an options class; `declared` are fields of `Declaration`."""
  return dataclasses.field(default=default, metadata={'help': help, 'check': check, **declared})


class Options:
  """Base of the frozen dataclasses that declare options; an instance has valid values only."""

  def __post_init__(self) -> None:
    """Raises InputError if a value has the wrong type, is no choice, or is out of range."""
    for declared in declarations(type(self)):
      declared.require(getattr(self, declared.name))
    self.check()

  def check(self) -> None:
    """Raises InputError for values that contradict each other; subclasses override it."""


class Declaration(NamedTuple):
  name: str
  kind: Any  # One of _KINDS.
  is_optional: bool  # Accepts None, too.
  default: Any
  help: str | None  # None: it has no flag, config.json alone has it.
  check: Check | None = None
  choices: tuple[Any, ...] = ()
  metavar: str | None = None  # As --help shows a value.
  fixed: bool = False  # Cannot change once the job exists: its checkpoints would not fit.
  # Decides which variables the optimizer has: no job turns it on or off, or changes its function.
  switch: bool = False
  needs: str = ''  # The name of the option without which this one has no effect.

  def parsed(self, text: str) -> Any:
    """Returns the value of what is typed; raises ArgumentTypeError if it is of another kind."""
    try:
      if self.kind is bool:
        return _BOOLS[text.lower()]
      if typing.get_origin(self.kind) is not tuple:
        return self.kind(text)
      number = typing.get_args(self.kind)[0]
      return tuple(map(number, text.split(','))) if text not in ('', 'none') else ()
    except (KeyError, ValueError):
      raise argparse.ArgumentTypeError(f'{text!r} is not {_KINDS[self.kind]}') from None

  def require(self, value: object) -> None:
    """Raises InputError unless the option accepts the value."""
    if value is None and self.is_optional:
      return
    if not _is_a(value, self.kind):
      remedy = f'must be {_KINDS[self.kind]}'
    elif self.choices and value not in self.choices:
      remedy = f'must be one of {", ".join(map(str, self.choices))}'
    elif self.check and not self.check.accepts(value):
      remedy = self.check.remedy
    else:
      return
    shown = json.dumps(value) if isinstance(value, str) else as_text(value)
    raise InputError(f'{flag_of(self.name)} is {shown}: it {remedy}')


def declarations(*classes: type) -> tuple[Declaration, ...]:
  """Returns the options that classes and their bases declare, in order.

  Raises InputError for one of a type that no flag can have.
  """
  found = []
  for cls in classes:
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
      if 'help' not in field.metadata:
        continue
      name, hint = field.name, hints[field.name]
      kind = _OPTIONAL.get(hint, hint)
      if kind not in _KINDS:
        raise InputError(f'option {name} has the type {hint}; give it int, float, str or bool')
      found.append(Declaration(name, kind, kind is not hint, field.default, **field.metadata))
  return tuple(found)


def names(*classes: type) -> set[str]:
  """Returns the names of all options of these classes."""
  return {declared.name for declared in declarations(*classes)}


def values(options: object) -> dict[str, Any]:
  """Returns the values of an instance's own options, by name."""
  return {each.name: getattr(options, each.name) for each in declarations(type(options))}


def picked(given: Mapping[str, Any], *classes: type) -> dict[str, Any]:
  """Returns those of the given values that are options of these classes, JSON's lists as tuples."""
  own = names(*classes)
  found = {name: value for name, value in given.items() if name in own}
  return {name: tuple(it) if isinstance(it, list) else it for name, it in found.items()}


def flag_of(name: str) -> str:
  """Returns the flag of an option: '--learning-rate'."""
  return f'--{name.replace("_", "-")}'


def as_flag(name: str, value: object) -> str:
  """Returns an option as it is given on the command line: '--lr-values 1,0.1'."""
  return flag_of(name) if value is True else f'{flag_of(name)} {as_text(value)}'


def as_text(value: object) -> str:
  """Returns a value as it is typed on the command line: '1,0.1' for (1.0, 0.1)."""
  if isinstance(value, (tuple, list)):
    return ','.join(map(as_text, value))
  return f'{value:g}' if isinstance(value, float) and value == float(f'{value:g}') else str(value)


def _is_a(value: object, kind: Any) -> bool:
  if typing.get_origin(kind) is tuple:
    return isinstance(value, tuple) and all(_is_a(each, typing.get_args(kind)[0]) for each in value)
  if kind is bool or isinstance(value, bool):
    return kind is bool and isinstance(value, bool)
  if kind is float:
    return isinstance(value, (int, float)) and abs(value) <= _LARGEST_FLOAT  # NaN is not.
  if kind is int:
    return isinstance(value, int) and abs(value) < _LARGEST
  # Python has bytes that are no UTF-8 as what cannot be encoded; NUL ends a path.
  is_utf8 = isinstance(value, str) and value.encode('utf-8', 'ignore').decode() == value
  return is_utf8 and '\0' not in str(value)
