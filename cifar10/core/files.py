"""Files and folders at local paths and, through TensorFlow, behind URLs; files appear whole.

`--job-dir gs://bucket/job` works like `--job-dir job`. Errors are OSErrors in both cases; a URL of
a filesystem that TensorFlow does not know raises InputError. TensorFlow is imported for URLs alone.
"""

import contextlib
import errno
import fnmatch
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

from cifar10.core import start_tensorflow
from cifar10.core.errors import CommandError, InputError, StorageError

_T = TypeVar('_T')
_NUMBERS = {  # Of TensorFlow's errors; all others become EIO.
  'NotFoundError': errno.ENOENT,
  'PermissionDeniedError': errno.EACCES,
  'ResourceExhaustedError': errno.ENOSPC,
}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REMEDIES = {  # TensorFlow's texts are searched in this order.
  **dict.fromkeys(FULL, 'make room'),
  **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), 'allow it'),
  **dict.fromkeys((errno.EIO, errno.ENODEV, errno.ESTALE, errno.ETIMEDOUT), 'mend it'),
}


def is_url(path: str) -> bool:
  """Tells whether a path is a URL of another filesystem: 'gs://bucket/job'."""
  return re.match('[A-Za-z][A-Za-z0-9.]*://', os.fspath(path)) is not None  # As TensorFlow does.


def _gfile(url: str) -> Any:
  """Returns TensorFlow's file module; raises InputError for an unknown filesystem."""
  scheme = url.partition('://')[0]
  start_tensorflow.start()
  from tensorflow.io import gfile  # noqa: PLC0415

  if scheme not in gfile.get_registered_schemes():
    with contextlib.suppress(Exception):  # Incompatible packages raise many kinds of errors.
      import tensorflow_io  # noqa: F401, PLC0415  (it registers more filesystems)
  if scheme not in gfile.get_registered_schemes():
    raise InputError(
      f'{scheme}:// is no filesystem that TensorFlow knows; run: pip install tensorflow-io, which '
      'brings s3://, hdfs:// and others, or name another folder'
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
    raise OSError(number, str(error).partition('\n')[0], path) from error


def _either(local: Callable[..., _T], remote: str, **settings: bool) -> Callable[..., _T]:
  """Returns a function of paths: for URLs tf.io.gfile's, with Python's errors."""

  def call(*paths: str) -> Any:
    for url in filter(is_url, paths):
      with _python_errors(url):
        return getattr(_gfile(url), remote)(*paths, **settings)
    return local(*paths)

  return call


exists = _either(os.path.exists, 'exists')
make_folder = _either(lambda path: os.makedirs(path, exist_ok=True), 'makedirs')
remove = _either(os.remove, 'remove')
remove_folder = _either(shutil.rmtree, 'rmtree')
move = _either(os.replace, 'rename', overwrite=True)  # Within a filesystem.
_copy = _either(shutil.copyfile, 'copy', overwrite=True)
_names = _either(os.listdir, 'listdir')
_status: Callable[[str], Any] = _either(os.stat, 'stat')


def check_no_pattern(path: str, flag: str = 'checkpoint') -> None:
  """Raises InputError for a path of checkpoints that TensorFlow would take for a pattern."""
  if re.search(r'[][*?\\]', path):
    raise InputError(
      f'{flag} {path}: TensorFlow takes [ ] * ? and \\ in the path of a checkpoint for a pattern; '
      'name another folder, and move there what this one has'
    )


def absolute(path: str) -> str:
  """Returns a path that is valid in other working folders, without a '/' at its end."""
  return path.rstrip('/') if is_url(path) else os.path.abspath(path)


def is_dir(path: str) -> bool:
  """Tells whether the path is a folder. Some filesystems have no empty folders."""
  if is_url(path):  # Not TensorFlow's `isdir`: False of what it cannot reach.
    return exists(path) and bool(_status(path).is_directory)
  return os.path.isdir(path)


def is_file(path: str) -> bool:
  """Tells whether the path exists and is not a folder."""
  return exists(path) and not is_dir(path)


def signature(path: str) -> tuple[int, int]:
  """Returns what changes when a file does: its bytes, and its time in nanoseconds.

  On a filesystem without times, such as ram://, the time is 0, and only the size can differ.
  """
  there = _status(path)
  return (there.length, there.mtime_nsec) if is_url(path) else (there.st_size, there.st_mtime_ns)


def matching(folder: str, pattern: str) -> list[str]:
  """Returns the sorted paths in a folder whose names match a pattern; [] without the folder."""
  if is_url(folder) and not is_dir(folder):
    return []
  try:
    names = sorted(name.rstrip('/') for name in _names(folder or os.curdir))
  except (FileNotFoundError, NotADirectoryError):
    return []
  return [os.path.join(folder, name) for name in names if fnmatch.fnmatchcase(name, pattern)]


def copy(path: str, new: str) -> None:
  """Copies a file; the new one appears whole."""
  with replacing(new) as temporary:
    _copy(path, temporary)


def opened(path: str) -> IO[bytes]:
  """Opens a file for reading, with seeks."""
  if is_url(path):
    with _python_errors(path), _gfile(path).GFile(path, 'rb') as remote:
      return io.BytesIO(remote.read())
  return open(path, 'rb')


def read(path: str) -> bytes:
  with opened(path) as file:
    return file.read()


def read_object(path: str) -> dict[str, Any] | None:
  """The JSON object in a file; None where there is none, or something else."""
  with contextlib.suppress(OSError, ValueError, RecursionError):
    content = json.loads(read(path))
    return content if isinstance(content, dict) else None
  return None


def write_text(path: str, text: str) -> None:
  """Writes a UTF-8 file, which appears whole."""
  with writing(path) as file:
    file.write(text.encode())


def json_text(value: Any, **layout: Any) -> str:
  """A value as JSON, with null for NaN and the infinities; `layout` is `indent` and so on."""
  return json.dumps(finite(value), allow_nan=False, **layout)


def finite(value: Any) -> Any:
  """A value of JSON's types with None in place of NaN and the infinities, which JSON lacks."""
  return json.loads(json.dumps(value), parse_constant=lambda name: None)


@contextlib.contextmanager
def writing(path: str) -> Iterator[IO[bytes]]:
  """Opens a file for writing, which gets its name at the end, or is removed on errors."""
  with replacing(path) as temporary, open(temporary, 'wb') as file:
    yield file


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
  """Yields a local name to write to; it replaces `path` at the end, or is removed on errors.

  It lies beside `path`; for a URL, in the folder for temporary files until the end.
  """
  beside = f'{path}.{os.getpid()}.tmp'
  with contextlib.ExitStack() as stack:
    local = beside
    if is_url(path):
      folder = stack.enter_context(tempfile.TemporaryDirectory(prefix='cifar10-'))
      local = os.path.join(folder, os.path.basename(path))
    try:
      yield local
      flush(local)  # Or a power failure can leave the new name with empty content.
      if local != beside:
        _copy(local, beside)
      move(beside, path)
    except BaseException:
      with contextlib.suppress(OSError):
        remove(beside)
      raise


def remove_unfinished(path: str) -> None:
  """Removes what killed processes were writing to replace a file. No other may be writing it."""
  for each in matching(os.path.dirname(path), f'{os.path.basename(path)}.[0-9]*.tmp'):
    remove(each)


def flush(path: str) -> None:
  """Waits until a local file is on the disk; a file behind a URL is where it can be."""
  if not is_url(path):
    with open(path, 'r+b') as file:  # SMB flushes no file that is open for reading alone.
      os.fsync(file.fileno())


@contextlib.contextmanager
def naming_errors(flag: str, path: str, *, is_first: bool = False) -> Iterator[None]:
  """A context that raises StorageError, which names the path, for errors of its files.

  `is_first`: a command writes there for the first time, so that most are the user's mistake, an
  InputError.
  """
  try:
    yield
  except CommandError:  # It says what it is.
    raise
  except Exception as error:
    text = str(error)
    # TensorFlow's have no number, and their text alone tells it.
    told = next((each for each in _REMEDIES if os.strerror(each) in text), 0)
    number, said = getattr(error, 'errno', told), getattr(error, 'strerror', os.strerror(told))
    if is_url(path) and path in text and type(error).__module__.startswith('tensorflow'):
      number, said = errno.EIO, text.partition('\n')[0]
    if is_first and isinstance(error, OSError) and number not in (*FULL, errno.EIO):
      raise InputError(f'{flag} {path} cannot be written ({said}); name another') from error
    if number in _REMEDIES:
      fault = f'cannot be used ({said}); {_REMEDIES[number]}'
    elif _says_missing(error) and path in text and not is_url(path) and not is_dir(path):
      fault = 'has vanished; put it back'
    else:
      raise
    raise StorageError(f'{flag} {path} {fault}, and the same command goes on') from error


def _says_missing(error: Exception) -> bool:
  """Tells whether something was not found; TensorFlow's saver replaces the error that says so."""
  whole = f'{error} {error.__context__}'
  return isinstance(error, FileNotFoundError) or os.strerror(errno.ENOENT) in whole
