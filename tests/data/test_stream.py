"""Splits that a graph reads through a `Server`."""

import pytest

from cifar10.data import stream
from cifar10.data.python_source import PythonSource


def test_a_half_read_split_is_in_nobodys_way():
  """As a training that has ended leaves it in a data worker; a `Flow` has one reader at a time."""
  source = PythonSource('given_sources:long_flow')
  server = stream.Server(lambda split, num_splits: source.chunks(10))
  for handle in (server(-1, 0, 1)[0], server(-1, 0, 1)[0]) * 2:
    assert len(server(handle, 0, 1)[2]) == 512


@pytest.mark.parametrize('most', [1, 3])
def test_the_split_not_read_for_longest_is_ended(most):
  closed = []

  def read(split, num_splits):
    try:
      yield from PythonSource('given_sources:shards').chunks(10, split, num_splits, most=1)
    finally:
      closed.append(split)

  server = stream.Server(read, most)
  handles = []
  for split in range(3 * most):
    handles.append(server(-1, split, 9)[0])
    # The first one stays, if there may be others, since it is read again and again.
    for handle in {handles[0], handles[-1]} if most > 1 else handles[-1:]:
      assert len(server(handle, 0, 9)[2]) == 1
  assert not len(server(handles[1], 0, 9)[2])
  assert closed == ([0, 1] if most == 1 else [1, 2, 3, 4, 5, 6])
