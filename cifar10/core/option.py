"""Declares options: dataclass fields with type, default, help, choices and check.

A frozen dataclass derived from `Options` declares its fields with `option`. The command-line flags,
their help, the refusal of wrong values, the job's configuration and docs/flags.md all come from
this declaration.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cifar10.core.errors import InputError

_ADDRESS = re.compile(
  r'(?:[\w-]{1,63}(?:\.[\w-]{1,63})*\.?|\[(?P<ipv6>[^]]+)\]):(?P<port>[0-9]{1,6})', re.ASCII
)
# TensorFlow holds most numbers in 32 bits.
_LARGEST = 1 << 31  # Of whole numbers.
_LARGEST_FLOAT = 3.4e38


class Check(NamedTuple):
  """The accepted values of the right type, and the message for others."""

  accepts: Callable[[Any], bool]
  remedy: str  # 'must be 1 or more'


class Option(NamedTuple):
  """The declaration of an option, without name, type and default."""

  help: str
  choices: tuple[Any, ...] = ()
  check: Check | None = None
  metavar: str | None = None
  fixed: bool = False  # Cannot change once the job exists: its checkpoints would not fit.
  switch: bool = False  # Cannot change between 0 and not 0: this selects the optimizer's variables.
  needs: str = ''  # The name of the option without which this one has no effect.


def option(default: Any, help: str, **declared: Any) -> Any:
  """Returns a field of an options class with default, help and the other fields of `Option`."""
  return dataclasses.field(default=default, metadata={'option': Option(help, **declared)})


def at_least(low: float, unit: str = '') -> Check:
  """Accepts `low` or more; `unit` starts with a space: ' (all cores)'."""
  return Check(lambda value: value >= low, f'must be {low:g}{unit} or more')


def above(low: float, unit: str = '') -> Check:
  """Accepts more than `low`."""
  return Check(lambda value: value > low, f'must be above {low:g}{unit}')


def between(low: float, high: float, unit: str = '') -> Check:
  """Accepts `low` to `high`, both included."""
  return Check(lambda value: low <= value <= high, f'must be {low:g} to {high:g}{unit}')


def _is_address(text: str) -> bool:
  match = _ADDRESS.fullmatch(text)
  if not match or not 0 < int(match['port']) < 65536:
    return False
  return not match['ipv6'] or _reads(ipaddress.IPv6Address, match['ipv6'])


def _reads(read: Callable[[str], Any], text: str) -> bool:
  """Tells whether `read` accepts the text and finds something in it."""
  try:
    return bool(read(text))
  except (ValueError, re.error, RecursionError, OverflowError):
    return False


BELOW_ONE = Check(lambda value: 0 <= value < 1, 'must be at least 0 and below 1')
_NAME = r'[^\W\d]\w*(\.[^\W\d]\w*)*'
FUNCTION = Check(
  lambda text: bool(re.fullmatch(f'{_NAME}:{_NAME}', text)), 'must be package.module:function'
)
ADDRESS = Check(
  _is_address, 'must be HOST:PORT, with a port of 1 to 65535, an IPv6 address in brackets'
)
PATTERN = Check(lambda text: _reads(re.compile, text), 'must be a regular expression')


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
  """An option of an options class."""

  name: str
  kind: Any  # int, float, str, bool or tuple[...] of them
  is_optional: bool  # Accepts None, too.
  default: Any
  option: Option

  @property
  def flag(self) -> str:
    """Returns the flag: '--learning-rate'."""
    return '--' + self.name.replace('_', '-')

  def require(self, value: Any) -> None:
    """Raises InputError unless the option accepts the value."""
    if value is None and self.is_optional:
      return
    if not _is_a(value, self.kind):
      raise InputError(f'{self.flag} is {_shown(value)}: it must be {described_kind(self.kind)}')
    if self.option.choices and value not in self.option.choices:
      listed = ', '.join(map(str, self.option.choices))
      raise InputError(f'{self.flag} is {_shown(value)}: it must be one of {listed}')
    if self.option.check and not self.option.check.accepts(value):
      raise InputError(f'{self.flag} is {_shown(value)}: it {self.option.check.remedy}')


def declarations(cls: type) -> tuple[Declaration, ...]:
  """Returns the options that a class and its bases declare, in order."""
  kinds = typing.get_type_hints(cls)
  return tuple(
    Declaration(field.name, *_kind(field.name, kinds[field.name]), field.default, declared)
    for field in dataclasses.fields(cls)
    if (declared := field.metadata.get('option'))
  )


def names(*classes: type) -> set[str]:
  """Returns the names of all options of these classes."""
  return {declared.name for cls in classes for declared in declarations(cls)}


def values(options: Any) -> dict[str, Any]:
  """Returns the values of an instance's own options, by name."""
  return {
    declared.name: getattr(options, declared.name) for declared in declarations(type(options))
  }


def picked(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
  """Returns those of the given values that are options of this class."""
  own = names(cls)
  return {name: value for name, value in given.items() if name in own}


def described_kind(kind: Any) -> str:
  """Describes a type: 'a whole number', 'numbers with commas between'."""
  if kind == tuple[str, ...]:
    return 'texts'
  if typing.get_origin(kind) is tuple:
    whole = typing.get_args(kind)[0] is int
    return f'{"whole" if whole else "finite"} numbers with commas between'
  return {
    int: f'a whole number below {_LARGEST:,}',
    float: 'a finite number',
    str: 'text in UTF-8, without NUL',
    bool: 'True or False',
  }[kind]


def _kind(name: str, hint: Any) -> tuple[Any, bool]:
  """Returns (int, True) for int | None; raises InputError for a type that no flag can have."""
  is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
  kinds = [each for each in typing.get_args(hint) if each is not types.NoneType] if is_union else []
  kind = kinds[0] if len(kinds) == 1 else hint
  is_tuple = typing.get_origin(kind) is tuple
  of_items = set(typing.get_args(kind)) - {...} if is_tuple else {kind}
  if len(of_items) != 1 or not of_items <= {int, float, str, *([] if is_tuple else [bool])}:
    raise InputError(
      f'option {name} has the type {hint}; give it int, float, str, bool or tuple[int, ...], alone '
      'or with | None'
    )
  return kind, is_union


def _is_a(value: Any, kind: Any) -> bool:
  if typing.get_origin(kind) is tuple:
    return isinstance(value, tuple) and all(_is_a(each, typing.get_args(kind)[0]) for each in value)
  if kind is float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and abs(value) <= _LARGEST_FLOAT  # NaN is not.
  if kind is int:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST
  if kind is str:  # Python has bytes that are no UTF-8 as what cannot be encoded; NUL ends a path.
    is_utf8 = isinstance(value, str) and value.encode('utf-8', 'ignore').decode() == value
    return is_utf8 and '\0' not in value
  return isinstance(value, kind)


def _shown(value: Any) -> str:
  """Returns text as JSON has it, so that it differs from numbers, and lists as typed."""
  if isinstance(value, tuple):
    return ','.join(str(each) or '""' for each in value)
  return json.dumps(value) if isinstance(value, str) else str(value)
