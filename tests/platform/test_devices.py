"""The switch of TensorFlow's oneDNN kernels, in processes of their own: it is read once."""

import os
import platform
import subprocess
import sys

import pytest

ASK = """
import os
from cifar10.platform import devices
print(os.environ.get('TF_ENABLE_ONEDNN_OPTS'), devices.described_kernels())
"""
ON = 'oneDNN kernels are on (TF_ENABLE_ONEDNN_OPTS is 1)'
OFF = 'oneDNN kernels are off (TF_ENABLE_ONEDNN_OPTS is 0)'


@pytest.mark.skipif(platform.machine() not in ('x86_64', 'AMD64'), reason='measured on x86 only')
@pytest.mark.parametrize(('given', 'expected'), [(None, f'1 {ON}'), ('0', f'0 {OFF}')])
def test_onednn_is_on_unless_the_user_says_not(given, expected):
  """Also on processors for which TensorFlow leaves it off."""
  environment = {name: value for name, value in os.environ.items() if 'ONEDNN' not in name}
  if given is not None:
    environment['TF_ENABLE_ONEDNN_OPTS'] = given
  result = subprocess.run(
    [sys.executable, '-c', ASK], env=environment, capture_output=True, text=True, check=True
  )
  assert result.stdout.strip() == expected
