"""Imports TensorFlow when it is first used, and hides the lines that it prints on import.

A family of networks declares its options beside its layers, in one file. The command line reads all
families' options, and `--help` should not wait seconds for TensorFlow. So these files, and
`model_base.py`, use `from cifar10.core.lazy_tf import tf`; all others import TensorFlow directly.
Any use of `tf` while a file is imported (a decorator, a default) loads it after all.
"""

import atexit
import contextlib
import functools
import gc
import importlib.util
import os
import re
import shutil
import string
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

from cifar10.core import limits
from cifar10.core.errors import InputError, MisfitError, StorageError, interrupted_later

_OF_PATTERNS = re.compile(r'[\\*?[]')  # Characters that TensorFlow's patterns give a meaning.


def _later(name: str) -> ModuleType:
  """Returns a module that is loaded when one of its attributes is used."""
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


_importing = threading.RLock()


def import_tensorflow(verbose: bool = False) -> None:
  """Imports TensorFlow, and shows what its C++ code wrote meanwhile only if the import fails.

  Newer releases write some lines while they are loaded, before they read any setting; `verbose`
  shows them. Raises InputError where there is not enough memory.
  """
  # A second thread would use what is imported so far, and take the first one's file for the
  # standard error to restore.
  with _importing:
    _import_once(verbose)


@functools.cache
def _import_once(verbose: bool) -> None:
  if not verbose:
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')  # For what it prints after its import.
  if 'grpc_proxy' not in os.environ:
    # Without this list gRPC connects to tasks through the proxy for HTTP, and they wait in vain. It
    # leaves the proxy out for hosts whose names end with an entry, and every name ends with one.
    endings = ','.join(string.ascii_lowercase + string.digits + '.-_:')
    os.environ.update(no_grpc_proxy=endings)
  if 'tensorflow.python' in sys.modules:
    take_names_literally()
    return
  if limits.room() is not None:
    from cifar10.core import little_memory  # noqa: PLC0415  (few have such a limit)

    if said := little_memory.shortage():
      raise InputError(said)
  try:
    tempfile.gettempdir()
  except FileNotFoundError as error:  # TensorFlow needs one, too.
    raise StorageError(f'{error.strerror}; name a folder in TMPDIR') from None
  with tempfile.TemporaryFile() as output, interrupted_later(), _no_collection():
    try:
      with contextlib.nullcontext() if verbose else standard_error_to(output):
        import tensorflow  # noqa: F401, PLC0415
    except BaseException:
      repeat(output)
      raise
  take_names_literally()


@functools.cache
def take_names_literally() -> None:
  """Makes TensorFlow accept checkpoint folders such as 'lr[0.1]', which it takes for patterns.

  Each path of a checkpoint that TensorFlow takes for a pattern passes one of these three functions,
  as their last argument. Two end in C++ code that matches the path with the files and then opens
  the path itself: there is no way to escape it, so that code is given a link to the folder.
  """
  from tensorflow.python.lib.io import file_io  # noqa: PLC0415
  from tensorflow.python.training import py_checkpoint_reader, saver  # noqa: PLC0415

  reader = py_checkpoint_reader.CheckpointReader
  places = ((file_io, 'get_matching_files'), (saver.Saver, 'restore'), (reader, '__init__'))
  for place, name in places:
    setattr(place, name, _by_link(getattr(place, name)))
  saver.Saver.restore = _naming_misfits(saver.Saver.restore)


def _by_link(function: Callable[..., Any]) -> Callable[..., Any]:
  @functools.wraps(function)
  def call(*arguments: Any, **named: Any) -> Any:
    *others, path = (*arguments, *named.values())
    return function(*others, _without_patterns(path))

  return call


def _naming_misfits(restore: Callable[..., Any]) -> Callable[..., Any]:
  """Saver.restore with a MisfitError for what TensorFlow says in twenty lines."""

  @functools.wraps(restore)
  def call(saver: Any, sess: Any, save_path: str) -> None:  # Its names: they may be given.
    try:
      _check_shapes(saver._var_list, save_path)  # The one difference that TensorFlow lets pass.
      restore(saver, sess, save_path)
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
      # The line before the operation's name; those above it say where the operation was made.
      said = re.search(r'(.+)\n\t \[\[', str(error))
      raise MisfitError(save_path, said[1] if said else str(error).partition('\n')[0]) from error

  return call


def _check_shapes(variables: Any, path: str) -> None:
  there = tf.compat.v1.train.NewCheckpointReader(path).get_variable_to_shape_map()
  if not isinstance(variables, dict):
    variables = {each.name.partition(':')[0]: each for each in variables or ()}
  for name, variable in variables.items():
    if not hasattr(variable, 'shape'):  # Another object that is saved, a table for example.
      continue
    shape = variable.shape.as_list()
    if there.get(name, shape) != shape:
      raise MisfitError(path, f'it has {name} of {there[name]}, not {shape}')


def _without_patterns(path: Any) -> Any:
  """Returns a checkpoint's path, through a link if its folder's name has pattern characters."""
  folder, name = os.path.split(os.fsdecode(path or ''))
  if not _OF_PATTERNS.search(folder):
    return path
  return os.path.join(_link_to(os.path.abspath(folder)), name)


@functools.cache
def _link_to(folder: str) -> str:
  """Returns a link, in a folder of its own, that exists as long as this process."""
  parent = tempfile.mkdtemp(prefix='cifar10-')
  atexit.register(shutil.rmtree, parent, ignore_errors=True)
  link = os.path.join(parent, 'folder')
  os.symlink(folder, link)
  return link


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
  """Turns the garbage collector off, and exempts all new objects from later collections.

  An import makes a million objects that stay, and each collection would visit them all. The little
  garbage of an import stays, too.
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


def repeat(output: IO[bytes], but: tuple[bytes, ...] = ()) -> None:
  """Writes the lines to standard error, except those that contain an entry of `but`."""
  output.seek(0)
  for line in output:
    if not any(part in line for part in but):
      os.write(2, line)
