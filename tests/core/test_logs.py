"""What people see on standard error."""

import pytest

from cifar10.core.logs import format_duration


@pytest.mark.parametrize(
  ('seconds', 'text'),
  [
    (0, '0 s'),
    (59, '59 s'),
    (60, '1 min'),
    (90, '2 min'),
    (3600, '1 h 0 min'),
    (5400, '1 h 30 min'),
  ],
)
def test_durations(seconds, text):
  assert format_duration(seconds) == text
