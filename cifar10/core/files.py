"""Files and folders at local paths and, through TensorFlow, behind URLs; files appear whole.

`--job-dir gs://bucket/job` works like `--job-dir job`. Errors are OSErrors in both cases; a URL of
a filesystem that TensorFlow does not know raises InputError. TensorFlow is imported for URLs alone.
"""

import contextlib
import errno
import fnmatch
import functools
import io
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import IO, Any

from cifar10.core import start_tensorflow
from cifar10.core.errors import CommandError, InputError, StorageError

_SCHEME = re.compile(r'([A-Za-z][A-Za-z0-9.]*)://')  # As TensorFlow reads it.
_NUMBERS = {  # Of TensorFlow's errors; all others become EIO.
  'NotFoundError': errno.ENOENT,
  'AlreadyExistsError': errno.EEXIST,
  'PermissionDeniedError': errno.EACCES,
  'UnauthenticatedError': errno.EACCES,
  'ResourceExhaustedError': errno.ENOSPC,
}


def scheme(path: str) -> str:
  """Returns 'gs' for 'gs://bucket/job'; '' for a local path."""
  match = _SCHEME.match(os.fspath(path))  # A user's program may give a pathlib.Path.
  return match[1] if match else ''


def is_url(path: str) -> bool:
  """Tells whether a path is a URL of another filesystem: 'gs://bucket/job'."""
  return bool(scheme(path))


def check_shared(flag: str, path: str) -> None:
  """Raises InputError if each process of a cluster would see a folder of its own."""
  if scheme(path) == 'ram':
    raise InputError(
      f'{flag} {path} lies in the memory of one process; name a folder that all tasks see'
    )


def check_no_pattern(path: str, flag: str = 'checkpoint') -> None:
  """Raises InputError for a path of checkpoints that TensorFlow would take for a pattern."""
  if re.search(r'[][*?\\]', path):
    raise InputError(
      f'{flag} {path}: TensorFlow takes [ ] * ? and \\ in the path of a checkpoint for a pattern; '
      'name another folder, and move there what this one has'
    )


def absolute(path: str) -> str:
  """Returns a path that is valid in other working folders, without a '/' at its end."""
  if is_url(path):
    return path.rstrip('/') if path.rstrip('/') != f'{scheme(path)}:' else path
  return os.path.abspath(path)


def is_inside(path: str, folder: str) -> bool:
  """Tells whether the path is the folder or lies in it."""
  if is_url(path) or is_url(folder):
    return (absolute(path) + '/').startswith(absolute(folder) + '/')
  there = os.path.realpath(folder)
  return os.path.commonpath([there, os.path.realpath(path)]) == there


def exists(path: str) -> bool:
  """Tells whether the path exists."""
  return _remote('exists', path) if is_url(path) else os.path.exists(path)


def is_dir(path: str) -> bool:
  """Tells whether the path is a folder. Some filesystems have no empty folders."""
  if is_url(path):  # Not TensorFlow's `isdir`: False of what it cannot reach.
    return exists(path) and _remote('stat', path).is_directory
  return os.path.isdir(path)


def is_file(path: str) -> bool:
  """Tells whether the path exists and is not a folder."""
  return exists(path) and not is_dir(path) if is_url(path) else os.path.isfile(path)


def is_replaceable(path: str) -> bool:
  """Tells whether a local path is a file itself, no folder, link or device, or does not exist."""
  return not os.path.lexists(path) or (os.path.isfile(path) and not os.path.islink(path))


def size(path: str) -> int:
  """Returns the size of a file in bytes."""
  return signature(path)[0]


def signature(path: str) -> tuple[int, int]:
  """Returns what changes when a file does: its bytes, and its time in nanoseconds.

  On a filesystem without times, such as ram://, the time is 0, and only the size can differ.
  """
  if is_url(path):
    status = _remote('stat', path)
    return status.length, status.mtime_nsec
  local = os.stat(path)
  return local.st_size, local.st_mtime_ns


def identity(folder: str) -> tuple[int, int]:
  """Returns numbers that identify a local folder under any name; (0, 0) for a URL."""
  if is_url(folder):
    return 0, 0
  status = os.stat(folder)
  return status.st_dev, status.st_ino


def matching(folder: str, pattern: str) -> list[str]:
  """Returns the sorted paths in a folder whose names match a pattern; [] without the folder.

  Raises:
    OSError: the folder cannot be listed or reached.
  """
  names: list[str] = []
  with contextlib.suppress(FileNotFoundError, NotADirectoryError):
    if not is_url(folder):
      names = os.listdir(folder or os.curdir)
    elif is_dir(folder):
      names = [name.rstrip('/') for name in _remote('listdir', folder)]
  return [
    os.path.join(folder, name) for name in sorted(names) if fnmatch.fnmatchcase(name, pattern)
  ]


def make_folder(path: str) -> None:
  """Makes a folder, and the missing ones above it."""
  if is_url(path):
    _remote('makedirs', path)
  else:
    os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
  """Removes a file."""
  if is_url(path):
    _remote('remove', path)
  else:
    os.remove(path)


def remove_folder(path: str) -> None:
  """Removes a folder with its content."""
  if is_url(path):
    _remote('rmtree', path)
  else:
    shutil.rmtree(path)


def move(path: str, new: str) -> None:
  """Renames a file within its filesystem."""
  if is_url(path):
    _remote('rename', path, new, overwrite=True)
  else:
    os.replace(path, new)


def copy(path: str, new: str) -> None:
  """Copies a file; the new one appears whole."""
  with _named_at_the_end(new) as temporary:
    if is_url(path) or is_url(new):
      _remote('copy', path, temporary, overwrite=True)
    else:
      shutil.copyfile(path, temporary)


def opened(path: str) -> IO[bytes]:
  """Opens a file for reading, with seeks."""
  return io.BytesIO(read(path)) if is_url(path) else open(path, 'rb')


def read(path: str) -> bytes:
  """All of a file."""
  if is_url(path):
    with _python_errors(path), _gfile(scheme(path)).GFile(path, 'rb') as remote:
      return remote.read()
  with open(path, 'rb') as file:
    return file.read()


def read_text(path: str) -> str:
  """All of a file in UTF-8; raises UnicodeDecodeError, which is a ValueError."""
  return read(path).decode()


def read_object(path: str) -> dict[str, Any] | None:
  """The JSON object in a file; None where there is none, or something else."""
  try:
    content = json.loads(read_text(path))
  except (OSError, ValueError, RecursionError):
    return None
  return content if isinstance(content, dict) else None


def write_text(path: str, text: str) -> None:
  """Writes a UTF-8 file, which appears whole."""
  with writing(path) as file:
    file.write(text.encode())


def json_text(value: Any, **layout: Any) -> str:
  """A value as JSON, which lacks NaN and the infinities: null stands for them.

  Args:
    value: what `json` can write.
    **layout: `indent` and so on, as `json.dumps` has them.
  """
  return json.dumps(finite(value), allow_nan=False, **layout)


def finite(value: Any) -> Any:
  """A value with None in place of NaN and the infinities, which JSON lacks."""
  if isinstance(value, float):
    return value if math.isfinite(value) else None
  if isinstance(value, Mapping):
    return {key: finite(each) for key, each in value.items()}
  if isinstance(value, (list, tuple)):
    return [finite(each) for each in value]
  return value


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
  if not is_url(path):
    with _named_at_the_end(path) as temporary:
      yield temporary
    return
  with tempfile.TemporaryDirectory(prefix='cifar10-') as folder:
    local = os.path.join(folder, os.path.basename(path))
    yield local
    copy(local, path)


def remove_unfinished(path: str) -> None:
  """Removes the temporary files beside a file that killed processes were writing.

  No other process may be writing the file.
  """
  folder, name = os.path.split(path)
  temporary = re.compile(rf'{re.escape(name)}\.[0-9]+\.tmp')  # As `_named_at_the_end` calls it.
  for each in matching(folder, '*.tmp'):
    if temporary.fullmatch(os.path.basename(each)):
      remove(each)


@contextlib.contextmanager
def _named_at_the_end(path: str) -> Iterator[str]:
  """Yields a name beside `path`, whose file replaces `path` at the end or is removed on errors."""
  temporary = f'{path}.{os.getpid()}.tmp'
  try:
    yield temporary
    flush(temporary)  # Or a power failure can leave the new name with empty content.
    move(temporary, path)
  except BaseException:
    with contextlib.suppress(OSError):
      remove(temporary)
    raise


def flush(path: str) -> None:
  """Waits until a local file is on the disk; a file behind a URL is where it can be."""
  if not is_url(path):
    with open(path, 'r+b') as file:  # SMB flushes no file that is open for reading alone.
      os.fsync(file.fileno())


def _remote(function: str, path: str, *more: str, **settings: Any) -> Any:
  """Calls a function of tf.io.gfile, one of whose paths is a URL, with Python's errors."""
  url = path if is_url(path) else more[0]
  with _python_errors(url):
    return getattr(_gfile(scheme(url)), function)(path, *more, **settings)


@functools.cache
def _gfile(scheme: str) -> Any:
  """Returns TensorFlow's file module; raises InputError for an unknown filesystem."""
  start_tensorflow.start()
  from tensorflow.io import gfile  # noqa: PLC0415

  if scheme not in gfile.get_registered_schemes():
    with contextlib.suppress(Exception):  # Incompatible packages raise many kinds of errors.
      import tensorflow_io  # noqa: F401, PLC0415  (it registers more filesystems)
  known = gfile.get_registered_schemes()
  if scheme not in known:
    raise InputError(
      f'{scheme}:// is no filesystem that TensorFlow knows (it knows '
      f'{", ".join(sorted(f"{each}://" for each in known if each))}); run: pip install '
      'tensorflow-io, which brings s3://, hdfs:// and others, or name another folder'
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


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REMEDIES = {  # TensorFlow's texts are searched in this order.
  **dict.fromkeys(FULL, 'make room'),
  **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), 'allow it'),
  **dict.fromkeys((errno.EIO, errno.ENODEV, errno.ENXIO), 'mend it'),
  # Of a network's file system, or of too many open files.
  **dict.fromkeys((errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN), 'mend it'),
  **dict.fromkeys((errno.EMFILE, errno.ENFILE), 'raise ulimit -n'),
}


@contextlib.contextmanager
def naming_errors(flag: str, folder: str) -> Iterator[None]:
  """A context that raises errors of reading and writing files with the folder's name.

  Args:
    flag: the option with the folder.
    folder: its path.

  Raises:
    StorageError: replaces the error of Python or TensorFlow.
  """
  try:
    yield
  except CommandError:  # It says what it is.
    raise
  except Exception as error:
    fault = _fault(error, folder)
    if not fault:
      raise
    raise StorageError(f'{flag} {folder} {fault}, and the same command goes on') from error


@contextlib.contextmanager
def refusing_errors(flag: str, folder: str) -> Iterator[None]:
  """A context for a command's first write: an OSError is the user's mistake, but for a full disk.

  Raises:
    InputError: in place of the OSError.
  """
  try:
    yield
  except OSError as error:
    if error.errno in FULL:
      raise
    raise InputError(
      f'{flag} {folder} cannot be written ({error.strerror}); name another'
    ) from error


def check_identity(flag: str, folder: str, known: tuple[int, int]) -> None:
  """Raises StorageError if no folder, or another one, has this name now (`identity`)."""
  if not is_dir(folder) or identity(folder) != known:
    raise StorageError(f'{flag} {folder} has vanished; put it back, and the same command goes on')


def _fault(error: Exception, folder: str) -> str:
  """Returns the fault of the folder with the remedy; '' if the error has another cause."""
  if is_url(folder):
    is_of_files = isinstance(error, OSError) or type(error).__module__.startswith('tensorflow')
    message = str(error).partition('\n')[0]
    return f'fails ({message}); mend it' if is_of_files and folder in str(error) else ''
  if folder in str(error) and not is_dir(folder):
    return 'has vanished; put it back'
  code = error_number(error)
  return f'cannot be used ({os.strerror(code)}); {_REMEDIES[code]}' if code in _REMEDIES else ''


def error_number(error: Exception) -> int | None:
  """The errno of an OSError, or of a TensorFlow error, whose text alone tells it."""
  if isinstance(error, OSError):
    return error.errno
  return next((each for each in _REMEDIES if os.strerror(each) in str(error)), None)
