"""How a report writes numbers and values."""

from typing import Any

from cifar10.reporting.stats import Interval

NONE = '\u2013'  # A dash, for unknown values.


def split(name: str) -> str:
  """Returns the name of a split in a report."""
  return {'train': 'training split', 'eval': 'test'}.get(name, name)


def percent(rate: float | None) -> str:
  """Formats 0.9162 as '91.62 %'."""
  return NONE if rate is None else f'{100 * rate:.2f} %'


def rate(interval: Interval | None) -> tuple[str, str]:
  """Formats a rate and its interval as '91.62 %' and '91.06 to 92.15 %'."""
  if interval is None:
    return NONE, NONE
  return percent(interval.value), f'{100 * interval.low:.2f} to {percent(interval.high)}'


def number(value: float | None) -> str:
  """Formats 0.31234 as '0.3123'."""
  return NONE if value is None else f'{value:.4g}'


def option(value: Any) -> str:
  """Formats an option's value as its flag takes it: [1.0, 0.1] as '1,0.1'."""
  if isinstance(value, bool):
    return 'yes' if value else 'no'
  if isinstance(value, (list, tuple)):
    return ','.join(map(option, value)) or 'none'
  if isinstance(value, float):
    return f'{value:g}'
  return 'none' if value is None else str(value)
