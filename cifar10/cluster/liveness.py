"""Liveness of the other tasks of a cluster: reports missing tasks, gives up on lost ones.

TensorFlow waits for a missing task without a line in the log.
"""

import contextlib
import itertools
import math
import socket
import threading
import time
from collections.abc import Collection, Mapping

from cifar10.cluster import sockets
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.sockets import is_loopback, reachable
from cifar10.cluster.tasks import Cluster
from cifar10.core.errors import InputError, TaskLostError, end_process
from cifar10.core.logs import log

REPORT_SECONDS = 15  # Between two log lines on missing tasks.
_LONG_SECONDS = 60  # Without a step while all tasks answer, as one that hangs may do.
_LOOK_SECONDS = 0.25
_OPEN_SECONDS = 0.05  # Between two checks for the server whose port is to be closed to other hosts.
# All-reduce: seconds without a step before tasks are checked, and failed checks in a row, one per
# second: a starting server may fail one, and a cable be cut for a moment.
_LOST_SECONDS = 5
_LOST_LOOKS = 3
_RESTART_SECONDS = 1  # The first look: so soon a task that was started again does not listen yet.
_BRIEF_SECONDS = 0.2  # To wait for an answer where every second is asked; SIGTERM waits meanwhile.
CHIEF = 'chief 0'


class LivenessMonitor(SignalMonitor):
  """Checks which other tasks can be reached, logs the missing ones, and gives up at a limit."""

  def __init__(
    self,
    cluster: Cluster,
    spare_workers: int = 0,
    start_timeout: float = 600,
    all_reduce: bool = False,
  ):
    """Args:
    cluster: all tasks, with this process's own.
    spare_workers: how many workers may be missing while the others train.
    start_timeout: seconds that missing tasks have to start or come back.
    all_reduce: whether no task can train without all others.
    """
    super().__init__()
    self._job = cluster.task_type
    self._serves = self._job == 'ps'
    is_distributed = cluster.is_distributed
    self._peers = peers(cluster) if is_distributed else {}
    self._spare_workers = spare_workers
    self._start_timeout = start_timeout
    # The port of a chief without workers: an evaluator checks there that it is alive.
    self._is_watched_alone = cluster.is_chief and cluster.has_evaluator and not is_distributed
    listens = is_distributed or self._is_watched_alone
    self._own_host, self._own_port = _place(cluster) if listens else ('', 0)
    # No other host needs to reach a cluster on this machine, at addresses that none can reach.
    everyone = itertools.chain(*cluster.addresses.values())
    self._keeps_out = bool(self._own_port) and all(map(is_loopback, everyone))
    self._kept_out = False
    self._all_reduce = all_reduce
    self.in_step = False  # Whether an all-reduce runs, which needs every task.
    self._times_gone = dict.fromkeys(self._peers, 0)
    self._refused: set[str] = set()  # All-reduce: who did not listen at the last look.
    self._gone_since: dict[str, float] = {}  # Since when each task is unreachable, without a step.
    self._never_seen = dict(self._peers)
    self._stepped = False
    self._over = False
    self._closed = False
    self._started = self._reported = self._waiting_since = time.monotonic()

  def __enter__(self) -> 'LivenessMonitor':
    """Starts to receive signals and to check the tasks. Must run in the main thread.

    Raises:
      InputError: this task cannot listen at its port.
    """
    if self._own_port:
      try:
        door = self._door()
      except OSError as error:
        raise InputError(
          f'TF_CONFIG: cluster.{self._job} has port {self._own_port}, where this process cannot '
          f'listen ({error.strerror}); name a free one'
        ) from None
      if self._is_watched_alone:
        threading.Thread(target=self._let_in, args=[door], daemon=True).start()
      else:  # TensorFlow's server needs the port.
        door.close()
    self._started = self._reported = time.monotonic()
    return super().__enter__()

  def wait_for_peers(self) -> None:
    """Waits until all tasks of a cluster listen at their addresses, as this one does meanwhile.

    Raises:
      Terminated: the process received SIGTERM.
    """
    with self._door():
      while not all(map(reachable, self._peers.values())):
        self.check()
        time.sleep(_LOOK_SECONDS)
    self._never_seen.clear()
    self._waiting_since = time.monotonic()

  def keep_others_out(self) -> None:
    """Blocks other hosts from a cluster on this machine; call it when the port is open."""
    if self._keeps_out:
      closed = sockets.keep_others_out(self._own_port)
      self._keeps_out, self._kept_out = closed is not None, bool(closed)

  def progressed(self) -> None:
    self._stepped = True
    self._waiting_since = time.monotonic()

  def finish(self) -> None:
    self._over = True
    self._waiting_since = time.monotonic()

  def closed(self) -> None:
    self._over = self._closed = True

  def is_lost(self, name: str) -> bool:
    """Tells whether a task was unreachable for `start_timeout`.

    Only time without a step counts, except for the chief.
    """
    since = self._gone_since.get(name, math.inf)
    return time.monotonic() - since >= self._start_timeout

  def stop_with_others(self) -> None:
    """Stops because another task received a signal, and no task can train without it."""
    if not self.stopping:
      log.info('another task was told to end: this one ends, too')
    self.stopping = True

  def check(self) -> None:
    """Raises Terminated after a signal, TaskLostError if needed tasks are lost."""
    if self.lost:
      raise TaskLostError(self.lost)
    super().check()

  def _look(self) -> None:
    now = time.monotonic()
    self.keep_others_out()
    if self._closed or not self._peers:
      return
    sockets.watch_over()
    if self._over:
      self._give_up_on_closing(now)
      return
    if self._serves:  # It hears of no step, and a worker can come and go between two reports.
      self._look_for_new(_BRIEF_SECONDS)
    if now - self._started >= self._start_timeout:
      self._give_up_on_missing()
    if self._all_reduce and not self._never_seen:
      self._give_up_on_lost(now)
    if now - self._reported >= REPORT_SECONDS:
      self._reported = now
      self._report(is_starting=now - self._started < self._start_timeout)
      self._give_up_on_gone()

  def _listen(self, receiver: int, seconds: float = 1) -> bytes | None:
    waits_for_server = self._keeps_out and not self._kept_out
    return super()._listen(receiver, _OPEN_SECONDS if waits_for_server else seconds)

  def _door(self) -> socket.socket:
    """Listens at this task's port: at its loopback address, or at all addresses of this host."""
    if self._keeps_out:
      family = socket.AF_INET6 if ':' in self._own_host else socket.AF_INET
      place = (self._own_host, self._own_port)
      return socket.create_server(place, family=family, reuse_port=True)
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    place = ('', self._own_port)
    return socket.create_server(place, family=family, reuse_port=True, dualstack_ipv6=both)

  def _let_in(self, door: socket.socket) -> None:
    """Accepts an evaluator's connections, which check that this chief is alive."""
    door.settimeout(1)  # Between two checks whether the context has ended.
    with door:
      while not self._left.is_set():
        with contextlib.suppress(OSError):  # Nobody came, or who knocked has left.
          door.accept()[0].close()

  def _report(self, is_starting: bool) -> None:
    self._look_for_new()
    missing = dict(self._never_seen) if is_starting else {}
    now = time.monotonic()
    waited = now - self._waiting_since
    waits = waited >= REPORT_SECONDS
    asked = self._peers if waits else {}
    if not waits and self._stepped and CHIEF in self._peers:  # Asynchronous workers train on.
      asked = {CHIEF: self._peers[CHIEF]}
    gone = sockets.unreachable(asked)
    self._gone_since = {name: self._gone_since.get(name, now) for name in gone}
    missing.update(gone)
    if gone and not waits:
      log.info('cannot reach %s, which alone saves', _listed(gone))
    elif missing:
      log.info('waiting for %s', _listed(missing))
    elif waited >= _LONG_SECONDS and self._peers and not self._serves:
      log.info('no step for %.0f s, and all tasks answer: one evaluates, pauses or hangs', waited)

  def _look_for_new(self, timeout: float = 1) -> None:
    looked_for = dict(self._never_seen)
    for name in looked_for.keys() - sockets.unreachable(looked_for, timeout).keys():
      self._never_seen.pop(name, None)  # The main thread may have cleared it in the meantime.

  def _give_up_on_lost(self, now: float) -> None:
    """Ends the process if another task is gone: an all-reduce would wait for it forever."""
    waited = now - self._waiting_since
    if waited < _RESTART_SECONDS:
      self._refused.clear()
      self._times_gone = dict.fromkeys(self._peers, 0)
      return
    gone = sockets.unreachable(self._peers)
    if self._stepped:
      self._give_up_on_restarted(gone)
    # Between steps others may have ended.
    counts = waited >= _LOST_SECONDS and (self.in_step or not self._stepped)
    self._times_gone = {
      name: times + 1 if counts and name in gone else 0 for name, times in self._times_gone.items()
    }
    lost = {
      name: self._peers[name] for name, times in self._times_gone.items() if times >= _LOST_LOOKS
    }
    if lost:
      end_process(
        f'{_listed(lost)} is gone, and all-reduce needs every task; start all tasks again: they go '
        'on from the last checkpoint'
      )

  def _give_up_on_restarted(self, gone: Mapping[str, str]) -> None:
    """Ends the process if another task was started again alone: both would wait forever.

    The server of a task that has made a step listens as long as the task lives.
    """
    back = {name: self._peers[name] for name in self._refused - gone.keys()}
    self._refused = {name for name, address in gone.items() if sockets.refuses(address)}
    if back:
      end_process(
        f'{_listed(back)} was lost and started again alone, and all-reduce needs every task; start '
        'all tasks again: they go on from the last checkpoint'
      )

  def _give_up_on_gone(self) -> None:
    """Ends a training that needs lost tasks, or its chief; a chief that can still save does so.

    A parameter server decides on its own: it needs no other task, but others may need it.
    """
    lost = {name: self._peers[name] for name in self._gone_since if self.is_lost(name)}
    if self._needs(lost) and not self._serves and not self._over:
      gone = {name: self._peers[name] for name in self._gone_since}
      self.lost = f'waited {self._start_timeout:g} s: {lost_tasks(gone)}'
      self.stopping = True
      self._end_or_exit(self.lost)

  def _give_up_on_closing(self, now: float) -> None:
    """Ends a process whose steps are done, but whose session waits for a lost task."""
    if now - self._waiting_since < self._start_timeout:
      return
    if lost := sockets.unreachable(self._peers):
      end_process(
        f'the training is over, but not closed in {self._start_timeout:g} s: {lost_tasks(lost)}'
      )

  def _give_up_on_missing(self) -> None:
    """Ends the process if it has made no step because a task that it needs is missing."""
    if self._stepped or not self._never_seen:
      return
    self._look_for_new()
    if self._needs(self._never_seen):
      end_process(
        f'{_listed(self._never_seen)} did not come up in {self._start_timeout:g} s; start what is '
        'missing, or raise --start-timeout'
      )

  def _needs(self, names: Collection[str]) -> bool:
    """Tells whether training cannot go on without these tasks: more than the spare workers."""
    workers = [name for name in names if name.startswith('worker')]
    return len(workers) > self._spare_workers or len(workers) < len(names)


def peers(cluster: Cluster) -> dict[str, str]:
  """Returns the addresses of the other tasks, by name."""
  return {
    f'{job} {index}': address
    for job, addresses in cluster.addresses.items()
    for index, address in enumerate(addresses)
    if (job, index) != (cluster.task_type, cluster.task_index)
  }


def _place(cluster: Cluster) -> tuple[str, int]:
  """Returns the host and the port of this task."""
  host, _, port = cluster.addresses[cluster.task_type][cluster.task_index].rpartition(':')
  return host.strip('[]'), int(port)


def lost_tasks(tasks: dict[str, str]) -> str:
  """Returns a message with the lost tasks' names and addresses, and the remedy."""
  return (
    f'{_listed(tasks)} cannot be reached; start what is missing, and this task again, or raise '
    '--start-timeout'
  )


def _listed(tasks: dict[str, str]) -> str:
  """Formats tasks as 'ps 0 (host:1), worker 1 (host:2)'."""
  return ', '.join(f'{name} ({address})' for name, address in tasks.items())
