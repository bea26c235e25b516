"""Options, each declared once: a field with its type, default, help, choices and check.

A frozen dataclass derived from `Options` declares its fields with `option`. The command-line flags,
their help, the refusal of wrong values, a job dir's configuration and docs/flags.md all come from
this declaration.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from cifar10.core import parts
from cifar10.core.errors import InputError

_ADDRESS = re.compile(
  r'(?:[\w-]{1,63}(?:\.[\w-]{1,63})*\.?|\[(?P<ipv6>[^]]+)\]):(?P<port>[0-9]{1,6})', re.ASCII
)
_LARGEST = 1 << 31  # Of whole numbers: TensorFlow holds most of them in 32 bits.


class Check(NamedTuple):
  """Which values of the right type are accepted, and what to say of the others."""

  accepts: Callable[[Any], bool]
  remedy: str  # 'must be 1 or more'


class Option(NamedTuple):
  """All that is declared of an option beside its name, type and default."""

  help: str
  choices: tuple[Any, ...] = ()
  check: Check | None = None
  metavar: str | None = None
  fixed: bool = False  # Cannot change once the job exists: its checkpoints fit no other value.
  switch: bool = False  # Zero or not is fixed: it decides which variables the optimizer keeps.
  part: str = ''  # The part of the program (core/parts.py) without which there is no such option.

  @property
  def is_there(self) -> bool:
    """Whether the program has the part that it belongs to."""
    return not self.part or self.part in parts.PARTS


def option(default: Any, help: str, **declared: Any) -> Any:
  """The field of an options class: its default, its help, and what else `Option` has."""
  return dataclasses.field(default=default, metadata={'option': Option(help, **declared)})


def at_least(low: float, unit: str = '') -> Check:
  """`low` or more; `unit` with its space: ' (all cores)'."""
  return Check(lambda value: value >= low, f'must be {low:g}{unit} or more')


def above(low: float, unit: str = '') -> Check:
  """More than `low`."""
  return Check(lambda value: value > low, f'must be above {low:g}{unit}')


def between(low: float, high: float, unit: str = '') -> Check:
  """From `low` to `high`, both included."""
  return Check(lambda value: low <= value <= high, f'must be {low:g} to {high:g}{unit}')


def at_most(high: float) -> Check:
  """`high` or less; what else a value must be, the class checks."""
  return Check(lambda value: value <= high, f'must be {high:g} or less')


def below_one() -> Check:
  """At least 0 and below 1: a share."""
  return Check(lambda value: 0 <= value < 1, 'must be at least 0 and below 1')


def is_command() -> Check:
  """A command line with its arguments, as a shell would split it."""
  return Check(lambda text: _reads(shlex.split, text), 'must be a command, its quotes closed')


def is_function() -> Check:
  """A Python function by its name."""
  name = r'[^\W\d]\w*(\.[^\W\d]\w*)*'
  return Check(
    lambda text: bool(re.fullmatch(f'{name}:{name}', text)), 'must be package.module:function'
  )


def is_address() -> Check:
  """A host and a port."""
  return Check(_is_address, 'must be HOST:PORT, an IPv6 address in brackets')


def _is_address(text: str) -> bool:
  import ipaddress  # noqa: PLC0415  (few options are addresses)

  found = _ADDRESS.fullmatch(text)
  if not found or not 0 < int(found['port']) < 65536:
    return False
  return not found['ipv6'] or _reads(ipaddress.IPv6Address, found['ipv6'])


def is_pattern() -> Check:
  """A regular expression of Python's."""
  return Check(lambda text: _reads(re.compile, text), 'must be a regular expression')


def _reads(read: Callable[[str], Any], text: str) -> bool:
  """Whether there is something in the text, as this reads it."""
  try:
    return bool(read(text))
  except (ValueError, re.error, RecursionError, OverflowError):
    return False


class Options:
  """Base of the frozen dataclasses that declare options. No instance holds a value it refuses."""

  def __post_init__(self) -> None:
    """Raises InputError for a value of the wrong type, not among the choices, or out of range."""
    for declared in declarations(type(self)):
      declared.require(getattr(self, declared.name))
    self.check()

  def check(self) -> None:
    """Raises InputError for values that do not fit each other; for subclasses."""


class Declaration(NamedTuple):
  """One option of an options class."""

  name: str
  kind: Any  # int, float, str, bool or tuple[...] of them
  is_optional: bool  # None is a value, too.
  default: Any  # dataclasses.MISSING: it must be given.
  option: Option

  @property
  def flag(self) -> str:
    """'--learning-rate'"""
    return '--' + self.name.replace('_', '-')

  def require(self, value: Any) -> None:
    """Raises InputError unless the value is one that this option can have."""
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
  """The options that a class declares, its bases' among them, in their order.

  Options of parts that the program is without are left out: they keep their defaults.
  """
  kinds = typing.get_type_hints(cls)
  return tuple(
    Declaration(field.name, *_kind(kinds[field.name]), field.default, field.metadata['option'])
    for field in dataclasses.fields(cls)
    if 'option' in field.metadata and field.metadata['option'].is_there
  )


def names(*classes: type) -> set[str]:
  """All names of the options that these classes declare."""
  return {declared.name for cls in classes for declared in declarations(cls)}


def values(options: Any) -> dict[str, Any]:
  """The values of an instance's own options, by name."""
  return {
    declared.name: getattr(options, declared.name) for declared in declarations(type(options))
  }


def picked(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
  """Those of the given values that are this class's options."""
  own = names(cls)
  return {name: value for name, value in given.items() if name in own}


def from_json(classes: Collection[type], config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
  """The options of these classes that a JSON object has; JSON has lists for tuples."""
  for declared in (each for cls in classes for each in declarations(cls)):
    if declared.name in config:
      value = config[declared.name]
      is_tuple = typing.get_origin(declared.kind) is tuple and isinstance(value, list)
      yield declared.name, tuple(value) if is_tuple else value


def described_kind(kind: Any) -> str:
  """A type for people: 'a whole number', 'numbers with commas between'."""
  if kind == tuple[str, ...]:
    return 'texts'
  if typing.get_origin(kind) is tuple:
    whole = typing.get_args(kind)[0] is int
    return f'{"whole" if whole else "finite"} numbers with commas between'
  return {
    int: f'a whole number below {_LARGEST:,}',
    float: 'a finite number',
    str: 'text in UTF-8',
    bool: 'True or False',
  }[kind]


def _kind(hint: Any) -> tuple[Any, bool]:
  """int | None -> int, True."""
  if isinstance(hint, types.UnionType):
    [kind] = [each for each in typing.get_args(hint) if each is not types.NoneType]
    return kind, True
  return hint, False


def _is_a(value: Any, kind: Any) -> bool:
  if typing.get_origin(kind) is tuple:
    return isinstance(value, tuple) and all(_is_a(each, typing.get_args(kind)[0]) for each in value)
  if kind is float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and math.isfinite(value)
  if kind is int:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST
  if kind is str:  # Python has bytes that are no UTF-8 as what cannot be encoded.
    return isinstance(value, str) and value.encode('utf-8', 'ignore').decode() == value
  return isinstance(value, kind)


def _shown(value: Any) -> str:
  """As JSON where that tells text from numbers, else as it is."""
  return json.dumps(value) if isinstance(value, str) else str(value)
