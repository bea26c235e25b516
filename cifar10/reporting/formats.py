"""Formats numbers and values for reports."""

from typing import Any

from cifar10.reporting.history import is_number
from cifar10.reporting.stats import Interval

NONE = '\u2013'  # A dash, for unknown values.


_SPLITS = {'train': 'training split', 'validation': 'validation', 'eval': 'test'}


def split(split: str) -> str:
  """Returns the name of a split in a report; 'other' for an unknown split."""
  return _SPLITS.get(split, 'other')


def percent(rate: Any) -> str:
  """Formats 0.9162 as '91.62 %'."""
  return f'{100 * rate:.2f} %' if is_number(rate) else NONE


def probability(value: float) -> str:
  """Formats 0.9162 as '91.62 %', and what would round to zero as '< 0.01 %'."""
  return '< 0.01 %' if value < 0.00005 else percent(value)


def percent_range(interval: Interval) -> str:
  """Formats an interval as '91.06 to 92.15 %'; NONE if its bounds are unknown."""
  if not is_number(interval.low):
    return NONE
  return f'{100 * interval.low:.2f} to {100 * interval.high:.2f} %'


def number(value: Any) -> str:
  """Formats 0.31234 as '0.3123'."""
  return f'{value:.4g}' if is_number(value) else NONE


def option(value: Any) -> str:
  """Formats an option's value as its flag takes it: [1.0, 0.1] as '1,0.1'."""
  if value is None:
    return 'none'
  if isinstance(value, bool):
    return 'yes' if value else 'no'
  if isinstance(value, (list, tuple)):
    return ','.join(map(option, value)) or 'none'
  if isinstance(value, float):
    return f'{value:g}'
  return text(value)


def text(value: Any) -> str:
  """Returns a value as UTF-8 text, even if it is a path whose bytes are not UTF-8."""
  return str(value).encode('utf-8', 'backslashreplace').decode('utf-8')
