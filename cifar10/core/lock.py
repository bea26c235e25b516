"""A lock on a folder: one process at a time uses it; a killed process does not block it.

A process that wants a folder writes a claim there, a small file of its own, and then reads the
other claims. If another claim holds the folder, the process is refused; of two processes that both
still want it, one waits and one leaves. (This is Lamport's bakery algorithm, with refusals in place
of queues.) It needs no kernel lock and no synchronised clocks, only a file system on which a file
that was written is seen by all who look later. So the folder may be a URL.

Claims of dead processes are ignored. A process of this machine is dead if its number, with the
time of its start, is gone. A process of another machine is dead if its claim is not rewritten, as
it is once a second, while this process watches it; so are the claims in a copy of the folder.
"""

import contextlib
import datetime
import itertools
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Collection
from typing import Any

from cifar10.core import files
from cifar10.core.errors import InputError, end_process

# Nothing else is taken for a claim, since those of dead processes are removed.
_NAMES = f'claim-*-[0-9]*-{"[0-9a-f]" * 8}.json'
_KEYS = {'host', 'pid', 'state'}
_START = b'{"host": '
_WANTS, _HOLDS = 'wants', 'holds'  # Of equal length: a claim is rewritten in place.
_BEAT_SECONDS = 1
_DEAD_SECONDS = 10  # Without a new beat, for processes of other machines.
_LOOK_SECONDS = 0.1
# It also counts while the machine sleeps.
_CLOCK = getattr(time, 'CLOCK_BOOTTIME', time.CLOCK_MONOTONIC)
# Factors for a URL: an object store takes one write a second of an object, and charges for it.
_URL_SLOWER = 6

Claim = dict[str, Any]


class Lock:
  """Holds a folder for this process while the context is active."""

  def __init__(self, folder: str, refusal: str, around: str = ''):
    """Args:
    folder: the folder of the claims; made if missing.
    refusal: the message if the folder is taken, with {holder} for the process that has it.
    around: the folder above it, where it is made again if it is removed; '': it is not.
    """
    self._folder = folder
    self._around = around
    self._refusal = refusal
    self._name = f'{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}'
    self._path = os.path.join(folder, f'claim-{self._name}.json')
    self._over = threading.Event()
    self._writing = threading.Lock()

  def __enter__(self) -> 'Lock':
    """Raises InputError if another process has the folder; OSError."""
    files.make_folder(self._folder)
    self._claim: Claim = {
      'host': socket.gethostname(),
      'pid': os.getpid(),
      'since': time.time(),
      'system': _system(),
      'started': _started(os.getpid()),
      'folder': _number(self._folder),
    }
    self._identity = files.identity(self._around) if self._around else None
    self._state = _WANTS
    self._beats = itertools.count()
    self._thread = threading.Thread(target=self._beat, daemon=True)
    self._thread.start()
    try:
      self._write(is_new=True)
      self._contend()
    except BaseException:
      self.__exit__()
      raise
    return self

  def __exit__(self, *exception: object) -> None:
    self._over.set()
    self._thread.join()
    with contextlib.suppress(OSError):
      files.remove(self._path)

  def _contend(self) -> None:
    """Waits until this process has the folder; raises InputError if another has it."""
    dead: set[str] = set()
    while True:
      others = _read_all(self._folder, but={self._path, *dead})
      living = _living(self._folder, others)
      dead |= set(others) - set(living)
      for path, claim in living.items():
        if claim.get('state') != _WANTS or path < self._path:
          raise InputError(self._refusal.replace('{holder}', described(claim)))
      if not living:
        break
      time.sleep(_LOOK_SECONDS)  # It sees this claim and leaves, or it held the folder before.
    self._state = _HOLDS
    self._write()
    for path in dead:
      with contextlib.suppress(FileNotFoundError):
        files.remove(path)

  def _beat(self) -> None:
    while not self._over.wait(_BEAT_SECONDS * _slower(self._folder)):
      try:
        self._write()
      except FileNotFoundError:
        with contextlib.suppress(OSError):
          self._reclaim()
      except OSError:  # A full or broken disk is reported when something is lost by it.
        pass

  def _reclaim(self) -> None:
    """Writes the claim again if another process, or a user, has removed it."""
    around = self._around or self._folder
    if not files.is_dir(around) or (self._around and files.identity(around) != self._identity):
      return  # It is gone, which is reported when something is written.
    files.make_folder(self._folder)
    self._claim['folder'] = _number(self._folder)
    silent = time.clock_gettime(_CLOCK) - self._beaten_at
    for claim in _read_all(self._folder, but={self._path}).values():
      if claim.get('state') == _HOLDS and self._state == _HOLDS:
        end_process(
          f'{self._folder}: {described(claim)} took over, as this process had not been heard of; '
          'it goes on there'
        )
    if self._state == _HOLDS and silent > _DEAD_SECONDS * _slower(self._folder):
      end_process(
        f'{self._folder}: this process had not been heard of for {silent:.0f} s, and another one '
        'took over, which has ended; the same command goes on from the last checkpoint'
      )
    self._write(is_new=True)

  def _write(self, *, is_new: bool = False) -> None:
    # In place and of one length: that needs no room on the disk, and no other client of a network's
    # file system reads an older file that had this name.
    with self._writing:  # This thread's and the beat's, which behind a URL have one temporary file.
      content = {**self._claim, 'state': self._state, 'beat': f'{next(self._beats):012}'}
      files.overwrite(self._path, json.dumps(content).encode(), is_new=is_new)
      self._beaten_at = time.clock_gettime(_CLOCK)


def holder(folder: str) -> Claim | None:
  """Returns the claim that holds a folder, with 'host', 'pid' and 'since', or None.

  For a claim of another machine it waits to see whether it is rewritten.
  """
  claims = _read_all(folder).items()
  held = {path: claim for path, claim in claims if claim.get('state') != _WANTS}
  return next(iter(_living(folder, held).values()), None)


def described(claim: Claim) -> str:
  """Returns 'process 17 on host (since 2026-01-31 12:00:00)'."""
  try:
    since = f'{datetime.datetime.fromtimestamp(claim["since"]):%Y-%m-%d %H:%M:%S}'
    return f'process {claim["pid"]} on {claim["host"]} (since {since})'
  except (KeyError, TypeError, ValueError, OverflowError, OSError):
    return 'an unnamed process'


def _living(folder: str, claims: dict[str, Claim]) -> dict[str, Claim]:
  """Returns the claims of living processes; takes seconds for claims of other machines."""
  elsewhere = {p: claim for p, claim in claims.items() if not _is_here(claim, folder)}
  living = {p: claim for p, claim in claims.items() if p not in elsewhere and _is_alive(claim)}
  deadline = time.monotonic() + _DEAD_SECONDS * _slower(folder)
  looks = 0  # A file system that hangs may take all of the time for one.
  while elsewhere and (time.monotonic() < deadline or looks < 2):
    time.sleep(_LOOK_SECONDS * _slower(folder))
    try:
      now = _read_all(folder)
    except OSError:
      if time.monotonic() > deadline:
        raise
      continue
    looks += 1
    for path, before in tuple(elsewhere.items()):
      if now.get(path) != before:
        del elsewhere[path]
        if path in now:
          living[path] = now[path]
  return living


def _read_all(folder: str, but: Collection[str] = ()) -> dict[str, Claim]:
  """Returns the claims in a folder by path; of one that cannot be read, when it was written.

  Files of others, whatever their names, are no claims.

  Raises:
    OSError: the folder cannot be listed.
  """
  claims: dict[str, Claim] = {}
  for path in files.matching(folder, _NAMES):
    if path not in but:
      with contextlib.suppress(FileNotFoundError):  # It was given up.
        claim = files.read_object(path)
        if claim is None and _is_begun(path):
          claims[path] = {'written': files.signature(path)}
        elif claim is not None and claim.keys() >= _KEYS:
          claims[path] = claim
  return claims


def _is_begun(path: str) -> bool:
  """Tells whether a file begins like a claim, is empty, or cannot be read.

  A process that is killed while it writes leaves such a claim; after a power failure it has zeros.
  """
  try:
    with files.opened(path) as file:
      start = file.read(len(_START)).strip(b'\0')
  except FileNotFoundError:
    raise
  except OSError:  # Of another user, or behind a network that fails.
    return True
  return _START.startswith(start)


def _slower(folder: str) -> float:
  return _URL_SLOWER if files.is_url(folder) else 1


def _is_here(claim: Claim, folder: str) -> bool:
  """Tells whether this system can see the claim's process, and it is no copy of the folder's."""
  number = _number(folder)
  is_ours = bool(_system()) and claim.get('system') == _system()
  return is_ours and claim.get('folder', number) == number and type(claim.get('pid')) is int


def _is_alive(claim: Claim) -> bool:
  """Tells whether the process of a local claim runs, and is not a later one with its number."""
  try:
    os.kill(claim['pid'], 0)
  except (ProcessLookupError, OverflowError):
    return False
  except PermissionError:
    pass
  return _started(claim['pid']) in ('', claim.get('started'))


def _number(folder: str) -> int:
  """Returns the folder's number in its file system, which a copy of it does not have."""
  return files.identity(folder)[1]


def _system() -> str:
  """Returns an identifier of this boot, machine and process namespace; '' if unknown."""
  try:
    with open('/proc/sys/kernel/random/boot_id', encoding='ascii') as file:
      return f'{socket.gethostname()} {file.read().strip()} {os.readlink("/proc/self/ns/pid")}'
  except OSError:
    return ''


def _started(pid: int) -> str:
  """Returns when a process was started, in ticks since the boot.

  Returns 'dead' for a process that has ended but has not been waited for; '' for an unseen one.
  """
  try:
    with open(f'/proc/{pid}/stat', encoding='utf-8', errors='replace') as file:
      fields = file.read().rpartition(')')[2].split()  # After the name, which may contain blanks.
  except OSError:
    return ''
  return 'dead' if fields[0] in 'ZX' else fields[19]
