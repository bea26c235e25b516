"""Missing tasks are named and given up; between hosts with cables: tests/test_hosts.py."""

import contextlib
import socket
import threading
import time
from unittest import mock

import pytest
from outcome import still_waiting

from cifar10.cluster import liveness
from cifar10.cluster.liveness import _SILENT as SILENT
from cifar10.cluster.liveness import ENDED, LivenessMonitor, knock, reachable
from cifar10.cluster.tf_config import Cluster
from cifar10.core.errors import InputError, TaskLostError

SERVED = Cluster({'chief': ('c:1',), 'worker': ('w:1', 'w:2'), 'ps': ('p:1',)})
REDUCED = Cluster({'chief': ('c:1',), 'worker': ('w:1',)})


class Watched:
  """A monitor whose time and whose others a test sets; it starts at 100, with all others there."""

  def __init__(self, monkeypatch, cluster, spare=0, seen=True):
    self.now, self.absent, self.woken = 100.0, {}, threading.Event()
    monkeypatch.setattr(liveness.time, 'monotonic', lambda: self.now)
    self.monitor = LivenessMonitor(cluster, spare, 120)
    self.monitor.wake = self.woken.set
    self.monitor._left.set()  # Else it would wait for the end of this process.
    if seen:
      self.look(100)

  def look(self, *seconds, steps=False, **absent):
    """Looks at these times, each with these tasks absent, `ps_0` for 'ps 0', and after a step."""
    self.absent = {name.replace('_', ' '): error for name, error in absent.items()}
    for second in seconds:
      self.now = second
      if steps:
        self.monitor.progressed()
      for name in self.monitor._found:
        self.monitor._note(name, self.absent.get(name, liveness._HERE))
      self.monitor._look()

  def lost(self):
    """What the main thread is told, and wakes up for; '' if nothing."""
    assert self.monitor.stopping == bool(self.monitor.lost)
    if self.monitor.stopping:
      assert self.woken.wait(1)
      with pytest.raises(TaskLostError):
        self.monitor.check()
    return self.monitor.lost


@pytest.fixture
def watched(monkeypatch):
  return lambda *arguments, **settings: Watched(monkeypatch, *arguments, **settings)


CUT_SHORTLY, CUT = (106, 124, 142, 160), (106, 124, 142, 160, 168)


@pytest.mark.parametrize(
  ('own', 'spare', 'steps', 'absent', 'looks', 'says'),
  [
    ('chief', 0, False, {'ps_0': SILENT}, CUT_SHORTLY, ''),
    ('chief', 0, False, {'ps_0': SILENT}, CUT, 'ps 0 (p:1) was cut off for 60 s'),
    ('chief', 1, False, {'worker_1': SILENT}, CUT, ''),  # A backup worker.
    ('chief', 1, False, {'worker_0': SILENT, 'worker_1': SILENT}, CUT, 'worker 0 (w:1), worker 1'),
    ('worker', 2, True, {'chief_0': SILENT}, CUT, 'chief 0 (c:1) was cut off'),  # It alone saves.
    ('worker', 2, True, {'worker_1': SILENT}, CUT, ''),
    # A server gives the chief time to save. Ended tasks may come back, and it waits for them.
    ('ps', 0, False, {'worker_1': SILENT}, CUT, ''),
    ('ps', 0, False, {'worker_1': SILENT}, (*CUT, 178), 'worker 1 (w:2) was cut off'),
    ('ps', 0, False, {'worker_1': ENDED}, (*CUT, 230), ''),
    # A task that has ended has --start-timeout, 120 s, to come back.
    ('chief', 0, False, {'ps_0': ENDED}, (106, 225), ''),
    ('chief', 0, False, {'ps_0': ENDED}, (106, 225, 231), 'waited 120 s: ps 0 (p:1) cannot be'),
    ('worker', 2, True, {'chief_0': ENDED}, (106, 226), 'waited 120 s: chief 0 (c:1) cannot be'),
  ],
)
def test_who_is_cut_off_or_ended_is_given_up(watched, own, spare, steps, *, absent, looks, says):
  watch = watched(Cluster(SERVED.addresses, own), spare)
  watch.look(*looks, steps=steps, **absent)
  assert watch.lost().startswith(says)
  assert bool(watch.lost()) == bool(says)


def test_only_time_without_a_step_counts(watched):
  watch = watched(SERVED)
  watch.look(110, 130, ps_0=SILENT)
  watch.monitor.progressed()
  watch.look(150, 185, ps_0=SILENT)
  assert not watch.lost()
  watch.look(192, ps_0=SILENT)
  assert watch.lost()


@pytest.mark.parametrize('steps', [False, True])
def test_a_mended_cut_after_which_no_step_comes(watched, steps):
  """TensorFlow may wait for an answer that was lost. A step shows that it does not."""
  watch = watched(SERVED)
  watch.look(110, 121, 132, ps_0=SILENT)
  watch.look(140)
  watch.look(150, steps=steps)
  watch.look(199)
  assert not watch.lost()
  watch.look(205, 300)
  assert bool(watch.lost()) != steps


@pytest.mark.parametrize(
  ('own', 'spare', 'absent', 'is_lost'),
  [
    ('chief', 0, {'worker_1': ENDED}, True),
    ('chief', 1, {'worker_1': ENDED}, False),  # A backup worker may be missing,
    ('chief', 1, {'ps_0': SILENT}, True),  # a parameter server never.
    ('ps', 0, {'worker_1': SILENT}, True),
  ],
)
def test_gives_up_on_who_never_comes(watched, own, spare, absent, is_lost):
  watch = watched(Cluster(SERVED.addresses, own), spare, seen=False)
  watch.look(101, 160, 219, **absent)
  assert not watch.lost()
  watch.look(220, **absent)
  assert bool(watch.lost()) == is_lost


def test_nobody_is_needed_once_the_session_is_closed(watched):
  watch = watched(SERVED)
  watch.monitor.closed = True
  watch.look(110, 300, ps_0=SILENT)
  assert not watch.lost()


def test_all_reduce_gives_up_on_who_has_ended(watched):
  """Eight seconds after its end or the last step, within a step: between two it may save."""
  watch = watched(REDUCED)
  watch.look(101, 108.9, worker_0=ENDED)
  assert not watch.lost()
  watch.look(109, worker_0=ENDED)
  assert 'worker 0 (w:1) is gone, and all-reduce needs every task' in watch.lost()
  watch = watched(REDUCED)
  watch.monitor.progressed()
  watch.look(106, 120, worker_0=ENDED)
  assert not watch.lost()
  watch.monitor.in_step = True
  watch.look(121, worker_0=ENDED)
  assert watch.lost()


def test_all_reduce_sees_a_task_that_was_started_again_alone(watched):
  """Nobody listened within a step, and then somebody does: the step never ends."""
  watch = watched(REDUCED)
  watch.monitor.progressed()
  watch.monitor.in_step = True
  watch.look(101, 102, worker_0=ENDED)
  watch.look(103, 150)
  assert not watch.lost()
  watch.look(163)
  assert 'worker 0 (w:1) was cut off' in watch.lost()


@pytest.mark.parametrize(
  ('own', 'steps', 'absent', 'looks', 'says'),
  [
    ('chief', False, {'worker_0': ENDED, 'ps_0': ENDED}, (110, 115), ['waiting for ps 0 (p:1)']),
    ('chief', False, {'worker_0': ENDED}, (115,), []),  # It may be missing.
    ('worker', True, {'worker_1': ENDED, 'chief_0': ENDED}, (115,), ['waiting for chief 0 (c:1)']),
    ('chief', True, {'worker_0': ENDED}, (115,), []),
  ],
)  # fmt: skip
def test_what_the_log_says_every_15_seconds(watched, caplog, own, *, steps, absent, looks, says):
  caplog.set_level('INFO', logger='cifar10')
  watched(Cluster(SERVED.addresses, own), 2).look(*looks, steps=steps, **absent)
  assert [line[: len(says[0])] for line in caplog.messages] == says


@pytest.fixture
def addresses():
  """'here' has a listener, nobody listens at 'nowhere', and at 'silent' nothing answers."""
  with contextlib.ExitStack() as stack:
    here = stack.enter_context(socket.create_server(('127.0.0.1', 0)))
    nowhere = stack.enter_context(socket.socket())
    nowhere.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    nowhere.bind(('127.0.0.1', 0))
    silent = stack.enter_context(socket.create_server(('127.0.0.1', 0), backlog=0))
    for _ in range(3):  # More than its queue takes: a further one waits, as for a host that is off.
      waiting = stack.enter_context(socket.socket())
      waiting.setblocking(False)
      waiting.connect_ex(silent.getsockname())
    doors = {'here': here, 'nowhere': nowhere, 'silent': silent}
    yield {name: f'127.0.0.1:{door.getsockname()[1]}' for name, door in doors.items()}


def test_what_a_knock_finds(addresses, monkeypatch):
  assert reachable(addresses['here'])
  assert knock(addresses['nowhere']) == ENDED
  assert knock(addresses['silent']) == SILENT
  assert knock('chief-0..default.svc:1') == ENDED  # Where a variable of a shell was empty.
  for number, found in ((socket.EAI_NONAME, ENDED), (socket.EAI_AGAIN, SILENT)):
    error = socket.gaierror(number, 'no such host, or no server of names')
    monkeypatch.setattr(socket, 'create_connection', mock.Mock(side_effect=error))
    assert knock('host:1') == found


def knock_often(place):
  for _ in range(200):  # More than can wait at a door: each is let in.
    assert reachable(place)
    time.sleep(0.01)  # A task knocks a few times a second; who lets in needs a moment.


@pytest.mark.timeout(20)
def test_a_chief_without_workers_can_be_reached_by_an_evaluator(addresses):
  place = addresses['nowhere']
  with LivenessMonitor(Cluster({'chief': (place,)}, has_evaluator=True)):
    knock_often(place)
  assert not reachable(place)


def test_a_port_that_another_has_is_refused(addresses):
  taken = Cluster({'chief': (addresses['nowhere'],), 'ps': (addresses['here'],)}, 'ps')
  with pytest.raises(InputError, match=r'cluster\.ps has port'), LivenessMonitor(taken):
    pass


def test_all_reduce_waits_until_everyone_listens(addresses):
  with socket.socket() as own:
    own.bind(('127.0.0.1', 0))
    port = own.getsockname()[1]
  cluster = Cluster({'chief': (f'127.0.0.1:{port}',), 'worker': (addresses['nowhere'],)})
  waiting = still_waiting(LivenessMonitor(cluster).wait_for_peers, 1)
  knock_often(f'127.0.0.1:{port}')  # It can be seen itself meanwhile.
  worker = int(addresses['nowhere'].rpartition(':')[2])
  with socket.create_server(('127.0.0.1', worker), reuse_port=True):
    waiting.join(5)
  assert not waiting.is_alive()
