"""Files behind URLs, on all filesystems of TensorFlow, with Python's errors.

`files.py` loads this module, and with it TensorFlow, for the first URL, and finds its functions by
the names of its own. docs/filesystems.md lists what such a filesystem lacks.
"""

import contextlib
import errno
import functools
import importlib
import io
import os
from collections.abc import Iterator
from typing import IO, Any

from cifar10.core import start_tensorflow
from cifar10.core.errors import InputError
from cifar10.core.files import scheme, writing

_BUFFER_BYTES = 1 << 20
_NUMBERS = {  # All other codes become EIO.
  'NotFoundError': errno.ENOENT,
  'AlreadyExistsError': errno.EEXIST,
  'PermissionDeniedError': errno.EACCES,
  'UnauthenticatedError': errno.EACCES,
  'ResourceExhaustedError': errno.ENOSPC,
}


def exists(path: str) -> bool:
  with _python_errors(path):
    return _gfile(path).exists(path) and (not _gfile(path).isdir(path) or _is_whole(path))


def is_dir(path: str) -> bool:
  # Not `isdir`, which returns False for a place that cannot be reached.
  try:
    with _python_errors(path):
      return _gfile(path).stat(path).is_directory and _is_whole(path)
  except FileNotFoundError:
    return False


def is_file(path: str) -> bool:
  return exists(path) and not is_dir(path)


def signature(path: str) -> tuple[int, int]:
  with _python_errors(path):
    status = _gfile(path).stat(path)
  return status.length, status.mtime_nsec


def names(folder: str) -> list[str]:
  """Returns the names in a folder, [] without the folder; raises OSError if it cannot be listed."""
  try:
    with _python_errors(folder):
      return sorted(name.rstrip('/') for name in _gfile(folder).listdir(folder))
  except FileNotFoundError:  # TensorFlow says that of an unreachable place, too.
    if is_dir(folder):
      raise OSError(errno.EIO, 'cannot be listed', folder) from None
    return []


def _calling(name: str, **settings: Any) -> Any:
  """Returns a function of TensorFlow's with Python's errors."""

  def call(path: str, *more: str) -> None:
    with _python_errors(path):
      getattr(_gfile(path), name)(path, *more, **settings)

  return call


make_folder, remove, remove_folder = map(_calling, ('makedirs', 'remove', 'rmtree'))
move = _calling('rename', overwrite=True)


def overwrite(path: str, content: bytes, *, is_new: bool) -> None:
  """Writes a file atomically; raises OSError, also if it exists and `is_new`, or the reverse."""
  if exists(path) == is_new:
    raise FileExistsError(path) if is_new else FileNotFoundError(path)
  with writing(path) as file:
    file.write(content)


def copy(path: str, new: str) -> None:
  """Copies a file; one of the two may be local; raises OSError."""
  with _python_errors(path):
    _gfile(path if scheme(path) else new).copy(path, new, overwrite=True)


is_named = exists  # URLs have no links.


def opened(path: str) -> IO[bytes]:
  with _python_errors(path):
    file = _gfile(path).GFile(path, 'rb')
    file.size()  # So that a missing file raises now, not at the first read.
  return io.BufferedReader(_Reader(path, file), _BUFFER_BYTES)


class _Reader(io.RawIOBase):
  """TensorFlow's reader with the interface of Python's files."""

  def __init__(self, path: str, file: Any):
    self._path = path
    self._file = file

  def readable(self) -> bool:
    return True

  def seekable(self) -> bool:
    return True

  def readinto(self, buffer: Any) -> int:
    with _python_errors(self._path):
      content = self._file.read(len(buffer))
    buffer[: len(content)] = content
    return len(content)

  def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
    with _python_errors(self._path):
      self._file.seek(offset, whence)
      return self._file.tell()

  def tell(self) -> int:
    with _python_errors(self._path):
      return self._file.tell()

  def close(self) -> None:
    if not self.closed:
      self._file.close()
    super().close()


def _is_whole(path: str) -> bool:
  """Tells whether it is a whole name, not a prefix as 'job/model' of 'job/model.ckpt-1.index'.

  ram:// takes such prefixes for folders.
  """
  folder, name = os.path.split(path.rstrip('/'))
  return scheme(path) != 'ram' or not scheme(folder) or name in names(folder)


def _gfile(path: str) -> Any:
  return _of_scheme(scheme(path))


@functools.cache
def _of_scheme(name: str) -> Any:
  """Returns TensorFlow's file module; raises InputError for an unknown filesystem."""
  start_tensorflow.start()
  import tensorflow as tf  # noqa: PLC0415 - not loaded for local paths

  gfile, reason = tf.io.gfile, ''
  if name not in gfile.get_registered_schemes():
    try:
      importlib.import_module('tensorflow_io')  # It registers more filesystems.
    except Exception as error:  # A missing or incompatible package raises many kinds of errors.
      reason = f' and tensorflow-io cannot be imported ({str(error).partition(chr(10))[0]})'
  known = gfile.get_registered_schemes()
  if name not in known:
    listed = ', '.join(sorted(f'{each}://' for each in known if each))
    remedy = 'run: pip install tensorflow-io, which brings s3://, hdfs:// and others, or '
    raise InputError(
      f'{name}:// is no filesystem that TensorFlow knows (it knows {listed}){reason}; '
      f'{remedy if reason else ""}name another folder'
    )
  return gfile


@contextlib.contextmanager
def _python_errors(path: str) -> Iterator[None]:
  """Raises OSErrors in place of TensorFlow's errors."""
  try:
    yield
  except Exception as error:
    if not type(error).__module__.startswith('tensorflow'):
      raise
    number = _NUMBERS.get(type(error).__name__, errno.EIO)
    message = str(error).partition('\n')[0] or os.strerror(number)
    raise OSError(number, message, path) from error
