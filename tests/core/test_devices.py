"""oneDNN's switch, which a process reads once; and the memory and cores that there are."""

import os
import platform
import re

import checkout
import pytest

from cifar10.core import devices, limits


@pytest.mark.parametrize(('is_on', 'dtype'), [(True, 'bfloat16'), (False, 'float32')])
def test_bfloat16_is_fast_by_onednn_alone(monkeypatch, is_on, dtype):
  monkeypatch.setattr(devices, '_cpuinfo', lambda: 'flags\t\t: avx2 avx512_bf16')
  monkeypatch.setattr(devices._pywrap_util_port, 'IsMklEnabled', lambda: is_on)
  assert devices.fast_dtype(0)[0] == dtype


ON_X86 = pytest.mark.skipif(
  platform.machine() not in ('x86_64', 'AMD64'), reason='measured on x86 only'
)


@ON_X86
def test_onednn_is_on_unless_the_user_says_not():
  """Also on processors for which TensorFlow leaves it off; `make test-kernels` says not."""
  environment = {name: text for name, text in os.environ.items() if 'ONEDNN' not in name}
  code = "import cifar10, os; print(os.environ['TF_ENABLE_ONEDNN_OPTS'])"
  assert checkout.python('-c', code, env=environment, must_succeed=True).stdout == '1\n'
  given = os.environ['TF_ENABLE_ONEDNN_OPTS']
  state = f'{"off" if given == "0" else "on"} (TF_ENABLE_ONEDNN_OPTS is {given})'
  assert devices.described_kernels() == f'oneDNN kernels are {state}'


CONVOLVE = """
from cifar10.core import devices
import tensorflow as tf
tf.nn.conv2d(tf.ones([8, 32, 32, 16]), tf.ones([3, 3, 16, 16]), 1, 'SAME')
"""


@pytest.mark.slow
@ON_X86
@pytest.mark.parametrize(
  ('variable', 'value'), [('ONEDNN_MAX_CPU_ISA', 'AVX2'), ('TF_ENABLE_ONEDNN_OPTS', '0')]
)
def test_other_kernels_are_in_force_where_they_are_asked_for(variable, value):
  """As `make test-kernels` asks for them: what oneDNN itself says that it ran."""
  environment = {name: text for name, text in os.environ.items() if 'ONEDNN' not in name}
  environment |= {variable: value, 'ONEDNN_VERBOSE': '1'}
  output = checkout.python('-c', CONVOLVE, env=environment, must_succeed=True).stdout
  kernels = re.findall(r',exec,cpu,convolution,([^,]*),', output)
  assert bool(kernels) == (value != '0')
  assert not [name for name in kernels if 'avx512' in name or 'amx' in name]


# Memory and cores: of limits worked out by hand.


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
    ('user.slice/a session', 'memory.max'),
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
  ],
)
def test_a_containers_processor_time_counts(tree, monkeypatch, groups, cores):
  """Of eight cores: by version 2's file, by version 1's two, in any group around, and by none."""
  for group, files in groups.items():
    tree(group, files)
  monkeypatch.setattr(os, 'sched_getaffinity', lambda process: set(range(8)), raising=False)
  assert limits.cores() == cores
  kinds = ('TF_NUM_INTRAOP_THREADS', 'TF_NUM_INTEROP_THREADS')
  for name in kinds:
    monkeypatch.setenv(name, '')
    monkeypatch.delenv(name)
  limits.set_threads()  # Of eight TensorFlow makes a thread for each by itself.
  assert [os.environ.get(name) for name in kinds] == [None if cores == 8 else str(cores)] * 2
  limits.set_threads(intra=5)
  assert [os.environ.get(name) for name in kinds] == ['5', None if cores == 8 else str(cores)]
  config = devices.session_config(3, 2)
  assert (config.device_count, config.allow_soft_placement) == ({'CPU': 3, 'GPU': 2}, True)
  found = config.intra_op_parallelism_threads, config.inter_op_parallelism_threads
  assert found == (5, 0 if cores == 8 else cores)
