"""What goes on beside the training: SIGTERM is heard, and missing tasks are named.

The main thread spends its time inside TensorFlow, where Python runs no signal handler and a missing
task is waited for in silence. A thread of its own listens and looks instead.
"""

import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable

from cifar10.cluster import Cluster, reachable
from cifar10.errors import Terminated

log = logging.getLogger('cifar10')

REPORT_SECONDS = 15  # Between two lines about who is missing.
_STOP_SECONDS = 14  # After SIGTERM: for the step and the checkpoint, before the process is ended.


class Watch:
  """One process's watch: a context, and inert outside of it."""

  def __init__(
    self,
    cluster: Cluster | None = None,
    spare_workers: int = 0,
    start_timeout: float = 600,
  ):
    """Args:
    cluster: all tasks, with this process's part in it.
    spare_workers: so many may be missing without holding up the others.
    start_timeout: seconds for the others to come up.
    """
    self.stopping = False  # SIGTERM came: finish the step, save, and leave.
    self._peers = cluster.peers if cluster and cluster.is_distributed else {}
    self._spare_workers = spare_workers
    self._start_timeout = start_timeout
    self._never_seen = dict(self._peers)
    self._stepped = False
    self._over = False
    self._waiting_since = time.monotonic()
    self._on_stop: Callable[[], None] = lambda: None

  def __enter__(self) -> 'Watch':
    """Begins to listen and to look. Only in the main thread."""
    receiver, self._sender = os.pipe()
    os.set_blocking(self._sender, False)
    # The handler in C writes to the pipe at once, whatever the main thread is doing.
    self._wakeup_before = signal.set_wakeup_fd(self._sender)
    self._handler_before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    threading.Thread(target=self._run, args=[receiver], daemon=True).start()
    return self

  def __exit__(self, *exception: object) -> None:
    signal.signal(signal.SIGTERM, self._handler_before)
    signal.set_wakeup_fd(self._wakeup_before)
    os.close(self._sender)  # The thread reads the pipe's end, and ends.

  def progressed(self) -> None:
    """A step is over, so that nobody is waited for now."""
    self._stepped = True
    self._waiting_since = time.monotonic()

  def finish(self) -> None:
    """Training is over: the others may leave."""
    self._over = True

  def call_on_stop(self, wake: Callable[[], None]) -> None:
    """`wake` is called, in another thread, on SIGTERM; it replaces an earlier one."""
    self._on_stop = wake

  def check(self) -> None:
    """Raises Terminated if SIGTERM came."""
    if self.stopping:
      raise Terminated()

  def _run(self, receiver: int) -> None:
    started = reported = time.monotonic()
    while (heard := self._listen(receiver)) is not None:
      if signal.SIGTERM in heard:
        self._stop()
      now = time.monotonic()
      if self._over or not self._peers:
        continue
      if now - started >= self._start_timeout:
        self._give_up_on_missing()
      if now - reported >= REPORT_SECONDS:
        reported = now
        self._report(is_starting=now - started < self._start_timeout)
    os.close(receiver)

  def _listen(self, receiver: int) -> bytes | None:
    """Waits up to a second for signals -> their numbers; None when the watch is over."""
    ready, _, _ = select.select([receiver], [], [], 1)
    return (os.read(receiver, 64) or None) if ready else b''

  def _stop(self) -> None:
    """Lets the main thread leave by itself; ends the process if it cannot."""
    self.stopping = True
    log.info('SIGTERM: finishing the step')
    try:
      self._on_stop()
    except Exception as error:  # The session may be broken, or gone; what follows needs none.
      log.debug('could not wake the main thread: %s', error)
    time.sleep(_STOP_SECONDS)
    log.error('error: the step did not end in %s s after SIGTERM; nothing was saved', _STOP_SECONDS)
    sys.stderr.flush()
    os._exit(Terminated.exit_code)

  def _report(self, is_starting: bool) -> None:
    self._look_for_new()
    missing = dict(self._never_seen) if is_starting else {}
    if time.monotonic() - self._waiting_since >= REPORT_SECONDS:
      missing.update({n: a for n, a in self._peers.items() if not reachable(a)})
    if missing:
      log.info('waiting for %s', _listed(missing))

  def _look_for_new(self) -> None:
    for name, address in tuple(self._never_seen.items()):
      if reachable(address):
        del self._never_seen[name]

  def _give_up_on_missing(self) -> None:
    """Ends the process if it has not begun, and cannot without those that never came up."""
    if self._stepped or not self._never_seen:
      return
    self._look_for_new()
    workers = [name for name in self._never_seen if name.startswith('worker')]
    if len(workers) <= self._spare_workers and len(workers) == len(self._never_seen):
      return
    log.error(
      'error: %s did not come up in %g s; start what is missing, or raise --start-timeout',
      _listed(self._never_seen),
      self._start_timeout,
    )
    sys.stderr.flush()
    os._exit(1)


def _listed(tasks: dict[str, str]) -> str:
  """'ps 0 (host:1), worker 1 (host:2)'"""
  return ', '.join(f'{name} ({address})' for name, address in tasks.items())
