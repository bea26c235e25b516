"""The switch of TensorFlow's oneDNN kernels, in processes of their own: it is read once."""

import os
import platform
import re
import subprocess
import sys

import pytest
from checkout import ROOT

from cifar10.core import devices


@pytest.mark.parametrize(('is_on', 'dtype'), [(True, 'bfloat16'), (False, 'float32')])
def test_bfloat16_is_fast_by_onednn_alone(monkeypatch, is_on, dtype):
  monkeypatch.setattr(devices, '_cpuinfo', lambda: 'flags\t\t: avx2 avx512_bf16')
  monkeypatch.setattr(devices._pywrap_util_port, 'IsMklEnabled', lambda: is_on)
  assert devices.fast_dtype(0)[0] == dtype


ASK = """
import os
from cifar10.core import devices
print(os.environ.get('TF_ENABLE_ONEDNN_OPTS'), devices.described_kernels())
"""
ON = 'oneDNN kernels are on (TF_ENABLE_ONEDNN_OPTS is 1)'
OFF = 'oneDNN kernels are off (TF_ENABLE_ONEDNN_OPTS is 0)'


def printed(code, variables):
  """What a process prints that has these of oneDNN's variables, and no others."""
  kept = {name: value for name, value in os.environ.items() if 'ONEDNN' not in name}
  command = [sys.executable, '-c', code]
  return subprocess.check_output(command, cwd=ROOT, env={**kept, **variables}, text=True)


ON_X86 = pytest.mark.skipif(
  platform.machine() not in ('x86_64', 'AMD64'), reason='measured on x86 only'
)


@ON_X86
@pytest.mark.parametrize(
  ('given', 'expected'),
  [(None, f'1 {ON}'), pytest.param('0', f'0 {OFF}', marks=pytest.mark.slow)],
)
def test_onednn_is_on_unless_the_user_says_not(given, expected):
  """Also on processors for which TensorFlow leaves it off."""
  variables = {} if given is None else {'TF_ENABLE_ONEDNN_OPTS': given}
  assert printed(ASK, variables).strip() == expected


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
  output = printed(CONVOLVE, {variable: value, 'ONEDNN_VERBOSE': '1'})
  kernels = re.findall(r',exec,cpu,convolution,([^,]*),', output)
  if value == '0':
    assert kernels == []
  else:
    assert kernels
    assert not [name for name in kernels if 'avx512' in name or 'amx' in name]
