"""Declared options: what is accepted, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cifar10.core.errors import InputError
from cifar10.core.option import BELOW_ONE, Options, at_least, between, declarations, option, values


@dataclasses.dataclass(frozen=True)
class Made(Options):
  """One option of each kind."""

  count: int = option(1, 'a count', at_least(1))
  rate: float = option(0.5, 'a rate')
  part: float = option(0.0, 'a part', BELOW_ONE)
  pixels: int = option(4, 'pixels', between(0, 32))
  kind: str = option('a', 'a kind', choices=('a', 'b'))
  is_on: bool = option(False, 'a switch')
  factors: tuple[float, ...] = option((1.0,), 'factors')
  limit: int | None = option(None, 'a limit', at_least(2))
  inner: object = None  # No option.


def test_accepts_what_is_declared():
  given = {'count': 1, 'rate': 3, 'part': 0, 'pixels': 32, 'kind': 'b', 'limit': 2}
  assert values(Made(**given)) == {**values(Made()), **given}
  assert list(values(Made()))[-3:] == ['is_on', 'factors', 'limit']


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    ({'count': 0}, '--count is 0: it must be 1 or more'),
    ({'count': '1'}, '--count is "1": it must be a whole number'),
    ({'count': 1 << 31}, '--count is 2147483648: it must be a whole number'),
    ({'rate': float('nan')}, '--rate is nan: it must be a finite number'),
    ({'rate': False}, '--rate is False: it must be a finite number'),
    ({'part': 1}, '--part is 1: it must be at least 0 and below 1'),
    ({'pixels': 33}, '--pixels is 33: it must be 0 to 32'),
    ({'kind': 'A'}, '--kind is "A": it must be one of a, b'),
    ({'kind': 'a\0'}, '--kind is "a\\u0000": it must be text in UTF-8, without NUL'),
    ({'is_on': 1}, '--is-on is 1: it must be True or False'),
    ({'factors': 1.0}, '--factors is 1: it must be finite numbers with commas between'),
    ({'limit': 1}, '--limit is 1: it must be 2 or more'),
  ],
)
def test_refuses(given, message):
  with pytest.raises(InputError) as error:
    Made(**given)
  assert str(error.value).startswith(message)


@pytest.mark.parametrize('hint', [int | str, list[int], Any])
def test_another_type_is_refused(hint):
  made = dataclasses.make_dataclass('Made', [('width', hint, option(3, 'a width'))])
  with pytest.raises(
    InputError, match=r'^option width has the type .*; give it int, float, str or '
  ):
    declarations(made)
