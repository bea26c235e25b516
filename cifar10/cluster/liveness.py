"""A thread beside the training that receives signals and names missing tasks.

The main thread spends its time inside TensorFlow. There Python runs no signal handler, and
TensorFlow waits for a missing task without a word in the log. So a second thread receives the
signals and checks which tasks can be reached.
"""

import contextlib
import math
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from cifar10.cluster import sockets
from cifar10.cluster.tf_config import Cluster, reachable
from cifar10.core.errors import InputError, TaskLostError, Terminated, end_process
from cifar10.core.logs import log

REPORT_SECONDS = 15  # Between two lines about who is missing.
_LOOK_SECONDS = 0.25
_OPEN_SECONDS = 0.05  # Between two looks for the server that is to be closed to other hosts.
_LOST_SECONDS = 5  # All-reduce: how long without a step, before tasks are checked.
_LOST_LOOKS = 3  # Failed checks in a row, a second apart: a server that is starting may fail one.
_DATA_SERVICE = 'data service'
_STOP_SECONDS = 14  # After a signal, for the step and the checkpoint; then the process is ended.


class LivenessMonitor:
  """One process's watch: a context manager. Outside of its context it does nothing."""

  def __init__(
    self,
    cluster: Cluster | None = None,
    spare_workers: int = 0,
    start_timeout: float = 600,
    all_reduce: bool = False,
    data_service: str | None = None,
  ):
    """Args:
    cluster: all tasks, with this process's part in it.
    spare_workers: how many workers may be missing while the others train on.
    start_timeout: seconds for the others to come up, or to come back.
    all_reduce: whether no task can train on without all others.
    data_service: the address of who makes the batches, without which no task trains on either.
    """
    self.stopping = False  # SIGTERM came, or tasks are lost: finish the step, save, and leave.
    self.lost = ''  # Which tasks are lost, and what to do about it.
    self._serves = cluster is not None and cluster.task_type == 'ps'
    is_distributed = cluster is not None and cluster.is_distributed
    self._peers = dict(cluster.peers) if cluster and is_distributed else {}
    self._spare_workers = spare_workers
    self._start_timeout = start_timeout
    self._is_watched_alone = cluster is not None and cluster.is_watched_alone
    listens = is_distributed or self._is_watched_alone
    self._own_port = cluster.port if cluster and listens else 0
    if data_service:
      self._peers[_DATA_SERVICE] = data_service
    # Nobody else has business with a cluster on this machine.
    self._keeps_out = bool(self._own_port) and cluster is not None and cluster.is_local
    self._kept_out = False
    # Where a chief without a server accepts an evaluator's connections, which check that it lives.
    self._doors: list[socket.socket] = []
    self._all_reduce = all_reduce
    self._times_gone = dict.fromkeys(self._peers, 0)
    self._gone_since: dict[str, float] = {}  # Who has not been reached while no step was made.
    self._never_seen = dict(self._peers)
    self._stepped = False
    self._over = False
    self._closed = False
    self._is_on = False
    self._left = threading.Event()
    self._waiting_since = time.monotonic()
    self._on_stop: Callable[[], None] = lambda: None

  def __enter__(self) -> 'LivenessMonitor':
    """Starts to receive signals and to check the tasks. Only in the main thread.

    Raises:
      InputError: a chief that an evaluator looks for cannot listen at its port.
    """
    if self._is_watched_alone:
      try:
        self._doors.append(self._door())
      except OSError as error:
        raise InputError(
          f'TF_CONFIG: cluster.chief has port {self._own_port}, where this process cannot listen '
          f'({error.strerror}); name a free one'
        ) from None
    receiver, self._sender = os.pipe()
    os.set_blocking(self._sender, False)
    # Python's handler in C writes to the pipe at once, whatever the main thread is doing.
    self._wakeup_before = signal.set_wakeup_fd(self._sender)
    self._handler_before = signal.getsignal(signal.SIGTERM)
    self._is_on = True
    self.listen()
    threading.Thread(target=self._run, args=[receiver], daemon=True).start()
    return self

  def __exit__(self, *exception: object) -> None:
    self._left.set()
    signal.signal(signal.SIGTERM, self._handler_before)
    signal.set_wakeup_fd(self._wakeup_before)
    os.close(self._sender)  # The thread reads the pipe's end, and ends.

  def listen(self) -> None:
    """Receives SIGTERM; to be called again after TensorFlow's coordination service took it over."""
    if self._is_on:
      signal.signal(signal.SIGTERM, lambda number, frame: None)

  def wait_for_peers(self) -> None:
    """Returns once every other task listens at its address; meanwhile this one does, too.

    Raises:
      Terminated: SIGTERM came.
    """
    if not self._peers:
      return
    with self._door() if self._own_port else contextlib.nullcontext():
      while not all(map(reachable, self._peers.values())):
        self.check()
        time.sleep(_LOOK_SECONDS)
    self._never_seen.clear()
    self._waiting_since = time.monotonic()

  def keep_others_out(self) -> None:
    """Lets other hosts reach nothing of a cluster on this machine; to be called once it listens."""
    if self._keeps_out:
      closed = sockets.keep_others_out(self._own_port)
      self._keeps_out, self._kept_out = closed is not None, bool(closed)

  def progressed(self) -> None:
    """To be called when a step is over: no task is being waited for."""
    self._stepped = True
    self._waiting_since = time.monotonic()

  def finish(self) -> None:
    """To be called when training is over: a missing task is no longer reported."""
    self._over = True
    self._waiting_since = time.monotonic()

  def closed(self) -> None:
    """To be called when the session is closed, after which no other task is needed."""
    self._over = self._closed = True

  def is_lost(self, name: str) -> bool:
    """Whether a task has not been reached for `start_timeout`, in which no step was made."""
    since = self._gone_since.get(name, math.inf)
    return time.monotonic() - since >= self._start_timeout

  def stop_with_others(self) -> None:
    """To be called when another task received SIGTERM, without which none can train on."""
    if not self.stopping:
      log.info('another task ends by SIGTERM: so does this one')
    self.stopping = True

  def call_on_stop(self, wake: Callable[[], None]) -> None:
    """`wake` is called, in another thread, on SIGTERM and Ctrl-C; it replaces an earlier one."""
    self._on_stop = wake

  def check(self) -> None:
    """Raises Terminated if SIGTERM came, TaskLostError if needed tasks are lost."""
    if self.lost:
      raise TaskLostError(self.lost)
    if self.stopping:
      raise Terminated()

  def _run(self, receiver: int) -> None:
    started = reported = time.monotonic()
    while (heard := self._listen(receiver)) is not None:
      for number in (signal.SIGTERM, signal.SIGINT):
        if number in heard:
          self._stop(number)
      now = time.monotonic()
      self.keep_others_out()
      if self._closed or not self._peers:
        continue
      sockets.watch_over()
      if self._over:
        self._give_up_on_closing(now)
        continue
      if now - started >= self._start_timeout:
        self._give_up_on_missing()
      if self._all_reduce and not self._never_seen:
        self._give_up_on_lost(now)
      if now - reported >= REPORT_SECONDS:
        reported = now
        self._report(is_starting=now - started < self._start_timeout)
        self._give_up_on_gone()
    for door in self._doors:
      door.close()
    os.close(receiver)

  def _listen(self, receiver: int) -> bytes | None:
    """Waits up to a second for signals -> their numbers; None when the watch is over."""
    channels: list[Any] = [receiver, *self._doors]
    seconds = _OPEN_SECONDS if self._keeps_out and not self._kept_out else 1
    ready, _, _ = select.select(channels, [], [], seconds)
    for door in self._doors:
      if door in ready:
        door.accept()[0].close()
    return (os.read(receiver, 64) or None) if receiver in ready else b''

  def _door(self) -> socket.socket:
    host = '127.0.0.1' if self._keeps_out else ''
    return socket.create_server((host, self._own_port), reuse_port=True)

  def _stop(self, number: signal.Signals) -> None:
    """Lets the main thread end the training; ends the process if it has not in time."""
    if number == signal.SIGTERM:  # Ctrl-C raises KeyboardInterrupt there, once woken.
      self.stopping = True
      log.info('SIGTERM: finishing the step')
    self._end_or_exit(
      f'the run did not end in {_STOP_SECONDS} s after {number.name}; the same command goes on '
      'from the last checkpoint',
      128 + number,
    )

  def _end_or_exit(self, message: str, code: int = 1) -> None:
    """Wakes the main thread, and ends the process if that has not left in time."""
    try:
      self._on_stop()
    except Exception as error:  # The session may be broken or closed; what follows needs none.
      log.debug('could not wake the main thread: %s', error)
    if not self._left.wait(_STOP_SECONDS):
      end_process(message, code)

  def _report(self, is_starting: bool) -> None:
    self._look_for_new()
    missing = dict(self._never_seen) if is_starting else {}
    now = time.monotonic()
    gone = {}
    if now - self._waiting_since >= REPORT_SECONDS:
      gone = {n: a for n, a in self._peers.items() if not reachable(a)}
    self._gone_since = {name: self._gone_since.get(name, now) for name in gone}
    missing.update(gone)
    if missing:
      log.info('waiting for %s', _listed(missing))
    elif not self._stepped and _DATA_SERVICE in self._peers:
      log.info('no step yet: the data service answers, and needs a data worker for batches')

  def _look_for_new(self) -> None:
    for name, address in tuple(self._never_seen.items()):
      if reachable(address):
        self._never_seen.pop(name, None)  # The main thread may have cleared it meanwhile.

  def _give_up_on_lost(self, now: float) -> None:
    """Ends the process if another task is gone: an all-reduce would wait for it forever."""
    if now - self._waiting_since < _LOST_SECONDS:
      return
    for name, address in self._peers.items():
      self._times_gone[name] = 0 if reachable(address) else self._times_gone[name] + 1
    lost = {
      name: self._peers[name]
      for name, times in self._times_gone.items()
      if times >= _LOST_LOOKS and name != _DATA_SERVICE
    }
    if lost:
      end_process(
        f'{_listed(lost)} is gone, and all-reduce needs everyone; start all tasks again: they go '
        'on from the last checkpoint'
      )

  def _give_up_on_gone(self) -> None:
    """Ends a training that needs tasks that are lost; a chief that can still save does so.

    A parameter server decides for itself: it needs nobody, and others may need it.
    """
    lost = {name: self._peers[name] for name in self._gone_since if self.is_lost(name)}
    workers = [name for name in lost if name.startswith('worker')]
    needed = len(workers) > self._spare_workers or len(workers) < len(lost)
    if needed and not self._serves and not self._over:
      self.lost = f'no step was made in {self._start_timeout:g} s: {lost_tasks(lost)}'
      self.stopping = True
      self._end_or_exit(self.lost)

  def _give_up_on_closing(self, now: float) -> None:
    """Ends a process whose session waits for a lost task; its steps are made."""
    if now - self._waiting_since < self._start_timeout:
      return
    lost = {name: address for name, address in self._peers.items() if not reachable(address)}
    if lost:
      end_process(
        f'the training is over, but not closed in {self._start_timeout:g} s: {lost_tasks(lost)}'
      )

  def _give_up_on_missing(self) -> None:
    """Ends the process if it has made no step, and lacks a task that it needs for one."""
    if self._stepped or not self._never_seen:
      return
    self._look_for_new()
    workers = [name for name in self._never_seen if name.startswith('worker')]
    if len(workers) <= self._spare_workers and len(workers) == len(self._never_seen):
      return
    end_process(
      f'{_listed(self._never_seen)} did not come up in {self._start_timeout:g} s; start what is '
      'missing, or raise --start-timeout'
    )


def lost_tasks(tasks: dict[str, str]) -> str:
  """What is to be done about tasks that are gone, by name and address."""
  return (
    f'{_listed(tasks)} cannot be reached; start what is missing, and this task again, or raise '
    '--start-timeout'
  )


def _listed(tasks: dict[str, str]) -> str:
  """'ps 0 (host:1), worker 1 (host:2)'"""
  return ', '.join(f'{name} ({address})' for name, address in tasks.items())
