"""Files and folders at local paths and behind URLs; files are written atomically.

The program uses the files of a data dir or a job dir through this module or through TensorFlow, so
`--job-dir gs://bucket/job` works like `--job-dir job`. Errors are OSErrors in both cases; a URL of
a filesystem that TensorFlow does not know raises InputError.
"""

import contextlib
import errno
import fnmatch
import functools
import glob
import importlib
import json
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import IO, Any, TypeVar, cast

from cifar10.core.errors import InputError

# Errors that say nothing about a file: of a network's file system, or of too many open files.
PASSING = (
  *(errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ESHUTDOWN, errno.EHOSTDOWN),
  *(errno.EMFILE, errno.ENFILE),
)
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG)
_SMALL = 1 << 24  # Bytes of a file that describes others.
_SCHEME = re.compile(r'([A-Za-z][A-Za-z0-9.]*)://')  # As TensorFlow reads it.
_Function = TypeVar('_Function', bound=Callable[..., Any])


def scheme(path: str) -> str:
  """Returns 'gs' for 'gs://bucket/job'; '' for a local path."""
  match = _SCHEME.match(os.fspath(path))  # A user's program may give a pathlib.Path.
  return match[1] if match else ''


def is_url(path: str) -> bool:
  """Tells whether a path is a URL of another filesystem: 'gs://bucket/job'."""
  return bool(scheme(path))


def _remote() -> ModuleType:
  return importlib.import_module('cifar10.core.remote_files')


def _or_remote(local: _Function) -> _Function:
  """Returns the function for local paths, with that of remote_files.py of its name for URLs."""

  @functools.wraps(local)
  def call(path: str, *more: Any, **named: Any) -> Any:
    function = getattr(_remote(), local.__name__) if is_url(path) else local
    return function(path, *more, **named)

  return cast(_Function, call)


def check_shared(flag: str, path: str) -> None:
  """Raises InputError if each process of a cluster would see a folder of its own."""
  if scheme(path) == 'ram':
    raise InputError(
      f'{flag} {path} lies in the memory of one process; name a folder that all tasks see'
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


@_or_remote
def exists(path: str) -> bool:
  """Tells whether the path exists."""
  return os.path.exists(path)


@_or_remote
def is_named(path: str) -> bool:
  """Tells whether something has this name; unlike `exists` also for a dangling link."""
  return os.path.lexists(path)


@_or_remote
def is_dir(path: str) -> bool:
  """Tells whether the path is a folder. Some filesystems have no empty folders."""
  return os.path.isdir(path)


@_or_remote
def is_file(path: str) -> bool:
  """Tells whether the path exists and is not a folder."""
  return os.path.isfile(path)


def is_replaceable(path: str) -> bool:
  """Tells whether a local path is a file itself, no folder, link or device, or does not exist."""
  return not os.path.lexists(path) or stat.S_ISREG(os.lstat(path).st_mode)


def size(path: str) -> int:
  """Returns the size of a file in bytes."""
  return signature(path)[0]


@_or_remote
def signature(path: str) -> tuple[int, int]:
  """Returns what changes when a file does: its bytes, and its time in nanoseconds.

  On a filesystem without times, such as ram://, the time is 0, and only the size can differ.
  """
  status = os.stat(path)
  return status.st_size, status.st_mtime_ns


def flush(path: str) -> None:
  """Waits until a local file is on the disk; a file behind a URL is where it can be."""
  if not is_url(path):
    with open(path, 'r+b') as file:  # SMB flushes no file that is open for reading alone.
      os.fsync(file.fileno())


def identity(folder: str) -> tuple[int, int]:
  """Returns numbers that identify a local folder under any name; (0, 0) for a URL."""
  if is_url(folder):
    return 0, 0
  status = os.stat(folder)
  return status.st_dev, status.st_ino


@_or_remote
def names(folder: str) -> list[str]:
  """Returns the sorted names in a folder, [] without it; raises OSError if it cannot be listed."""
  try:
    return sorted(os.listdir(folder or os.curdir))
  except OSError as error:
    if error.errno in _NO_FOLDER:
      return []
    raise


def matching(folder: str, pattern: str) -> list[str]:
  """Returns the sorted paths in a folder whose names match a pattern; [] without the folder."""
  found = (name for name in names(folder) if fnmatch.fnmatchcase(name, pattern))
  return [os.path.join(folder, name) for name in found]


def escape(name: str) -> str:
  """Returns a pattern that only this name matches."""
  return glob.escape(name)


@_or_remote
def make_folder(path: str) -> None:
  """Makes a folder, and the missing ones above it."""
  os.makedirs(path, exist_ok=True)


@_or_remote
def remove(path: str) -> None:
  """Removes a file."""
  os.remove(path)


@_or_remote
def remove_folder(path: str) -> None:
  """Removes a folder with its content."""
  shutil.rmtree(path)


@_or_remote
def move(path: str, new: str) -> None:
  """Renames a file within its filesystem."""
  os.replace(path, new)


def copy(path: str, new: str) -> None:
  """Copies a file atomically."""
  # Not over an existing file: ram:// would append to it.
  with _named_at_the_end(new) as temporary:
    copies = _remote().copy if is_url(path) or is_url(new) else shutil.copyfile
    copies(path, temporary)


@_or_remote
def opened(path: str) -> IO[bytes]:
  """Opens a file for reading, with seeks."""
  kind = stat.S_IFMT(os.stat(path).st_mode)
  if kind not in (stat.S_IFREG, stat.S_IFDIR):  # To open a pipe could take for ever.
    raise OSError(errno.EINVAL, 'it is no file', path)
  return open(path, 'rb')


def read(path: str, most: int = 0) -> bytes:
  """All of a file; raises OSError where a local one has more than `most` bytes."""
  if most and not is_url(path) and size(path) > most:
    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
  with opened(path) as file:
    return file.read()


def read_text(path: str) -> str:
  """All of a small file in UTF-8; raises UnicodeDecodeError, which is a ValueError."""
  return read(path, _SMALL).decode()


def read_object(path: str) -> dict[str, Any] | None:
  """The JSON object in a small file; None where there is none, or something else."""
  try:
    content = json.loads(read_text(path))
  except (OSError, ValueError, RecursionError):
    return None
  return content if isinstance(content, dict) else None


def write_text(path: str, text: str) -> None:
  """Writes a UTF-8 file atomically."""
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


@_or_remote
def overwrite(path: str, content: bytes, *, is_new: bool) -> None:
  """Writes a small file, a local one in place, so that a reader may see half of it.

  Raises:
    OSError: it exists and `is_new`, or it does not exist and not `is_new`.
  """
  with open(path, 'xb' if is_new else 'r+b') as file:
    file.write(content)


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
  for each in filter(temporary.fullmatch, names(folder)):
    remove(os.path.join(folder, each))


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
