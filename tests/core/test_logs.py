"""What people see on standard error."""

import io
import os

import pytest

from cifar10.core import logs
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


def test_a_pipe_that_is_full_and_does_not_block_loses_lines():
  """As a terminal is that another program has switched so: a log is no reason to end."""
  reader, writer = os.pipe()
  os.set_blocking(writer, False)
  raw = logs._Deaf(writer, 'w')
  with io.TextIOWrapper(io.BufferedWriter(raw), line_buffering=True) as stream:
    for number in range(20_000):  # 2 MB, more than a pipe holds.
      print(number, 'x' * 100, file=stream)
  with open(reader, 'rb') as file:
    came = file.read()
  assert came.startswith(b'0 xxx')
  assert len(came) < 2_000_000
