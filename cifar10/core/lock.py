"""A lock that one process at a time holds: flock(2) on a file, which says who has it, and stays.

The kernel lets go of it when the process ends, however that ends. Where the file system has no
locks, or at a URL, the holder is written down all the same, but keeps nobody out.
"""

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from typing import IO

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.core.logs import log


@contextlib.contextmanager
def locked(path: str, refusal: str, claims: str) -> Iterator[None]:
  """Holds the lock `path`, whose folder it makes if missing.

  `refusal` is the message of the InputError if another process has it, with {holder} for that one.
  In the folder `claims` version 1 of this program has its own files for that.
  """
  files.make_folder(os.path.dirname(path))
  _check_claims(claims, refusal)
  since = time.strftime('%Y-%m-%d %H:%M:%S')
  own = f'process {os.getpid()} on {socket.gethostname()} (since {since})'
  with contextlib.ExitStack() as stack:
    if files.is_url(path):
      log.info('%s is not locked, being a URL: let no other process write there', path)
      files.write_text(path, own)
      stack.callback(_remove, path)
    else:
      file = stack.enter_context(open(path, 'a+b', buffering=0))
      os.register_at_fork(after_in_child=file.close)  # Or a child that lives on would hold it.
      _take(file, refusal)
      file.truncate(0)
      file.write(own.encode())
      stack.callback(file.truncate, 0)
    yield


def _remove(path: str) -> None:
  with contextlib.suppress(OSError):  # What the lock was for is done.
    files.remove(path)


def _take(file: IO[bytes], refusal: str) -> None:
  for _ in range(10):  # `holder` takes it for a moment.
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      return
    except BlockingIOError:
      time.sleep(0.1)
    except OSError as error:
      log.info('%s is not locked (%s): let no other process write there', file.name, error.strerror)
      return
  file.seek(0)
  raise InputError(refusal.replace('{holder}', file.read().decode(errors='replace')))


def _check_claims(folder: str, refusal: str) -> None:
  """Raises InputError for a process of version 1 that has been heard of lately.

  Each had a file of its own, named after host and process, which it wrote again every second, or
  six at a URL.
  """
  fresh = 60 if files.is_url(folder) else 10
  for path in files.matching(folder, 'claim-*-[0-9]*-????????.json'):
    with contextlib.suppress(FileNotFoundError):
      if abs(time.time() - files.signature(path)[1] / 1e9) < fresh:
        raise InputError(refusal.replace('{holder}', f'a process of version 1 ({path})'))


def holder(path: str) -> str:
  """Returns who holds a lock: 'process 17 on host (since 2026-01-31 12:00:00)'; '': nobody does.

  Where there are no locks, a process that was killed seems to hold it.
  """
  with contextlib.suppress(FileNotFoundError, NotADirectoryError):
    if files.is_url(path):
      return files.read(path).decode()
    with open(path, 'rb', buffering=0) as file:
      try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
      except OSError:  # Another has it, or there are no locks.
        return file.read().decode(errors='replace')
  return ''
