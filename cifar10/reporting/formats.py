"""How a report writes numbers and values."""

from typing import Any

from cifar10.reporting.history import is_number
from cifar10.reporting.stats import Interval

NONE = '\u2013'  # A dash: not known.


_SPLITS = {'train': 'training split', 'validation': 'validation', 'eval': 'test'}


def split(split: str) -> str:
  """The name of a split in a report; 'other' for an unknown one."""
  return _SPLITS.get(split, 'other')


def percent(rate: Any) -> str:
  """0.9162 -> '91.62 %'"""
  return f'{100 * rate:.2f} %' if is_number(rate) else NONE


def probability(value: float) -> str:
  """0.9162 -> '91.62 %'; '< 0.01 %' for one that would round to zero."""
  return percent(value) if value >= 0.00005 else '< 0.01 %'


def percent_range(interval: Interval) -> str:
  """'91.06 to 92.15 %'; NONE where the bounds are not known."""
  if not is_number(interval.low):
    return NONE
  return f'{100 * interval.low:.2f} to {100 * interval.high:.2f} %'


def number(value: Any) -> str:
  """0.31234 -> '0.3123'"""
  return f'{value:.4g}' if is_number(value) else NONE


def number_range(interval: Interval) -> str:
  """'0.3012 to 0.3234'"""
  return f'{interval.low:.4f} to {interval.high:.4f}'


def option(value: Any) -> str:
  """The value of an option as a flag takes it: [1.0, 0.1] -> '1,0.1'."""
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
  """A value as UTF-8 text: the bytes of a path need not be UTF-8."""
  return str(value).encode('utf-8', 'backslashreplace').decode('utf-8')
