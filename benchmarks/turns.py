"""Processes that take turns on the machine: while one computes, the others are stopped.

The speed of a shared machine changes from minute to minute, by more than what is to be compared.
Turns of a few seconds meet the same minutes; runs of minutes, each after the other, do not.

Each process prints a line with its time.perf_counter(), which on Linux is the same clock in every
process, whenever a step has ended, and goes on until it is killed.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cifar10.platform import errors

_LEAST_STEPS = 3  # That are measured in a turn, if the seconds are not enough.


class _Process:
  """One of them, stopped once it has made `warm_up` steps; its own group, workers included."""

  def __init__(self, command: Sequence[Any], warm_up: int):
    self._words = [str(word) for word in command]
    try:
      # A group of this session: should this process be killed, the kernel ends stopped groups.
      # Python 3.10 has no `process_group`.
      self._process = subprocess.Popen(
        self._words,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=os.setpgrp,  # noqa: PLW1509
      )
    except OSError as error:
      raise errors.InputError(
        f'{self._words[0]} cannot be started ({error.strerror}); name a Python that can, as '
        '`make bench-install` sets one up'
      ) from None
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
    self._signal(signal.SIGKILL)
    self._process.communicate()

  def _step(self) -> float:
    """When the next step ended; waits for it."""
    assert self._process.stdout is not None
    line = self._process.stdout.readline()
    if not line:
      code = self._process.wait()
      raise errors.InputError(
        f'{" ".join(self._words)} ended with exit code {code}; above it says why'
      )
    return float(line)

  def _signal(self, number: int) -> None:
    if self._process.poll() is None:
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
