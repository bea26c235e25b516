"""Memory and cores that there are: of this machine, and of limits worked out by hand."""

import os

import pytest

from cifar10.core import devices, limits


def test_this_machine_has_some():
  assert 2**26 < limits.memory() < 2**50


@pytest.fixture
def tree(tmp_path, monkeypatch):
  """Control groups of a made-up machine; returns what writes a group's files, by their names."""
  monkeypatch.setattr(limits, '_TREE', str(tmp_path))
  own = tmp_path / 'own'
  own.write_bytes(
    b'8:memory:/slurm/job:7\n6:pids:/../..\n5:cpuset:/elsewhere\n4:cpu,cpuacct:/slurm/job:7\n'
    b'1:cpu:/\xff\n0::/user.slice/a session\n'
  )
  monkeypatch.setattr(limits, '_OF_THIS_PROCESS', str(own))

  def write(group, files):
    (tmp_path / group).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
      (tmp_path / group / name).write_text(content)

  return write


@pytest.mark.parametrize(
  ('group', 'name'),
  [
    ('', 'memory.max'),
    ('user.slice', 'memory.max'),
    ('user.slice/a session', 'memory.max'),
    ('memory', 'memory.limit_in_bytes'),
    ('memory/slurm/job:7', 'memory.limit_in_bytes'),
  ],
)
def test_the_smallest_limit_counts(tree, group, name):
  for content, most in [('50000000\n', 50_000_000), ('max\n', 2**50), ('', 2**50)]:
    tree(group, {name: content})
    assert limits.memory() <= most
    assert (limits.memory() == most) == (most == 50_000_000)


@pytest.mark.parametrize(
  ('groups', 'cores'),
  [
    ({'': {'cpu.max': 'max 100000\n'}}, 8),
    ({'': {'cpu.max': '250001 100000\n'}}, 3),  # Part of a core is one that can be used.
    ({'cpu': {'cpu.cfs_quota_us': '200000\n', 'cpu.cfs_period_us': '50000\n'}}, 4),
    ({'user.slice': {'cpu.max': '200000 100000\n'}, '': {'cpu.max': '500000 100000\n'}}, 2),
    ({'cpu/slurm/job:7': {'cpu.cfs_quota_us': '300000\n', 'cpu.cfs_period_us': '100000\n'}}, 3),
    ({'elsewhere': {'cpu.max': '100000 100000\n'}}, 8),  # No group of this process.
  ],
)
def test_a_containers_processor_time_counts(tree, monkeypatch, groups, cores):
  """Of eight cores: by version 2's file, by version 1's two, in any group around, and by none."""
  for group, files in groups.items():
    tree(group, files)
  monkeypatch.setattr(os, 'sched_getaffinity', lambda process: set(range(8)), raising=False)
  assert limits.cores() == cores
  threads = 0 if cores == 8 else cores  # 0: what TensorFlow takes by itself, or TF_NUM_... says.
  config = devices.session_config()
  assert config.intra_op_parallelism_threads == config.inter_op_parallelism_threads == threads
  given = devices.session_config(num_intra_threads=5, num_inter_threads=6)
  assert (given.intra_op_parallelism_threads, given.inter_op_parallelism_threads) == (5, 6)
