"""Liveness of the other tasks of a cluster: names who is missing, gives up on who is lost.

TensorFlow waits for a missing task without a line in the log. It is told when a process ends, whose
kernel ends its connections; where a cable is cut it can wait for an answer for good, even after the
cable is mended. So this thread asks at every task's address:

- Nothing answers, for `CUT_SECONDS`: the task is cut off. Who needs it ends, to be started again.
- The host answers that nobody listens: the task has ended. It has `start_timeout` to come back.
- An all-reduce cannot go on without a task that has ended: who is left ends after some looks.
"""

import contextlib
import math
import socket
import threading
import time
from collections.abc import Collection, Iterable, Mapping

from cifar10.cluster import sockets
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tasks import Cluster
from cifar10.core.errors import InputError, TaskLostError, end_process
from cifar10.core.logs import log

CUT_SECONDS = 60  # Without any answer. A shorter cut ends nothing.
_SAVE_SECONDS = 10  # More for a server: the chief saves what is there before it ends.
_REPORT_SECONDS = 15  # Between two log lines on missing tasks.
_LONG_SECONDS = 60  # Without a step while all tasks answer, as one that hangs may do.
_LOOK_SECONDS = 5  # Between two looks, once each task was seen; before that, a second.
# All-reduce: seconds without a step before tasks are looked for, and before a missing one counts,
# and looks in a row that find it ended: a starting server may not listen at one.
_FIRST_LOOK_SECONDS = 1
_LOST_SECONDS = 5
_LOST_LOOKS = 3
CHIEF = 'chief 0'


class LivenessMonitor(SignalMonitor):
  """Asks which other tasks can be reached, logs the missing ones, and gives up at a limit."""

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
    self._cluster = cluster
    self._serves = cluster.task_type == 'ps'
    self._peers = peers(cluster) if cluster.is_distributed else {}
    self._spare_workers = spare_workers
    self._start_timeout = start_timeout
    self._all_reduce = all_reduce
    self.in_step = False  # Whether an all-reduce runs, which needs every task.
    self._never_seen = dict(self._peers)
    self._gone_since: dict[str, float] = {}  # Since when nobody listens at each task's address,
    self._silent_since: dict[str, float] = {}  # and since when nothing answers there.
    self._back_since: dict[str, float] = {}  # Since when it answers again, after a cut.
    self._times_ended: dict[str, int] = {}  # All-reduce: looks in a row that found a task ended.
    self._ended: set[str] = set()  # All-reduce: which tasks the last look found ended.
    self._stepped = self._over = self._closed = False
    self._started = self._reported = self._waiting_since = time.monotonic()
    self._looked = -math.inf

  def __enter__(self) -> 'LivenessMonitor':
    """Starts to receive signals and to look for the tasks. Must run in the main thread.

    Raises:
      InputError: this task cannot listen at its port.
    """
    cluster = self._cluster
    if cluster.is_distributed:
      self._door().close()  # TensorFlow's server needs the port.
    elif cluster.is_chief and cluster.has_evaluator:
      threading.Thread(target=self._let_in, args=[self._door()], daemon=True).start()
    self._started = self._reported = self._waiting_since = time.monotonic()
    return super().__enter__()

  def wait_for_peers(self) -> None:
    """Waits until all tasks of a cluster listen at their addresses, as this one does meanwhile.

    Raises:
      Terminated: the process received SIGTERM.
    """
    with self._door():
      while sockets.knock_at_all(self._peers):
        self.check()
        time.sleep(0.25)
    self._never_seen = {}
    self._waiting_since = time.monotonic()

  def progressed(self) -> None:
    self._stepped = True
    self._waiting_since = time.monotonic()

  def finish(self) -> None:
    self._over = True
    self._waiting_since = time.monotonic()

  def closed(self) -> None:
    self._over = self._closed = True

  def is_lost(self, name: str) -> bool:
    """Tells whether a task is cut off, or has ended and not come back for `start_timeout`.

    Only time without a step counts, except for the chief, which alone saves.
    """
    now = time.monotonic()
    waiting_since = -math.inf if name == CHIEF else self._waiting_since
    gone = now - max(self._gone_since.get(name, math.inf), waiting_since)
    return gone >= self._start_timeout or self._is_cut_off(name, now)

  def _is_cut_off(self, name: str, now: float) -> bool:
    """Tells whether nothing answers, or a cut is mended and this process waits all the same."""
    waiting_since = -math.inf if name == CHIEF else self._waiting_since
    silent = now - max(self._silent_since.get(name, math.inf), waiting_since)
    back_since = self._back_since.get(name, math.inf)
    hangs = self._waiting_since < back_since <= now - CUT_SECONDS and not self._serves
    return hangs or silent >= CUT_SECONDS + _SAVE_SECONDS * self._serves

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
    every = 0 if self._all_reduce or self._never_seen else _LOOK_SECONDS
    if self._closed or not self._peers or now - self._looked < every:
      return
    self._looked = now
    missing = sockets.knock_at_all(self._peers)
    self._note(missing, now)
    if self._over:
      self._give_up_on_closing()
      return
    is_starting = now - self._started < self._start_timeout
    if not is_starting:
      self._give_up_on_missing()
    if self._all_reduce and not self._never_seen:
      self._give_up_on_ended(missing, now - self._waiting_since)
    if now - self._reported >= _REPORT_SECONDS:
      self._reported = now
      self._report(missing, now - self._waiting_since, is_starting)
    self._give_up_on_lost()

  def _note(self, missing: Mapping[str, OSError], now: float) -> None:
    """Keeps who was seen, and since when others are gone."""
    self._never_seen = {name: at for name, at in self._never_seen.items() if name in missing}
    gone = missing.keys() - self._never_seen.keys()
    silent = {name for name in gone if sockets.is_silent(missing[name])}
    for name, since in self._silent_since.items():
      if name not in gone and now - since > 2 * _LOOK_SECONDS:
        self._back_since[name] = now
    self._gone_since = {name: self._gone_since.get(name, now) for name in gone}
    self._silent_since = {name: self._silent_since.get(name, now) for name in silent}

  def _report(self, missing: Iterable[str], waited: float, is_starting: bool) -> None:
    gone = self._gone_since.keys()
    if waited < _REPORT_SECONDS:  # Steps are made: asynchronous workers need no other but to save.
      if self._stepped and CHIEF in gone:
        log.info('cannot reach %s, which alone saves', self._listed([CHIEF]))
      missing = self._never_seen if is_starting else ()
    if names := [name for name in self._peers if name in missing]:
      log.info('waiting for %s', self._listed(names))
    elif waited >= _LONG_SECONDS and not self._serves:
      log.info('no step for %.0f s, and all tasks answer: one evaluates or hangs', waited)

  def _give_up_on_ended(self, missing: Mapping[str, OSError], waited: float) -> None:
    """Ends the process if another task has ended: an all-reduce would wait for it forever.

    Or if one was started again alone: both would wait. The server of a task that has made a step
    listens as long as the task lives.
    """
    if waited < _FIRST_LOOK_SECONDS:  # A task that was started again does not listen so soon.
      self._ended, self._times_ended = set(), {}
      return
    ended = {name for name, error in missing.items() if not sockets.is_silent(error)}
    back = self._ended - missing.keys() if self._stepped else set()
    self._ended = ended
    # Between steps others may have ended well.
    counts = waited >= _LOST_SECONDS and (self.in_step or not self._stepped)
    self._times_ended = {name: self._times_ended.get(name, 0) + 1 for name in ended if counts}
    lost = [name for name, times in self._times_ended.items() if times >= _LOST_LOOKS]
    if lost or back:
      what = 'was lost and started again alone' if back else 'is gone'
      self._end(
        f'{self._listed(back or lost)} {what}, and all-reduce needs every task; start all tasks '
        'again: they go on from the last checkpoint'
      )

  def _give_up_on_lost(self) -> None:
    """Ends a training that needs lost tasks, or its chief; a chief that can still save does so."""
    lost = [name for name in self._peers if self.is_lost(name)]
    if self._serves:  # Who ended may come back: parameter_server.py has for whom it waits.
      lost = [name for name in lost if self._is_cut_off(name, time.monotonic())]
    if self._needs(lost):
      self.lost = self.lost_tasks(lost)
      self.stopping = True
      self._end_or_exit(self.lost, TaskLostError.code)

  def _give_up_on_closing(self) -> None:
    """Ends a process whose steps are done, but whose session waits for a lost task."""
    if lost := [name for name in self._peers if self.is_lost(name)]:
      self._end(f'the training is over, but cannot be closed: {self.lost_tasks(lost)}')

  def _give_up_on_missing(self) -> None:
    """Ends the process if it has made no step because a task that it needs never came."""
    if not self._stepped and self._needs(self._never_seen):
      self._end(
        f'{self._listed(self._never_seen)} did not come up in {self._start_timeout:g} s; start '
        'what is missing, or raise --start-timeout'
      )

  def _needs(self, names: Collection[str]) -> bool:
    """Tells whether training cannot go on without these tasks: more than the spare workers."""
    workers = [name for name in names if name.startswith('worker')]
    return len(workers) > self._spare_workers or len(workers) < len(names)

  def _end(self, message: str) -> None:
    end_process(message, TaskLostError.code)

  def _door(self) -> socket.socket:
    """Listens at this task's port; raises InputError if it cannot."""
    cluster = self._cluster
    _, port = sockets.place(cluster.addresses[cluster.task_type][cluster.task_index])
    try:
      return sockets.listen(port)
    except OSError as error:
      raise InputError(
        f'TF_CONFIG: cluster.{cluster.task_type} has port {port}, where this process cannot listen '
        f'({error.strerror}); name a free one'
      ) from None

  def _let_in(self, door: socket.socket) -> None:
    """Accepts the connections of an evaluator, which asks so whether this chief is alive."""
    door.settimeout(1)  # Between two checks whether the context has ended.
    with door:
      while not self._left.is_set():
        with contextlib.suppress(OSError):  # Nobody came, or who knocked has left.
          door.accept()[0].close()

  def lost_tasks(self, names: Collection[str]) -> str:
    """Returns a message with lost tasks' names and addresses, and the remedy."""
    listed = self._listed(names)
    if any(self._is_cut_off(name, time.monotonic()) for name in names):
      return f'{listed} was cut off for {CUT_SECONDS} s; start all tasks again'
    return (
      f'waited {self._start_timeout:g} s: {listed} cannot be reached; start what is missing, and '
      'this task again, or raise --start-timeout'
    )

  def _listed(self, names: Iterable[str]) -> str:
    """Formats tasks as 'ps 0 (host:1), worker 1 (host:2)'."""
    return ', '.join(f'{name} ({self._peers[name]})' for name in names)


def peers(cluster: Cluster) -> dict[str, str]:
  """Returns the addresses of the other tasks, by name."""
  return {
    f'{job} {index}': address
    for job, addresses in cluster.addresses.items()
    for index, address in enumerate(addresses)
    if (job, index) != (cluster.task_type, cluster.task_index)
  }
