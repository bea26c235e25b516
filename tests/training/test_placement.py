"""What the options and the hardware decide together."""

import logging

import pytest
import tensorflow as tf

from cifar10.core import devices
from cifar10.core.errors import InputError
from cifar10.job.run import begin, gpus_to_use, with_dtype
from cifar10.options.hparams import HParams, from_values
from cifar10.options.run_options import RunOptions


@pytest.mark.parametrize('fast', ['float32', 'bfloat16'])
@pytest.mark.parametrize('asked', ['auto', 'float32', 'bfloat16'])
def test_bfloat16_is_taken_as_asked_and_called_slow_where_it_is(asked, fast, monkeypatch, caplog):
  """Whatever this processor is."""
  monkeypatch.setattr(devices, 'fast_dtype', lambda num_gpus: (fast, 'the processor says so'))
  caplog.set_level(logging.INFO)
  taken = with_dtype(from_values({'dtype': asked}), num_gpus=0)
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


def test_a_gpu_that_tensorflow_cannot_use_is_told_of(monkeypatch, caplog):
  """As without the CUDA libraries; a training on the CPU would only be slow."""
  monkeypatch.setattr(devices, 'has_unused_gpu', lambda: True)
  assert gpus_to_use(RunOptions('job'), 0) == 0
  [said] = caplog.messages
  assert said.startswith('this machine has a GPU that TensorFlow cannot use: make install GPU=1')
  with pytest.raises(InputError, match='TensorFlow sees 0; make install GPU=1, or a newer driver'):
    gpus_to_use(RunOptions('job', num_gpus=1), 0)
  caplog.clear()
  assert gpus_to_use(RunOptions('job', num_gpus=0), 0) == 0
  assert gpus_to_use(RunOptions('job'), 1) == 1
  assert caplog.messages == []


@pytest.mark.parametrize(('count', 'default'), [(0, 'CPU'), (1, 'GPU'), (2, 'CPU')])
def test_a_single_gpu_has_the_variables(count, default, monkeypatch, data_dir, tmp_path):
  """Else each step would copy them; --variable-strategy CPU still keeps them on the CPU."""
  monkeypatch.setattr(devices, 'fast_dtype', lambda num_gpus: ('float32', ''))
  monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: [kind] * count)
  for asked, strategy in ((None, default), ('CPU', 'CPU')):
    options = RunOptions(str(tmp_path), data_dir=data_dir, variable_strategy=asked)
    assert begin(HParams(), options).placement[:2] == (count, strategy)
