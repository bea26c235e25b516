"""A lock that one process at a time holds: flock(2) on a file, which says who has it, and stays.

The kernel lets go of it when the process ends, however that ends. Where the file system has no
locks, or at a URL, the holder is written down all the same, but keeps nobody out.
"""

import contextlib
import datetime
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from typing import IO

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.core.logs import log

_SECONDS = 1  # How long a lock is waited for: `holder` takes it for a moment.
# Version 1 had a file of its own for each process, written again every second, or six at a URL.
_CLAIMS = f'claim-*-[0-9]*-{"[0-9a-f]" * 8}.json'
_FRESH_SECONDS, _FRESH_SECONDS_AT_URL = 10, 60

_held: set[IO[bytes]] = set()


def _close_in_child() -> None:
  for file in _held:  # Or a child that lives on would hold its parent's locks.
    file.close()


os.register_at_fork(after_in_child=_close_in_child)


@contextlib.contextmanager
def locked(path: str, refusal: str, claims: str) -> Iterator[None]:
  """Holds a lock, whose folder it makes if missing.

  Args:
    path: the lock's file.
    refusal: the message if another process has it, with {holder} for that one.
    claims: the folder where version 1 of this program has its own files for that.

  Raises:
    InputError: another process has it.
    OSError: the file cannot be written.
  """
  folder = os.path.dirname(path)
  files.make_folder(folder)
  now = datetime.datetime.now()
  own = f'process {os.getpid()} on {socket.gethostname()} (since {now:%Y-%m-%d %H:%M:%S})'
  if files.is_url(path):
    _check_claims(claims, refusal)
    log.info('%s is not locked, being a URL: let no other process write there', folder)
    files.write_text(path, own)
    try:
      yield
    finally:
      with contextlib.suppress(OSError):
        files.remove(path)
    return
  with open(path, 'a+b', buffering=0) as file:
    _held.add(file)
    try:
      _take(file, refusal)
      _check_claims(claims, refusal)
      file.truncate(0)
      file.write(own.encode())
      try:
        yield
      finally:
        file.truncate(0)
    finally:
      _held.discard(file)


def _take(file: IO[bytes], refusal: str) -> None:
  deadline = time.monotonic() + _SECONDS
  while True:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      return
    except BlockingIOError:
      if time.monotonic() > deadline:
        raise InputError(refusal.replace('{holder}', _written(file))) from None
      time.sleep(_SECONDS / 10)
    except OSError as error:
      log.info('%s is not locked (%s): let no other process write there', file.name, error.strerror)
      return


def _written(file: IO[bytes]) -> str:
  file.seek(0)
  return file.read(500).decode(errors='replace')


def _check_claims(folder: str, refusal: str) -> None:
  """Raises InputError for a process of version 1 that has been heard of lately."""
  fresh = _FRESH_SECONDS_AT_URL if files.is_url(folder) else _FRESH_SECONDS
  for path in files.matching(folder, _CLAIMS):
    with contextlib.suppress(FileNotFoundError):
      written = files.signature(path)[1] / 1e9
      claim = files.read_object(path) or {}
      if abs(time.time() - written) < fresh:
        holder = f'process {claim.get("pid")} on {claim.get("host")}, of version 1,'
        raise InputError(refusal.replace('{holder}', holder))


def holder(path: str) -> str:
  """Returns who holds a lock: 'process 17 on host (since 2026-01-31 12:00:00)'; '': nobody does.

  Where there are no locks, a process that was killed seems to hold it.
  """
  try:
    if files.is_url(path):
      return files.read_text(path)
    with open(path, 'rb', buffering=0) as file:
      try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
      except BlockingIOError:
        return _written(file) or 'another process'
      except OSError:
        return _written(file)
      return ''
  except (FileNotFoundError, NotADirectoryError):
    return ''
