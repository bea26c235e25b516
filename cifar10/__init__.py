"""CIFAR-10 ResNets on tf.estimator: records, input pipeline, towers, model function.

From Python: `train`, `make_experiment`, `evaluate`, `predict`, `export`, `load` and others: api.py.
"""

import importlib
import os
import platform
from typing import Any

__version__ = '2.0.0.dev0'  # Also of the package: pyproject.toml reads it here.

# TensorFlow reads the switch once, on import, and turns its oneDNN kernels on by itself only for
# processors with AVX512_VNNI, AVX512_BF16, AVX_VNNI or AMX. With AVX2 alone they are about twice as
# fast as its own kernels, too (docs/results.md#settled). A value that the user has set wins.
if platform.machine() in ('x86_64', 'AMD64'):
  os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '1')

_PUBLIC = {  # What `cifar10.NAME` is, and its module, loaded when it is asked for.
  **dict.fromkeys(
    ('convert', 'train', 'make_experiment', 'evaluate', 'predict', 'export', 'load'), 'api'
  ),
  **dict.fromkeys(('InputError', 'CallbackError', 'Terminated'), 'core.errors'),
  'Family': 'options.families',
  'Callback': 'callbacks.base',
  # The names of TensorFlow's old example (docs/estimator.md).
  'get_model_fn': 'training.model_fn',
  'input_fn': 'data.input_pipeline',
  'Cifar10DataSet': 'data.input_pipeline',
  'ResNetCifar10': 'networks.resnet',
  'local_device_setter': 'training.towers',
  'ExamplesPerSecondHook': 'callbacks.progress',
}


def __getattr__(name: str) -> Any:
  if name not in _PUBLIC:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  importlib.import_module(f'{__name__}.core.start_tensorflow').start()
  return getattr(importlib.import_module(f'{__name__}.{_PUBLIC[name]}'), name)


def __dir__() -> list[str]:
  return sorted({*globals(), *_PUBLIC})
