"""Liveness of the other tasks of a cluster: names who is missing, gives up on who is lost.

TensorFlow waits for a missing task without a line in the log, and where a cable is cut for good,
even after it is mended. So threads knock at every task's address:

- Nothing answers, for `CUT_SECONDS`: the task is cut off. Who needs it ends, to be started again.
- It answers again, but in `CUT_SECONDS` no step follows: TensorFlow waits for what was lost.
- The host answers that nobody listens: the task has ended. It has `start_timeout` to come back; an
  all-reduce cannot go on without it, and ends soon.
- It listens, and no longer greets who connects, as TensorFlow's server does: the task hangs.
- It says why it was refused, by a mistake before its first step: who needs it ends.
"""

import contextlib
import functools
import math
import socket
import threading
import time
from collections.abc import Callable, Collection

from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tf_config import Cluster
from cifar10.core.errors import InputError, TaskLostError
from cifar10.core.logs import log

CUT_SECONDS = 60  # Without any answer. A shorter cut ends nothing.
_KNOCK_SECONDS = 2  # From one knock at who is missing to the end of the next.
_SAVE_SECONDS = 10  # More for a server: the chief saves what is there before it ends.
_REDUCE_SECONDS = 8  # All-reduce: a starting task may not listen at once.
_REPORT_SECONDS = 15  # Between two log lines on missing tasks.
_LOOK_SECONDS = 5  # Between two knocks at who is there; at others, a second.
_TELL_SECONDS = 15  # For the other tasks to hear why this one was refused: some may start later.
_REFUSED = b'refused: '
CHIEF = 'chief 0'
# What a task is found to be: `_NEW` until it is seen, `_BACK` from the end of a cut to a step.
_NEW, _HERE, _SILENT, _BACK, ENDED = range(5)


class LivenessMonitor(SignalMonitor):
  """Asks which other tasks can be reached, logs the missing ones, and gives up at a limit."""

  def __init__(self, cluster: Cluster, spare_workers: int = 0, start_timeout: float = 600):
    """`spare_workers` says how many workers may be missing while the others train.

    Further missing tasks have `start_timeout` seconds to start or come back.
    """
    super().__init__()
    self._cluster = cluster
    self._serves = cluster.task_type == 'ps'
    self._spare_workers = spare_workers
    self._start_timeout = start_timeout
    self._began = self._reported = time.monotonic()
    self._found = dict.fromkeys(cluster.peers, (_NEW, self._began))  # And since when.
    self._hangs: dict[str, bool] = {}  # Only of tasks that have once greeted.
    self._refusals: dict[str, str] = {}  # Of whom, and why.
    self._door: socket.socket | None = None  # Of a chief alone, for its evaluator.

  def __enter__(self) -> 'LivenessMonitor':
    """As its base does, and looks for the tasks; InputError: it cannot listen at its port."""
    cluster = self._cluster
    if cluster.is_distributed:
      self._listen().close()  # TensorFlow's server needs the port.
    elif cluster.is_chief and cluster.has_evaluator:
      self._door = self._listen()
      threading.Thread(target=_let_in, args=[self._door], daemon=True).start()
    super().__enter__()
    for name in cluster.peers:
      threading.Thread(target=self._watch, args=[name], daemon=True).start()
    threading.Thread(target=self._decide, daemon=True).start()
    return self

  def __exit__(self, *exception: object) -> None:
    if isinstance(exception[1], InputError) and self._cluster.peers and not self._stepped_at:
      self.closed = True
      with contextlib.suppress(InputError):  # TensorFlow's server may have the port.
        self._tell_of(exception[1])
    if self._door:
      with contextlib.suppress(OSError):  # Closing alone would not wake who waits there.
        self._door.shutdown(socket.SHUT_RDWR)
      self._door.close()
    super().__exit__(*exception)

  def _tell_of(self, mistake: InputError) -> None:
    """Tells the other tasks, which knock here, why this one never trains."""
    log.info('refused; telling the other tasks, for %d s at most', _TELL_SECONDS)
    told: set[bytes] = set()
    deadline = time.monotonic() + _TELL_SECONDS
    with self._listen() as door:
      door.settimeout(1)
      while len(told) < len(self._found) and time.monotonic() < deadline and not self.stopping:
        with contextlib.suppress(OSError), door.accept()[0] as other:
          other.settimeout(1)
          other.sendall(_REFUSED + str(mistake).encode())
          told.add(other.recv(100))  # Its name; nothing, if it only asked who listens.
          told.discard(b'')

  def wait_for_peers(self) -> None:
    """Waits until all tasks listen, as this one does meanwhile; raises what `check` does."""
    with self._listen() as door:
      door.setblocking(False)
      while not all(map(reachable, self._cluster.peers.values())):
        self.check()
        _let_in(door)
        time.sleep(0.25)
    self._began = time.monotonic()

  def is_lost(self, name: str) -> bool:
    """Tells whether a task is cut off, or has not come or come back for `start_timeout`.

    Only time without a step counts, except for the chief, which alone saves.
    """
    found, since = self._found[name]
    if name != CHIEF:
      since = max(since, self._waiting_since)
    # Between the steps of an all-reduce others may have ended well.
    needs_all = self._cluster.is_reduced and (self.in_step or not self._stepped_at)
    seconds = {
      _HERE: math.inf,
      _SILENT: CUT_SECONDS + _KNOCK_SECONDS + _SAVE_SECONDS * self._serves,
      _BACK: math.inf if self._serves else CUT_SECONDS,  # A server hears of no step.
      ENDED: _REDUCE_SECONDS if needs_all else self._start_timeout,
      _NEW: self._start_timeout,
    }
    return name in self._refusals or time.monotonic() - since >= seconds[found]

  @property
  def _waiting_since(self) -> float:
    return max(self._began, self._stepped_at)

  def _watch(self, name: str) -> None:
    """Knocks at a task's address until this process ends."""
    is_here = False
    while not self._left.wait(_LOOK_SECONDS if is_here else 1):
      self._note(name, knock(self._cluster.peers[name], functools.partial(self._hear, name)))
      is_here = self._found[name][0] == _HERE and not self._cluster.is_reduced

  def _hear(self, name: str, door: socket.socket) -> None:
    """Hears what a task says to who connects: TensorFlow's greeting, or why it was refused."""
    said = b''
    with contextlib.suppress(OSError):  # Nothing within a second.
      said = door.recv(4096)
    if said.startswith(_REFUSED):
      door.sendall(self._cluster.name.encode())
      if name not in self._hangs:  # Else it was started again: another try may be better.
        self._refusals[name] = said.removeprefix(_REFUSED).decode(errors='replace')
    elif said or name in self._hangs:
      self._hangs[name] = not said
      self._refusals.pop(name, None)

  def _note(self, name: str, found: int) -> None:
    """Keeps what a knock found, and since when that is so."""
    before, since = self._found[name]
    now = time.monotonic()
    if found != _HERE:
      if name in self._hangs:
        self._hangs[name] = False
      found = _NEW if before == _NEW else found
    else:
      was_cut = before == _SILENT and now - since > 2 * _LOOK_SECONDS
      # One that an all-reduce needs was started again alone: both would wait.
      was_cut |= before == ENDED and self._cluster.is_reduced and self._stepped_at > 0
      stays = before == _BACK and self._waiting_since < since
      found = _BACK if was_cut or stays else _HERE
    if found != before:
      self._found[name] = (found, now)

  def _decide(self) -> None:
    while not self._left.wait(1):
      self._look()

  def _look(self) -> None:
    """Reports who is missing, and ends a process that cannot go on without who is lost."""
    if self.closed:
      return
    if time.monotonic() - self._reported >= _REPORT_SECONDS:
      self._reported = time.monotonic()
      missing = [
        name
        for name, (found, _) in self._found.items()
        if found not in (_HERE, _BACK) or self._hangs.get(name)
      ]
      if time.monotonic() - self._waiting_since < _REPORT_SECONDS:  # Steps are made, if not saved.
        missing = [name for name in missing if name == CHIEF]
      if needed := self._needed(missing):
        log.info('waiting for %s', self._listed(needed))
    lost = [name for name in self._found if self.is_lost(name)]
    if self._serves:  # Who has ended may come back: `parameter_server.serve` has for whom it waits.
      lost = [name for name in lost if self._found[name][0] != ENDED or name in self._refusals]
    if lost := self._needed(lost):
      self.lost, self.stopping = self.lost_tasks(lost), True
      self._end_or_exit(self.lost, TaskLostError.code)

  def _needed(self, names: list[str]) -> list[str]:
    """Returns those of the tasks without which this one cannot go on."""
    workers = [name for name in names if name.startswith('worker')]
    spared = workers if len(workers) <= self._spare_workers else []
    return [name for name in names if name not in spared]

  def lost_tasks(self, names: Collection[str]) -> str:
    """Returns a message with lost tasks' names and addresses, and the remedy."""
    listed, found = self._listed(names), {self._found[name][0] for name in names}
    if reasons := [self._refusals[name] for name in names if name in self._refusals]:
      return f'{listed} was refused: {reasons[0]}'
    if found & {_SILENT, _BACK}:
      return f'{listed} was cut off for {CUT_SECONDS} s; start all tasks again'
    if ENDED in found and self._cluster.is_reduced:
      return f'{listed} is gone, and all-reduce needs every task; start all tasks again'
    return (
      f'waited {self._start_timeout:g} s: {listed} cannot be reached; start what is missing, and '
      'this task again, or raise --start-timeout'
    )

  def _listed(self, names: Collection[str]) -> str:
    """Formats tasks as 'ps 0 (host:1), worker 1 (host:2), which hangs'."""
    return ', '.join(
      f'{name} ({self._cluster.peers[name]}){", which hangs" * self._hangs.get(name, False)}'
      for name in names
    )

  def _listen(self) -> socket.socket:
    """Listens at this task's port; raises InputError if it cannot."""
    cluster = self._cluster
    port = int(cluster.addresses[cluster.task_type][cluster.task_index].rpartition(':')[2])
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
  """Accepts who knocks; else a queue of some 130 fills, and this task seems cut off.

  A door that does not block is left once nobody waits at it, any other once it is closed.
  """
  with contextlib.suppress(OSError):
    while True:
      door.accept()[0].close()


def reachable(address: str) -> bool:
  """Tells whether a process listens at 'host:port'."""
  return knock(address) == _HERE


def knock(address: str, hear: Callable[[socket.socket], None] = lambda door: None) -> int:
  """Connects to 'host:port' and hangs up; returns whether the task is `_HERE` or has `ENDED`.

  Or `_SILENT`: nothing answered, for the cable is cut, or the host is off. Where a host answers
  that nobody listens, its kernel has ended the connections of who did. A name that nobody knows is
  of no host; one that cannot be asked for may be. `hear` is called with the connection.
  """
  host, _, port = address.rpartition(':')
  try:
    with socket.create_connection((host.strip('[]'), int(port)), timeout=1) as door:
      hear(door)
  except (OSError, UnicodeError) as error:
    is_unknown = isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN
    # UnicodeError: a name with an empty part, which no host can have.
    ended = is_unknown or isinstance(error, (ConnectionRefusedError, UnicodeError))
    return ENDED if ended else _SILENT
  return _HERE
