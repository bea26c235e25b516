"""Processes that take turns on the machine: while one computes, the others are stopped.

The speed of a shared machine changes from minute to minute, by more than what is to be compared.
Turns of a few seconds meet the same minutes; runs of minutes, each after the other, do not.

Each process prints a line with its time.perf_counter(), which on Linux is the same clock in every
process, whenever a step has ended, and goes on until it is killed.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cifar10.core import errors

_LEAST_STEPS = 3  # A turn measures at least so many, whatever its seconds.
# Becomes the command in its arguments, in a group of its own. On Linux the kernel ends it with its
# parent: a stopped process would remain.
_START = """
import ctypes, os, signal, sys
os.setpgrp()
if sys.platform == 'linux':
  PR_SET_PDEATHSIG = 1
  ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class _Process:
  """A process in a group of its own, stopped after `warm_up` steps."""

  def __init__(self, command: Sequence[Any], warm_up: int):
    self._words = [str(word) for word in command]
    if not shutil.which(self._words[0]):
      raise errors.InputError(
        f'{self._words[0]} cannot be started; name a Python that can, as `make bench-install` sets '
        'one up'
      )
    start = [sys.executable, '-c', _START, *self._words]
    self._process = subprocess.Popen(start, stdout=subprocess.PIPE, text=True)
    try:
      for _ in range(warm_up):
        self._step()
    except BaseException:
      self.kill()
      raise
    self._signal(signal.SIGSTOP)

  def turn(self, seconds: float) -> float:
    """Steps a second in a turn of so many seconds."""
    since = time.perf_counter()
    self._signal(signal.SIGCONT)
    while (cut := self._step()) < since:  # Printed before the process was stopped.
      pass
    # The step that was cut is not measured.
    first, last, steps = cut, cut, 0
    while last - since < seconds or steps < _LEAST_STEPS:
      last = self._step()
      steps += 1
    self._signal(signal.SIGSTOP)
    return steps / (last - first)

  def kill(self) -> None:
    """Ends the process and those that it has started."""
    self._signal(signal.SIGKILL)
    self._process.kill()  # Its group may not be there yet.
    self._process.wait()
    assert self._process.stdout is not None
    self._process.stdout.close()

  def _step(self) -> float:
    """When the next step ended; waits for it."""
    assert self._process.stdout is not None
    line = self._process.stdout.readline()
    command = ' '.join(self._words)
    if not line:
      code = self._process.wait()
      if code < 0:
        raise errors.InputError(
          f'{command} was ended by signal {-code}; if memory was short for all at once, leave some '
          'out with --beside'
        )
      raise errors.InputError(f'{command} ended with exit code {code}; above it says why')
    try:
      return float(line)
    except ValueError:
      raise errors.InputError(
        f'{command} printed {line.strip()!r}, where the moment of a step was expected'
      ) from None

  def _signal(self, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self._process.pid, number)


def steps_per_second(
  commands: Mapping[str, Sequence[Any]], turns: int, seconds: float, warm_up: int
) -> dict[str, list[float]]:
  """Steps a second of each command's process in each of its turns; says them on standard error.

  Args:
    commands: by name. All are in memory at the same time.
    turns: of each process.
    seconds: of a turn, or as many as three steps take.
    warm_up: steps before the first turn.

  Raises:
    InputError: a process cannot be started, or ends.
  """
  processes: dict[str, _Process] = {}
  rates: dict[str, list[float]] = {name: [] for name in commands}
  try:
    for name, command in commands.items():
      print(f'{name} starts', file=sys.stderr)
      processes[name] = _Process(command, warm_up)
    order = list(commands)
    for turn in range(turns):
      for name in order:
        rates[name].append(processes[name].turn(seconds))
      shown = ', '.join(f'{name} {rates[name][-1]:.3g}' for name in commands)
      print(f'turn {turn + 1} of {turns}, steps/s: {shown}', file=sys.stderr)
      order.reverse()  # So that none is always the first.
  finally:
    for process in processes.values():
      process.kill()
  return rates
