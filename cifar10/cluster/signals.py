"""Receives SIGTERM, Ctrl-C and SIGHUP in a thread beside the training.

The main thread spends its time inside TensorFlow, where Python runs no signal handlers, so a
second thread receives the signals.
"""

import os
import select
import signal
import threading
from collections.abc import Callable
from typing import Any

from cifar10.core.errors import Terminated, end_process
from cifar10.core.logs import log

_HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_STOP_SECONDS = 14  # After a signal, for the step and a checkpoint; then the process is killed.


class SignalMonitor:
  """A context manager that receives the signals that end a run; without entering it does nothing.

  In a cluster a `LivenessMonitor` also watches the other tasks; here its methods do nothing.
  """

  def __init__(self) -> None:
    self.stopping = False  # A signal came, or tasks are lost: finish the step, save, and leave.
    self.heard = 'SIGTERM'  # Or what else asked for it.
    self.lost = ''  # Which tasks are lost, and what to do about it.
    self._has_announced = False
    self._left = threading.Event()
    self._on_stop: Callable[[], None] = lambda: None

  def __enter__(self) -> Any:
    """Starts to receive signals. Must run in the main thread."""
    receiver, self._sender = os.pipe()
    os.set_blocking(self._sender, False)
    # Python's C handler writes to the pipe at once, whatever the main thread does.
    self._wakeup_before = signal.set_wakeup_fd(self._sender)
    self._handlers_before = {number: signal.getsignal(number) for number in _HEARD}
    handlers: dict[int, Any] = {signal.SIGTERM: lambda number, frame: None}
    if callable(self._handlers_before[signal.SIGINT]):  # Else ignored, as behind a shell's `&`.
      handlers[signal.SIGINT] = self._interrupted
    # Else SIGHUP is ignored, as behind `nohup`, or a user's.
    if self._handlers_before[signal.SIGHUP] is signal.SIG_DFL:
      handlers[signal.SIGHUP] = handlers[signal.SIGTERM]
    for number, handler in handlers.items():
      signal.signal(number, handler)
    threading.Thread(target=self._run, args=[receiver, set(handlers)], daemon=True).start()
    return self

  def __exit__(self, *exception: object) -> None:
    self._left.set()
    for number, handler in self._handlers_before.items():
      signal.signal(number, handler or signal.SIG_DFL)  # Of C code, which Python cannot restore.
    signal.set_wakeup_fd(self._wakeup_before)
    os.close(self._sender)  # The thread reads the end of the pipe and ends.

  def call_on_stop(self, wake: Callable[[], None]) -> None:
    """Calls `wake`, in another thread, on the first signal; replaces an earlier function."""
    self._on_stop = wake

  def check(self) -> None:
    """Raises Terminated after a signal."""
    if self.stopping:
      raise Terminated(self.heard)

  def progressed(self) -> None:
    """Records a finished step: no task is being waited for."""

  def finish(self) -> None:
    """Records the end of training: missing tasks are no longer reported."""

  def closed(self) -> None:
    """Records the end of the session, after which no other task is needed."""

  def _run(self, receiver: int, ours: set[int]) -> None:
    complained = ''
    while True:
      ready, _, _ = select.select([receiver], [], [], 1)
      heard = os.read(receiver, 64) if ready else b''
      if ready and not heard:  # The context has ended.
        break
      for number in _HEARD:
        if number in ours.intersection(heard) and not self._left.is_set():
          self._stop(number)
      try:
        self._look()
      except Exception as error:  # Or nobody would hear signals any more.
        if str(error) != complained:
          log.warning('other tasks cannot be watched: %s', error)
        complained = str(error)
    os.close(receiver)

  def _look(self) -> None:
    """Makes the thread's other checks, about every second."""

  def _stop(self, number: signal.Signals) -> None:
    """Lets the main thread end the training; kills the process if that takes too long."""
    self._announce(number)
    self._end_or_exit(
      f'the run did not end in {_STOP_SECONDS} s after {number.name}; the same command goes on '
      'from the last checkpoint',
      128 + number,
    )

  def _interrupted(self, number: int, frame: Any) -> None:
    """The main thread's handler of the first Ctrl-C; a second one raises KeyboardInterrupt."""
    self._hear(number)
    signal.signal(signal.SIGINT, self._handlers_before[signal.SIGINT])

  def _announce(self, number: signal.Signals) -> None:
    self._hear(number)
    if not self._has_announced:
      self._has_announced = True
      more = '; after a second Ctrl-C nothing is saved' if number == signal.SIGINT else ''
      log.info('%s: finishing the step%s', number.name, more)

  def _hear(self, number: int) -> None:
    if not self.stopping:
      self.heard, self.stopping = signal.Signals(number).name, True

  def _end_or_exit(self, message: str, code: int) -> None:
    """Wakes the main thread, and exits the process if it does not end in time."""
    # In a thread: where a task is cut off, its session waits for an answer.
    threading.Thread(target=self._wake, daemon=True).start()
    if not self._left.wait(_STOP_SECONDS):
      end_process(message, code)

  def _wake(self) -> None:
    try:
      self._on_stop()
    except Exception as error:  # The session may be broken or closed; the rest does not need it.
      log.debug('could not wake the main thread: %s', error)
