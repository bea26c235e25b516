"""A process whose memory is limited, and one that watches over it.

Where memory is short, TensorFlow and what it uses end the process by a signal, or with a code of
their own: no thread of it could be started, or a few bytes could not be had.
"""

import ctypes
import os
import signal
import sys
from typing import Any

from cifar10.core import limits
from cifar10.core.errors import InputError

_LEAST_ROOM = 2.5e9  # Bytes: TensorFlow with its threads, on two cores.
_DEATHS = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGTRAP, 127)
_PR_SET_PDEATHSIG = 1  # Of prctl(2).


def check_room() -> None:
  """Raises InputError where TensorFlow could not start for want of address space."""
  allowed = limits.room()
  if allowed is not None and allowed < _LEAST_ROOM:
    raise InputError(
      f'a limit of {allowed / 1e9:.2f} GB of address space (ulimit -v) leaves no room for '
      f'TensorFlow, which needs {_LEAST_ROOM / 1e9:g} GB or more; raise it'
    )


def watch() -> None:
  """Goes on in a child process; this one waits, passes signals on, and says what ended it."""
  child = os.fork()
  if not child:
    if sys.platform == 'linux':
      ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return

  def pass_on(number: int, frame: Any) -> None:
    os.kill(child, number)

  signal.signal(signal.SIGTERM, pass_on)
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # The terminal tells both.
  code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
  if code in _DEATHS:
    print(
      f'error: memory was short, and TensorFlow ended (code {code}): the limit of address space '
      f'(ulimit -v) is {(limits.room() or 0) / 1e9:.2f} GB; raise it',
      file=sys.stderr,
    )
    code = 1
  os._exit(code if code >= 0 else 128 - code)
