"""TensorFlow loaded when it is first used, and without the lines that it prints about itself.

A family of networks declares its options beside its layers, in one file. The command line reads all
families' options, and `--help` should not wait seconds for TensorFlow. So these files, and
`model_base.py`, write `from cifar10.core.lazy_tf import tf`; everything else imports TensorFlow
itself. What uses `tf` while a file is imported (a decorator, a default) loads it after all.
"""

import contextlib
import functools
import gc
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from types import ModuleType
from typing import IO, TYPE_CHECKING


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


@functools.cache
def import_tensorflow() -> None:
  """Imports TensorFlow, and shows what its C++ code wrote meanwhile only if the import fails.

  Newer releases write some lines while they are loaded, before they read any setting.
  """
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')  # For what TensorFlow prints after its import.
  if 'tensorflow.python' in sys.modules:
    return
  with tempfile.TemporaryFile() as said:
    try:
      with standard_error_to(said), _no_collection():
        import tensorflow  # noqa: F401, PLC0415
    except BaseException:
      repeat(said)
      raise


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
  """Turns the garbage collector off, and exempts what was made meanwhile from later collections.

  An import makes a million objects that stay, and each collection would look at all of them. What
  little garbage it makes stays, too.
  """
  was_on = gc.isenabled()
  gc.disable()
  try:
    yield
    gc.freeze()
  finally:
    if was_on:
      gc.enable()


@contextlib.contextmanager
def standard_error_to(file: IO[bytes]) -> Iterator[None]:
  """Redirects the process's standard error, to which C++ writes without `sys.stderr`."""
  sys.stderr.flush()
  kept = os.dup(2)
  os.dup2(file.fileno(), 2)
  try:
    yield
  finally:
    os.dup2(kept, 2)
    os.close(kept)


def repeat(said: IO[bytes], but: tuple[bytes, ...] = ()) -> None:
  """Writes the lines to standard error, except those that contain one of `but`."""
  said.seek(0)
  for line in said:
    if not any(part in line for part in but):
      os.write(2, line)
