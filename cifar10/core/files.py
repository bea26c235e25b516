"""Files and folders, local ones and those that URLs name; files written whole or not at all.

All that lies in a data dir or a job dir is reached through this module, or by TensorFlow itself:
`--job-dir gs://bucket/job` then works like `--job-dir job`. Errors are OSErrors in both cases; of a
URL also InputError, for a filesystem that TensorFlow does not know.
"""

import contextlib
import fnmatch
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO

from cifar10.core import remote_files
from cifar10.core.errors import InputError


def is_url(path: str) -> bool:
  """Whether it names a place on another filesystem than the local one: 'gs://bucket/job'."""
  return bool(remote_files.scheme(path))


def check_shared(flag: str, path: str) -> None:
  """Raises InputError for a folder of which each process of a cluster would see another."""
  if remote_files.scheme(path) == 'ram':
    raise InputError(
      f'{flag} {path} lies in the memory of one process; name a folder that all tasks see'
    )


def absolute(path: str) -> str:
  """A path that means the same in other working folders, without a '/' at its end."""
  if is_url(path):
    return path.rstrip('/') if path.rstrip('/') != f'{remote_files.scheme(path)}:' else path
  return os.path.abspath(path)


def is_inside(path: str, folder: str) -> bool:
  """Whether it is the folder or lies in it."""
  if is_url(path) or is_url(folder):
    return (absolute(path) + '/').startswith(absolute(folder) + '/')
  there = os.path.realpath(folder)
  return os.path.commonpath([there, os.path.realpath(path)]) == there


def exists(path: str) -> bool:
  """Whether something is there."""
  return remote_files.exists(path) if is_url(path) else os.path.exists(path)


def is_named(path: str) -> bool:
  """Whether something has this name, a link to nothing, too."""
  return remote_files.exists(path) if is_url(path) else os.path.lexists(path)


def is_dir(path: str) -> bool:
  """Whether it is a folder. Some filesystems have those only in which something is."""
  return remote_files.is_dir(path) if is_url(path) else os.path.isdir(path)


def is_file(path: str) -> bool:
  """Whether it is there and no folder."""
  if is_url(path):
    return remote_files.exists(path) and not remote_files.is_dir(path)
  return os.path.isfile(path)


def size(path: str) -> int:
  """A file's bytes."""
  return remote_files.size_and_time(path)[0] if is_url(path) else os.path.getsize(path)


def signature(path: str) -> tuple[int, int]:
  """What changes when a file does: its bytes, and when it was written, in nanoseconds.

  A filesystem that keeps no times, as ram://, has 0 for them: there the size alone tells.
  """
  if is_url(path):
    return remote_files.size_and_time(path)
  found = os.stat(path)
  return found.st_size, found.st_mtime_ns


def identity(folder: str) -> tuple[int, int]:
  """Of a folder whatever its name; one behind a URL has none but its name."""
  if is_url(folder):
    return 0, 0
  found = os.stat(folder)
  return found.st_dev, found.st_ino


def matching(folder: str, pattern: str) -> list[str]:
  """The paths in a folder whose names fit a pattern, sorted; none where there is no folder."""
  if not is_url(folder):
    return sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))
  try:
    names = remote_files.names(folder)
  except FileNotFoundError:
    return []
  return [os.path.join(folder, name) for name in names if fnmatch.fnmatchcase(name, pattern)]


def escape(name: str) -> str:
  """A pattern that this name alone fits."""
  return glob.escape(name)


def make_folder(path: str) -> None:
  """Makes a folder, and those above it, where it is missing."""
  if is_url(path):
    remote_files.make_folder(path)
  else:
    os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
  """Removes a file."""
  if is_url(path):
    remote_files.remove(path)
  else:
    os.remove(path)


def remove_folder(path: str) -> None:
  """Removes a folder with all that is in it."""
  if is_url(path):
    remote_files.remove_folder(path)
  else:
    shutil.rmtree(path)


def remove_empty_folder(path: str) -> None:
  """Removes a local folder in which nothing is."""
  os.rmdir(path)


def move(path: str, new: str) -> None:
  """Gives a file another name in the same filesystem."""
  if is_url(path):
    remote_files.rename(path, new)
  else:
    os.rename(path, new)


def copy(path: str, new: str) -> None:
  """Copies a file, whole or not at all."""
  # Not over what is there: ram:// would append to it.
  with _named_at_the_end(new) as temporary:
    if is_url(path) or is_url(new):
      remote_files.copy(path, temporary)
    else:
      shutil.copyfile(path, temporary)


def opened(path: str) -> IO[bytes]:
  """A file to read from, at any place."""
  return remote_files.opened(path) if is_url(path) else open(path, 'rb')


def read(path: str) -> bytes:
  """All of a file."""
  with opened(path) as file:
    return file.read()


def read_text(path: str) -> str:
  """All of a file in UTF-8; raises UnicodeDecodeError, which is a ValueError."""
  return read(path).decode()


def write_text(path: str, text: str) -> None:
  """Writes a file in UTF-8, whole or not at all."""
  with writing(path) as file:
    file.write(text.encode())


def overwrite(path: str, content: bytes, *, is_new: bool) -> None:
  """Writes a small file; a local one in its place, without an effort for who reads it meanwhile.

  Raises:
    OSError: it is not there, unless `is_new`, or there, if so.
  """
  if is_url(path):
    if remote_files.exists(path) == is_new:
      raise FileExistsError(path) if is_new else FileNotFoundError(path)
    with writing(path) as file:
      file.write(content)
  else:
    with open(path, 'xb' if is_new else 'r+b') as file:
      file.write(content)


@contextlib.contextmanager
def writing(path: str) -> Iterator[IO[bytes]]:
  """A file to write, which takes its name at the end, or goes when anything fails."""
  with replacing(path) as temporary, open(temporary, 'wb') as file:
    yield file


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
  """A local name to write to: takes the place of `path` at the end, or goes when anything fails.

  It lies beside `path`; where that is a URL, in the folder for temporary files until then.
  """
  if not is_url(path):
    with _named_at_the_end(path) as temporary:
      yield temporary
    return
  with tempfile.TemporaryDirectory(prefix='cifar10-') as folder:
    local = os.path.join(folder, os.path.basename(path))
    yield local
    copy(local, path)


@contextlib.contextmanager
def new_folder(parent: str) -> Iterator[str]:
  """A local folder that goes at the end; what was made in it can be moved there by `move_in`."""
  local = None if is_url(parent) else parent
  with tempfile.TemporaryDirectory(prefix='temp-', dir=local) as folder:
    yield folder


def move_in(local: str, path: str, last: str = '') -> None:
  """Moves a file, or a folder, from `new_folder` to its name.

  Args:
    local: what was made.
    path: new.
    last: the file that comes last to a URL, where a folder comes file by file.
  """
  if not is_url(path):
    os.rename(local, path)
    return
  if os.path.isfile(local):
    copy(local, path)
    return
  paths = [os.path.join(folder, name) for folder, _, names in os.walk(local) for name in names]
  for each in sorted(paths, key=lambda each: (os.path.basename(each) == last, each)):
    target = os.path.join(path, os.path.relpath(each, local))
    remote_files.make_folder(os.path.dirname(target))
    remote_files.copy(each, target)


def scratch(folder: str) -> IO[bytes]:
  """A local file without a name, on the disk of `folder` where that is local."""
  return tempfile.TemporaryFile(dir=None if is_url(folder) else folder)


def remove_unfinished(path: str) -> None:
  """Removes what killed processes wrote to take this file's place; only for who alone writes it."""
  folder, name = os.path.split(path)
  for temporary in matching(folder, f'{glob.escape(name)}.*.tmp'):
    remove(temporary)


@contextlib.contextmanager
def _named_at_the_end(path: str) -> Iterator[str]:
  """A name beside `path`, whose file takes its place at the end, or goes when anything fails."""
  temporary = f'{path}.{os.getpid()}.tmp'
  try:
    yield temporary
    if is_url(path):
      remote_files.rename(temporary, path)
    else:
      _flush_to_disk(temporary)
      os.replace(temporary, path)
  except BaseException:
    with contextlib.suppress(OSError):
      remove(temporary)
    raise


def _flush_to_disk(path: str) -> None:
  """Without it a power cut can leave the new name on empty content."""
  with open(path, 'rb') as file:
    os.fsync(file.fileno())
