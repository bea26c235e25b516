"""Liveness of the other tasks of a cluster: names who is missing, gives up on who is lost.

TensorFlow waits for a missing task without a line in the log. It is told when a process ends, whose
kernel ends its connections; where a cable is cut it can wait for an answer for good, even after the
cable is mended. So this thread knocks at every task's address:

- Nothing answers, for `CUT_SECONDS`: the task is cut off. Who needs it ends, to be started again.
- It answers again, and for as long no step follows: TensorFlow still waits for what was lost.
- The host answers that nobody listens: the task has ended. It has `start_timeout` to come back; an
  all-reduce cannot go on without it, and ends soon.
"""

import contextlib
import math
import socket
import threading
import time
from collections.abc import Collection, Iterable, Mapping

from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tf_config import Cluster, place
from cifar10.core.errors import InputError, TaskLostError
from cifar10.core.logs import log

CUT_SECONDS = 60  # Without any answer. A shorter cut ends nothing.
_SAVE_SECONDS = 10  # More for a server: the chief saves what is there before it ends.
_REDUCE_SECONDS = 8  # All-reduce: a starting task may not listen at once.
_REPORT_SECONDS = 15  # Between two log lines on missing tasks.
_LOOK_SECONDS = 5  # Between two looks, once each task was seen; before that, a second.
CHIEF = 'chief 0'
# What a look finds of a task; `_NEW` until it is seen, `_BACK` from the end of a cut to a step.
_NEW, _HERE, _SILENT, _BACK, _ENDED = range(5)


class LivenessMonitor(SignalMonitor):
  """Asks which other tasks can be reached, logs the missing ones, and gives up at a limit.

  Attributes:
    in_step: whether an all-reduce runs, which needs every task; the hook of its role sets it.
  """

  def __init__(self, cluster: Cluster, spare_workers: int = 0, start_timeout: float = 600):
    """Args:
    cluster: all tasks, with this process's own.
    spare_workers: how many workers may be missing while the others train.
    start_timeout: seconds that missing tasks have to start or come back.
    """
    super().__init__()
    self._cluster = cluster
    self._serves = cluster.task_type == 'ps'
    self._peers = cluster.peers
    self._spare_workers = spare_workers
    self._start_timeout = start_timeout
    self.in_step = False
    self._stepped = self._closed = False
    self._door: socket.socket | None = None
    now = self._reported = self._waiting_since = time.monotonic()
    self._found = dict.fromkeys(self._peers, (_NEW, now))  # And since when.
    self._looked = -math.inf

  def __enter__(self) -> 'LivenessMonitor':
    """Starts to receive signals and to look for the tasks. Must run in the main thread.

    Raises:
      InputError: this task cannot listen at its port.
    """
    cluster = self._cluster
    if cluster.is_distributed:
      self._listen().close()  # TensorFlow's server needs the port.
    elif cluster.is_chief and cluster.has_evaluator:
      self._door = self._listen()
      threading.Thread(target=_let_in, args=[self._door], daemon=True).start()
    super().__enter__()
    return self

  def __exit__(self, *exception: object) -> None:
    super().__exit__(*exception)
    if self._door:
      self._door.shutdown(socket.SHUT_RDWR)

  def wait_for_peers(self) -> None:
    """Waits until all tasks of a cluster listen at their addresses, as this one does meanwhile.

    Raises:
      Terminated: the process received SIGTERM.
    """
    with self._listen():
      while knock_at_all(self._peers):
        self.check()
        time.sleep(0.25)
    self._waiting_since = time.monotonic()

  def progressed(self) -> None:
    self._stepped = True
    self._waiting_since = time.monotonic()

  def closed(self) -> None:
    self._closed = True

  def stop_with_others(self) -> None:
    """Stops because another task received a signal, and no task can train without it."""
    if not self.stopping:
      log.info('another task was told to end: this one ends, too')
    self.stopping = True

  def is_lost(self, name: str) -> bool:
    """Tells whether a task is cut off, or has not come or come back for `start_timeout`.

    Only time without a step counts, except for the chief, which alone saves.
    """
    found, since = self._found[name]
    if name != CHIEF:
      since = max(since, self._waiting_since)
    return time.monotonic() - since >= self._limit(found)

  def _limit(self, found: int) -> float:
    """Returns for how many seconds a task may be found so."""
    if found == _SILENT:
      return CUT_SECONDS + _SAVE_SECONDS * self._serves
    if found == _BACK:
      return math.inf if self._serves else CUT_SECONDS  # A server hears of no step.
    if found == _ENDED and self._cluster.is_reduced and (self.in_step or not self._stepped):
      return _REDUCE_SECONDS  # Between steps others may have ended well.
    return math.inf if found == _HERE else self._start_timeout

  def _look(self) -> None:
    now = time.monotonic()
    is_coming = any(found == _NEW for found, _ in self._found.values())
    every = 0 if is_coming or self._cluster.is_reduced else _LOOK_SECONDS
    if self._closed or not self._peers or now - self._looked < every:
      return
    self._looked = now
    missing = knock_at_all(self._peers)
    self._note(missing, now)
    if now - self._reported >= _REPORT_SECONDS:
      self._reported = now
      self._report(missing, now - self._waiting_since)
    lost = [name for name in self._peers if self.is_lost(name)]
    if self._serves:  # Who has ended may come back: `parameter_server.serve` has for whom it waits.
      lost = [name for name in lost if self._found[name][0] != _ENDED]
    if self._needs(lost):
      self.lost = self.lost_tasks(lost)
      self.stopping = True
      self.end_or_exit(self.lost, TaskLostError.code)

  def _note(self, missing: Mapping[str, OSError], now: float) -> None:
    """Keeps what each task was found to be, and since when."""
    for name, (before, since) in self._found.items():
      if name in missing:
        found = _NEW if before == _NEW else _SILENT if is_silent(missing[name]) else _ENDED
      else:
        was_cut = before == _SILENT and now - since > 2 * _LOOK_SECONDS
        # One that an all-reduce needs was started again alone: both would wait.
        was_cut |= before == _ENDED and self._cluster.is_reduced and self._stepped
        stays = before == _BACK and self._waiting_since < since
        found = _BACK if was_cut or stays else _HERE
      if found != before:
        self._found[name] = (found, now)

  def _report(self, missing: Iterable[str], waited: float) -> None:
    if waited < _REPORT_SECONDS:  # Steps are made: asynchronous workers need no other but to save.
      if CHIEF in missing and self._stepped:
        log.info('cannot reach %s, which alone saves', self._listed([CHIEF]))
    elif missing:
      log.info('waiting for %s', self._listed(missing))
    elif waited >= CUT_SECONDS and not self._serves:
      log.info('no step for %.0f s, and all tasks answer: one evaluates or hangs', waited)

  def _needs(self, names: Collection[str]) -> bool:
    """Tells whether training cannot go on without these tasks: more than the spare workers."""
    workers = [name for name in names if name.startswith('worker')]
    return len(workers) > self._spare_workers or len(workers) < len(names)

  def lost_tasks(self, names: Collection[str]) -> str:
    """Returns a message with lost tasks' names and addresses, and the remedy."""
    listed, found = self._listed(names), {self._found[name][0] for name in names}
    if found & {_SILENT, _BACK}:
      return f'{listed} was cut off for {CUT_SECONDS} s; start all tasks again'
    if _ENDED in found and self._cluster.is_reduced:
      return f'{listed} is gone, and all-reduce needs every task; start all tasks again'
    return (
      f'waited {self._start_timeout:g} s: {listed} cannot be reached; start what is missing, and '
      'this task again, or raise --start-timeout'
    )

  def _listed(self, names: Iterable[str]) -> str:
    """Formats tasks as 'ps 0 (host:1), worker 1 (host:2)'."""
    return ', '.join(
      f'{name} ({address})' for name, address in self._peers.items() if name in names
    )

  def _listen(self) -> socket.socket:
    """Listens at this task's port; raises InputError if it cannot."""
    cluster = self._cluster
    _, port = place(cluster.addresses[cluster.task_type][cluster.task_index])
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
      return socket.create_server(('', port), family=family, reuse_port=True, dualstack_ipv6=both)
    except OSError as error:
      raise InputError(
        f'TF_CONFIG: cluster.{cluster.task_type} has port {port}, where this process cannot listen '
        f'({error.strerror}); name a free one'
      ) from None


def _let_in(door: socket.socket) -> None:
  """Accepts the connections of an evaluator, which asks so whether a chief alone is alive."""
  with door, contextlib.suppress(OSError):  # The door was shut.
    while True:
      door.accept()[0].close()


def reachable(address: str) -> bool:
  """Tells whether a process listens at 'host:port'."""
  return knock(address) is None


def knock(address: str) -> OSError | None:
  """Connects to 'host:port' and hangs up; returns the error that prevents it."""
  try:
    socket.create_connection(place(address), timeout=1).close()
  except OSError as error:
    return error
  return None


def is_silent(error: OSError) -> bool:
  """Tells whether nothing answered: the cable is cut, or the host is off.

  Where a host answers that nobody listens, its kernel has ended the connections of who did.
  """
  return not isinstance(error, (ConnectionRefusedError, socket.gaierror))


def knock_at_all(addresses: Mapping[str, str]) -> dict[str, OSError]:
  """Returns an error for each name at whose address nobody listens; asks all at once.

  A name whose address is not known in two seconds counts as one.
  """
  found: dict[str, OSError | None] = dict.fromkeys(addresses, TimeoutError())

  def ask(name: str) -> None:
    found[name] = knock(addresses[name])

  threads = [  # No pool, whose threads the process would wait for at its end.
    threading.Thread(target=ask, args=[name], daemon=True) for name in addresses
  ]
  deadline = time.monotonic() + 2
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(max(deadline - time.monotonic(), 0))
  return {name: error for name, error in dict(found).items() if error is not None}
