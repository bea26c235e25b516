"""Processes with a limit of address space (`ulimit -v`), where TensorFlow may end by a signal."""

import ctypes
import os
import signal
import sys

from cifar10.core import limits

_LEAST_ROOM = 2.5e9  # Bytes: TensorFlow with its threads, on two cores.
_DEATHS = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGTRAP, 127)
_PR_SET_PDEATHSIG = 1  # Of prctl(2), which Linux alone has.
_LIBC = ctypes.CDLL(None) if sys.platform == 'linux' else None
_SHORT = 'the limit of address space (ulimit -v) is {:.2f} GB, and TensorFlow {}; raise it'


def shortage() -> str:
  """What is said where TensorFlow cannot start; empty where it can."""
  room = limits.room() or 0
  message = _SHORT.format(room / 1e9, f'needs {_LEAST_ROOM / 1e9:g} GB or more')
  return message if room < _LEAST_ROOM else ''


def end_with_parent(number: signal.Signals) -> None:
  """Sends this process a signal when the one that started it ends, also if that is killed."""
  if _LIBC:
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)


def watch() -> None:
  """Goes on in a child; this process waits, passes signals on, and says what ended the child."""
  child = os.fork()
  if not child:
    end_with_parent(signal.SIGKILL)
    return
  for each in (signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(each) is not signal.SIG_IGN:
      signal.signal(each, lambda number, frame: os.kill(child, number))
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # The terminal tells both.
  code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
  if code in _DEATHS:
    message = _SHORT.format((limits.room() or 0) / 1e9, f'needed more (it ended with {code})')
    print(f'error: {message}', file=sys.stderr)
    code = 1
  os._exit(code if code >= 0 else 128 - code)
