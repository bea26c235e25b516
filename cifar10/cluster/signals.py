"""Receives SIGTERM, Ctrl-C and SIGHUP in a thread beside the training.

The main thread spends its time inside TensorFlow, where Python runs no signal handlers, so a
second thread receives the signals.
"""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable
from types import FrameType

from cifar10.core.errors import TaskLostError, Terminated, end_process
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
  """

  def __init__(self, *, kills_after_ctrl_c: bool = True):
    """`kills_after_ctrl_c`: whether a process that does not end in time is killed."""
    self.stopping = False
    self.heard = 'SIGTERM'
    self.lost = ''
    self._kills_after_ctrl_c = kills_after_ctrl_c
    self._left = threading.Event()
    self._on_stop: Callable[[], object] = lambda: None

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
    threading.Thread(target=self._run, args=[receiver], daemon=True).start()
    return self

  def __exit__(self, *exception: object) -> None:
    self._left.set()
    for number, handler in self._before.items():
      signal.signal(number, handler or signal.SIG_DFL)  # Of C code, which Python cannot restore.
    signal.set_wakeup_fd(self._wakeup_before)
    os.close(self._sender)  # The thread reads the end of the pipe and ends.

  def call_on_stop(self, wake: Callable[[], object]) -> None:
    """Calls `wake`, in another thread, on the first signal; replaces an earlier function."""
    self._on_stop = wake

  def check(self) -> None:
    """Raises TaskLostError if needed tasks are lost, Terminated after a signal."""
    if self.lost:
      raise TaskLostError(self.lost)
    if self.stopping:
      raise Terminated(self.heard)

  def progressed(self) -> None:
    """Records a finished step: no task is being waited for."""

  def closed(self) -> None:
    """Records the end of the session, after which no other task is needed."""

  def end_or_exit(self, message: str, code: int) -> None:
    """Wakes the main thread, and exits the process if it does not end in time."""

    def wake() -> None:
      with contextlib.suppress(Exception):  # The session may be broken or closed.
        self._on_stop()

    # In a thread: where a task is cut off, its session waits for an answer.
    threading.Thread(target=wake, daemon=True).start()
    if not self._left.wait(_STOP_SECONDS):
      end_process(message, code)

  def _handle(self, number: int, frame: FrameType | None) -> None:
    """The main thread's handler: a second Ctrl-C raises KeyboardInterrupt."""
    self._hear(number)
    if number == signal.SIGINT:
      signal.signal(signal.SIGINT, self._before[signal.SIGINT] or signal.SIG_DFL)

  def _hear(self, number: int) -> None:
    if not self.stopping:
      self.heard, self.stopping = signal.Signals(number).name, True

  def _run(self, receiver: int) -> None:
    announced = False
    while True:
      ready, _, _ = select.select([receiver], [], [], 1)
      received = os.read(receiver, 64) if ready else b''
      if ready and not received:  # The context has ended.
        break
      for number in [each for each in self._before if each in received]:
        self._hear(number)
        if not announced:
          announced = True
          more = '; after a second Ctrl-C nothing is saved' if number == signal.SIGINT else ''
          log.info('%s: finishing the step%s', number.name, more)
        if number != signal.SIGINT or self._kills_after_ctrl_c:
          self.end_or_exit(
            f'the run did not end in {_STOP_SECONDS} s after {number.name}; the same command goes '
            'on from the last checkpoint',
            128 + number,
          )
      self._look()
    os.close(receiver)

  def _look(self) -> None:
    """Makes the thread's other checks, about every second."""
