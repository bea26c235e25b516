"""Memory and disk that there are: of this machine, and of limits worked out by hand."""

import resource

from cifar10.platform import room


def test_this_machine_has_some_of_both(tmp_path):
  assert 2**26 < room.memory() < 2**50
  assert 0 < room.disk(str(tmp_path)) == room.disk(str(tmp_path / 'not' / 'there'))


def test_the_smallest_limit_counts(tmp_path, monkeypatch):
  limit = tmp_path / 'memory.max'
  monkeypatch.setattr(room, '_LIMITS', (str(limit), str(tmp_path / 'not there')))
  for content, most in [('50000000\n', 50_000_000), ('max\n', 2**50), ('', 2**50)]:
    limit.write_text(content)
    assert room.memory() <= most
    assert (room.memory() == most) == (most == 50_000_000)
  monkeypatch.setattr(resource, 'getrlimit', lambda which: (40_000_000, 40_000_000))
  assert room.memory() == 40_000_000
