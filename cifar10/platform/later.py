"""TensorFlow, loaded when it is first used and not when it is imported.

A family of networks declares its options beside its layers, in one file. The command line reads all
families' options, and `--help` should not wait seconds for TensorFlow. So these files, and
`model_base.py`, write `from cifar10.platform.later import tf`; everything else imports TensorFlow
itself. What uses `tf` while a file is imported (a decorator, a default) loads it after all.
"""

import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING


def _later(name: str) -> ModuleType:
  """The module, which is loaded when an attribute of it is asked for."""
  if name in sys.modules:
    return sys.modules[name]
  spec = importlib.util.find_spec(name)
  if spec is None or spec.loader is None:
    raise ModuleNotFoundError(f'No module named {name!r}', name=name)
  spec.loader = importlib.util.LazyLoader(spec.loader)
  module = importlib.util.module_from_spec(spec)
  sys.modules[name] = module
  spec.loader.exec_module(module)
  return module


if TYPE_CHECKING:
  import tensorflow as tf
else:
  tf = _later('tensorflow')
