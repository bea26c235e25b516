"""Memory, disk and cores that there are: of this machine, and of limits worked out by hand."""

import os
import resource

import pytest

from cifar10.core import limits, sessions
from cifar10.data.build import synthetic


def test_this_machine_has_some_of_both(tmp_path):
  assert 2**26 < limits.memory() < 2**50
  free = synthetic.free_disk(str(tmp_path))
  assert 0 < free == synthetic.free_disk(str(tmp_path / 'not' / 'there'))


def test_the_smallest_limit_counts(tmp_path, monkeypatch):
  limit = tmp_path / 'memory.max'
  monkeypatch.setattr(limits, '_LIMITS', (str(limit), str(tmp_path / 'not there')))
  for content, most in [('50000000\n', 50_000_000), ('max\n', 2**50), ('', 2**50)]:
    limit.write_text(content)
    assert limits.memory() <= most
    assert (limits.memory() == most) == (most == 50_000_000)
  monkeypatch.setattr(resource, 'getrlimit', lambda which: (40_000_000, 40_000_000))
  assert limits.memory() == 40_000_000


@pytest.mark.parametrize(
  ('contents', 'cores'),
  [
    (['max 100000\n'], 8),
    (['300000 100000\n'], 3),
    (['250000 100000\n'], 3),  # Part of a core is one that can be used.
    (['10000 100000\n'], 1),
    (['1600000 100000\n'], 8),
    (['-1\n', '100000\n'], 8),
    (['200000\n', '50000\n'], 4),
    ([], 8),
  ],
)
def test_a_containers_processor_time_counts(tmp_path, monkeypatch, contents, cores):
  """Of eight cores: by version 2's file, by version 1's two, and by none."""
  paths = [str(tmp_path / str(number)) for number in range(len(contents))]
  for path, content in zip(paths, contents):
    with open(path, 'w', encoding='ascii') as file:
      file.write(content)
  monkeypatch.setattr(limits, '_QUOTAS', (tuple(paths), (str(tmp_path / 'not there'),)))
  monkeypatch.setattr(os, 'sched_getaffinity', lambda process: set(range(8)), raising=False)
  assert limits.cores() == cores
  threads = 0 if cores == 8 else cores  # 0: what TensorFlow takes by itself, or TF_NUM_... says.
  config = sessions.session_config()
  assert config.intra_op_parallelism_threads == config.inter_op_parallelism_threads == threads
  given = sessions.session_config(num_intra_threads=5, num_inter_threads=6)
  assert (given.intra_op_parallelism_threads, given.inter_op_parallelism_threads) == (5, 6)
