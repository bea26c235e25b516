"""What the options and the hardware decide together."""

import logging

import pytest

from cifar10.core import devices
from cifar10.options.hparams import from_values
from cifar10.training import placement


@pytest.mark.parametrize('fast', ['float32', 'bfloat16'])
@pytest.mark.parametrize('asked', ['auto', 'float32', 'bfloat16'])
def test_bfloat16_is_taken_as_asked_and_called_slow_where_it_is(asked, fast, monkeypatch, caplog):
  """Whatever this processor is."""
  monkeypatch.setattr(devices, 'fast_dtype', lambda num_gpus: (fast, 'the processor says so'))
  caplog.set_level(logging.INFO)
  taken = placement.with_dtype(from_values({'dtype': asked}), num_gpus=0)
  assert taken.dtype == (fast if asked == 'auto' else asked)
  said = {
    ('auto', 'float32'): ['--dtype auto is float32: the processor says so'],
    ('auto', 'bfloat16'): ['--dtype auto is bfloat16: the processor says so'],
    ('bfloat16', 'float32'): [
      '--dtype bfloat16 is slow here, on a CPU about a fifth as fast as float32: the processor '
      'says so; --dtype auto would take float32'
    ],
  }
  assert caplog.messages == said.get((asked, fast), [])
