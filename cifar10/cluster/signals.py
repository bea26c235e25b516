"""Receives SIGTERM, Ctrl-C and SIGHUP: the step is finished, the chief saves, the process ends.

Its code is 128 + the signal's number. A thread receives them, because the main thread is inside
TensorFlow, where Python runs no handlers; training/trainer.py ends the training after the step.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from cifar10.core.errors import TaskLostError, Terminated
from cifar10.core.logs import log

_HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_STOP_SECONDS = 14  # After a signal, for the step and a checkpoint; then the process is killed.


class SignalMonitor:
  """A context manager that receives the signals that end a run; without entering it does nothing.

  In a cluster a `LivenessMonitor` also watches the other tasks.

  Attributes:
    stopping: a signal came, or tasks are lost: finish the step, save, and leave.
    heard: the signal that came; 'SIGTERM' for what else told the process to end.
    lost: which tasks are lost, and what to do about it.
    wake: what is called, in another thread, when the main thread is to stop.
    closed: the session has ended, after which no other task is needed.
    in_step: whether an all-reduce runs, which needs every task.
  """

  def __init__(self, *, kills_after_ctrl_c: bool = True):
    """`kills_after_ctrl_c`: whether a process that does not end in time is killed."""
    self.stopping = self.closed = self.in_step = False
    self.heard, self.lost = 'SIGTERM', ''
    self.wake: Callable[[], object] = lambda: None
    self._kills_after_ctrl_c = kills_after_ctrl_c
    self._left = threading.Event()
    self._stepped_at = 0.0  # By time.monotonic; 0 before the first step.

  def __enter__(self) -> 'SignalMonitor':
    """Starts to receive signals. Must run in the main thread."""
    receiver, self._sender = os.pipe()
    os.set_blocking(self._sender, False)
    # Python's C handler writes to the pipe at once, whatever the main thread does.
    self._wakeup_before = signal.set_wakeup_fd(self._sender)
    # Ignored signals stay so: Ctrl-C behind a shell's `&`, SIGHUP behind `nohup`.
    before = {number: signal.getsignal(number) for number in _HEARD}
    self._before = {each: was for each, was in before.items() if was is not signal.SIG_IGN}
    for number in self._before:
      signal.signal(number, self._handle)
    threading.Thread(target=self._receive, args=[receiver], daemon=True).start()
    return self

  def __exit__(self, *exception: object) -> None:
    self._left.set()
    for number, handler in self._before.items():
      signal.signal(number, handler or signal.SIG_DFL)  # None: set by C code.
    signal.set_wakeup_fd(self._wakeup_before)
    os.close(self._sender)  # The thread reads the end of the pipe and ends.

  def check(self) -> None:
    """Raises TaskLostError if needed tasks are lost, Terminated after a signal."""
    if self.lost:
      raise TaskLostError(self.lost)
    if self.stopping:
      raise Terminated(self.heard)

  def progressed(self) -> None:
    """Records a finished step: no task is being waited for."""
    self._stepped_at = time.monotonic()

  def _handle(self, number: int, frame: FrameType | None) -> None:
    """The main thread's handler: a second Ctrl-C raises KeyboardInterrupt."""
    if number == signal.SIGINT:
      signal.signal(signal.SIGINT, self._before[signal.SIGINT] or signal.SIG_DFL)

  def _receive(self, receiver: int) -> None:
    """Obeys each signal, until the context has ended."""
    with open(receiver, 'rb', buffering=0) as pipe:
      while received := pipe.read(1):
        if received[0] in self._before:
          self._obey(signal.Signals(received[0]))

  def _obey(self, number: signal.Signals) -> None:
    if not self.stopping:
      self.heard, self.stopping = number.name, True
      more = '; a second Ctrl-C ends without a save' if number == signal.SIGINT else ''
      log.info('%s: finishing the batch%s', number.name, more)
    if number != signal.SIGINT or self._kills_after_ctrl_c:
      late = f'the run did not end in {_STOP_SECONDS} s after {number.name}; the same command goes '
      self._end_or_exit(late + 'on from the last checkpoint', 128 + number)

  def _end_or_exit(self, message: str, code: int) -> None:
    """Wakes the main thread, and exits the process if it does not end in time."""

    def wake() -> None:
      with contextlib.suppress(Exception):  # The session may be broken or closed.
        self.wake()

    # In a thread: where a task is cut off, its session waits for an answer.
    threading.Thread(target=wake, daemon=True).start()
    if not self._left.wait(_STOP_SECONDS):  # The main thread is inside TensorFlow: none wakes it.
      log.error('error: %s', message)
      os._exit(code)
