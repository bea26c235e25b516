"""Signals reach a main thread that is inside TensorFlow; missing tasks are named and given up."""

import contextlib
import errno
import os
import signal
import socket
import threading
import time

import checkout
import pytest
from outcome import until

from cifar10.cluster import liveness, sockets
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.sockets import reachable
from cifar10.cluster.tasks import Cluster
from cifar10.core.errors import InputError, TaskLostError, Terminated


@pytest.mark.timeout(10)
def test_sigterm_wakes_a_main_thread_that_is_blocked():
  """Event.wait stands for a blocked session: no Python signal handler could set the event."""
  woken = threading.Event()
  with SignalMonitor() as monitor:
    monitor.call_on_stop(woken.set)
    monitor.check()
    os.kill(os.getpid(), signal.SIGTERM)
    assert woken.wait(5)
    assert monitor.stopping
    with pytest.raises(Terminated):
      monitor.check()


@pytest.mark.timeout(10)
def test_signals_are_heard_after_a_failed_look(caplog):
  """As where no thread can be started: one line, and SIGTERM is heard after it."""
  looked = threading.Event()

  class Blind(SignalMonitor):
    def _look(self):
      if self._looks == 2:
        looked.set()
      self._looks += 1
      raise RuntimeError("can't start new thread")

    _looks = 0

    def _listen(self, receiver, seconds=1):
      return super()._listen(receiver, 0.1)

  woken = threading.Event()
  with Blind() as monitor:
    monitor.call_on_stop(woken.set)
    assert looked.wait(5)
    os.kill(os.getpid(), signal.SIGTERM)
    assert woken.wait(5)
  lines = [record.getMessage() for record in caplog.records]
  assert lines.count("other tasks cannot be watched: can't start new thread") == 1


def test_handlers_of_c_code_stay(monkeypatch):
  """Where a program that embeds Python has set them, which Python can neither name nor restore."""
  monkeypatch.setattr(signal, 'getsignal', lambda number: None)
  monkeypatch.setattr(signal, 'signal', lambda *handler: pytest.fail(f'replaced: {handler}'))
  with SignalMonitor() as monitor:
    monitor.listen()


def test_sockets_without_the_options_are_left_alone(monkeypatch):
  """As those of Multipath TCP are."""
  asked = []

  class Plain:
    def getsockopt(self, *option):
      asked.append(option)
      raise OSError(errno.EOPNOTSUPP, 'not supported')

  monkeypatch.setattr(sockets, '_tcp_sockets', lambda: [Plain(), Plain()])
  sockets.watch_over()
  assert asked == 2 * [(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)]


@pytest.mark.timeout(10)
@pytest.mark.usefixtures('hears_ctrl_c')
def test_the_first_ctrl_c_wakes_it_too_and_the_second_is_a_keyboard_interrupt():
  woken = threading.Event()
  with SignalMonitor() as monitor:
    monitor.call_on_stop(woken.set)
    os.kill(os.getpid(), signal.SIGINT)
    assert woken.wait(5)
    with pytest.raises(Terminated, match='SIGINT') as end:
      monitor.check()
    assert end.value.exit_code == 130
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
      time.sleep(5)


@pytest.mark.timeout(10)
def test_a_hangup_that_the_user_handles_ends_nothing():
  heard = []
  before = signal.signal(signal.SIGHUP, lambda number, frame: heard.append(number))
  try:
    with SignalMonitor() as monitor:
      os.kill(os.getpid(), signal.SIGHUP)
      time.sleep(1)
      monitor.check()
  finally:
    signal.signal(signal.SIGHUP, before)
  assert heard == [signal.SIGHUP]


def test_ctrl_c_that_is_ignored_stays_so():
  before = signal.signal(signal.SIGINT, signal.SIG_IGN)
  try:
    with SignalMonitor() as monitor:
      os.kill(os.getpid(), signal.SIGINT)
      monitor.check()
      assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
  finally:
    signal.signal(signal.SIGINT, before)


@pytest.mark.timeout(30)
def test_sigterm_is_heard_while_many_tasks_do_not_answer(addresses, monkeypatch):
  """Each would be waited for a second, one after the other, and the 14 seconds begin after that."""
  monkeypatch.setattr(liveness, 'REPORT_SECONDS', 0.5)
  with contextlib.ExitStack() as stack:
    holes = tuple(_silent(stack) for _ in range(40))
    cluster = Cluster({'chief': (addresses['nowhere'],), 'ps': holes})
    with LivenessMonitor(cluster) as monitor:
      time.sleep(2)  # It is looking for them.
      os.kill(os.getpid(), signal.SIGTERM)
      until(lambda: monitor.stopping, 10)


def _silent(stack):
  """An address that lets every connection wait, like a host that is off."""
  server = stack.enter_context(socket.create_server(('127.0.0.1', 0), backlog=0))
  for _ in range(3):
    waiting = stack.enter_context(socket.socket())
    waiting.setblocking(False)
    waiting.connect_ex(server.getsockname())
  return f'127.0.0.1:{server.getsockname()[1]}'


@pytest.mark.timeout(20)
@pytest.mark.parametrize('host', ['127.0.0.1', '[::1]', 'another-host'])
def test_a_chief_without_workers_can_be_reached_by_an_evaluator(addresses, host):
  if host != '127.0.0.1':
    try:
      socket.create_server(('::1', 0), family=socket.AF_INET6).close()
    except OSError:
      pytest.skip('this system has no IPv6')
  place = addresses['nowhere'].replace('127.0.0.1', host)
  chief = Cluster({'chief': (place,)}, has_evaluator=True)
  if '.' not in host:  # The door of a cluster of several hosts is open to both kinds of addresses.
    addresses['nowhere'] = (
      place if ':' in host else addresses['nowhere'].replace('127.0.0.1', '::1')
    )
  with LivenessMonitor(chief):
    for _ in range(200):  # More than can wait at a door: each is let in.
      assert reachable(addresses['nowhere'])
      time.sleep(0.005)  # An evaluator knocks once a second; the watch's thread needs a moment.
  until(lambda: not reachable(addresses['nowhere']), 5)


@pytest.mark.parametrize(
  ('job', 'tasks'),
  [('chief', ['chief']), ('worker', ['chief', 'ps', 'worker']), ('ps', ['chief', 'ps'])],
)
def test_a_port_that_another_has_is_refused(addresses, job, tasks):
  listed = {each: (addresses['here' if each == job else 'nowhere'],) for each in tasks}
  taken = Cluster(listed, job, has_evaluator=True)
  with (
    pytest.raises(InputError, match=f'cluster.{job} has port .*cannot listen .*name a free one'),
    LivenessMonitor(taken),
  ):
    pass


@pytest.mark.usefixtures('hears_ctrl_c')
def test_leaving_puts_signals_back():
  numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
  before = [signal.getsignal(number) for number in numbers]
  with SignalMonitor():
    for number, handler in zip(numbers, before):
      assert signal.getsignal(number) != handler
  assert [signal.getsignal(number) for number in numbers] == before
  assert signal.set_wakeup_fd(-1) == -1


@pytest.fixture
def addresses():
  """'here' has a listener; nobody listens at 'nowhere', and nobody else can."""
  with socket.create_server(('127.0.0.1', 0)) as here, socket.socket() as nowhere:
    nowhere.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    nowhere.bind(('127.0.0.1', 0))
    yield {
      name: f'127.0.0.1:{each.getsockname()[1]}'
      for name, each in {'here': here, 'nowhere': nowhere}.items()
    }


@pytest.fixture
def now(monkeypatch):
  """The time, which a test sets."""
  moment = [100.0]
  monkeypatch.setattr('cifar10.cluster.liveness.time.monotonic', lambda: moment[0])
  return moment


@pytest.fixture
def said(monkeypatch):
  """With which lines the process would have ended."""
  lines = []
  monkeypatch.setattr('cifar10.cluster.liveness.end_process', lines.append)
  return lines


GIVES_UP = """
import time
from cifar10.cluster.tasks import Cluster
from cifar10.cluster.liveness import LivenessMonitor
with LivenessMonitor(Cluster({cluster!r}), {spare}, start_timeout=1) as monitor:
  {before}
  time.sleep(4)
print('went on')
"""


@pytest.mark.parametrize(
  ('tasks', 'spare', 'before', 'gives_up'),
  [
    (('here', ['nowhere']), 0, '', True),
    (('here', ['nowhere']), 1, '', False),  # A backup worker may be missing,
    (('here', ['nowhere', 'nowhere']), 1, '', True),  # but not two;
    (('nowhere', ['here']), 1, '', True),  # a parameter server never.
    (('here', ['here']), 0, '', False),
    (('nowhere', ['here']), 0, 'monitor.progressed()', False),  # It was there: steps were made.
    (('nowhere', ['here']), 0, 'monitor.closed()', False),
  ],
)
def test_gives_up_on_who_never_comes(addresses, tasks, spare, before, gives_up):
  ps, workers = tasks
  cluster = {
    'chief': (addresses['nowhere'],),
    'ps': (addresses[ps],),
    'worker': tuple(addresses[worker] for worker in workers),
  }
  script = GIVES_UP.format(cluster=cluster, spare=spare, before=before or 'pass')
  result = checkout.python('-c', script, timeout=30)
  if not gives_up:
    assert (result.returncode, result.stdout) == (0, 'went on\n')
    return
  assert result.returncode == 1
  address = addresses['nowhere']
  missing = 'ps 0' if ps == 'nowhere' else 'worker 0'
  assert f'error: {missing} ({address})' in result.stderr
  assert 'did not come up in 1 s' in result.stderr
  assert '--start-timeout' in result.stderr


def test_gives_up_on_a_session_that_waits_for_who_is_gone(addresses):
  """Training is over, but to close its session TensorFlow asks the parameter server."""
  cluster = {'chief': (addresses['nowhere'],), 'ps': ('127.0.0.1:1',)}
  script = GIVES_UP.format(cluster=cluster, spare=0, before='monitor.finish()')
  result = checkout.python('-c', script, timeout=30)
  assert result.returncode == 1
  assert 'error: the training is over, but not closed in 1 s: ps 0' in result.stderr


@pytest.mark.parametrize(
  ('tasks', 'spare', 'lost'),
  [
    (('nowhere', ['here']), 1, 'ps 0'),
    (('here', ['nowhere', 'here']), 0, 'worker 0'),
    (('here', ['nowhere', 'here']), 1, ''),  # A backup worker: something else is the matter.
  ],
)
def test_ends_when_who_is_needed_does_not_come_back(addresses, tasks, spare, lost, now):
  """Only tasks that were away for the whole time without a step; the main thread saves first."""
  ps, workers = tasks
  cluster = {
    'chief': ('127.0.0.1:1',),
    'ps': (addresses[ps],),
    'worker': tuple(addresses[worker] for worker in workers),
  }
  monitor = LivenessMonitor(Cluster(cluster), spare, start_timeout=60)
  woken = []
  monitor.call_on_stop(lambda: woken.append(now[0]))
  monitor._left.set()  # Else the process would be ended after some seconds.

  def look_at(seconds):
    now[0] = seconds
    monitor._report(is_starting=False)
    monitor._give_up_on_gone()

  for seconds in (115, 160):
    look_at(seconds)
  monitor.progressed()
  for seconds in (170, 176, 235):
    look_at(seconds)
  assert not woken
  assert not monitor.stopping
  look_at(236)
  if not lost:
    assert not monitor.stopping
    return
  assert woken == [236]
  with pytest.raises(TaskLostError, match=f'waited 60 s: {lost} .*cannot be reached'):
    monitor.check()


def test_a_worker_does_not_train_on_for_good_without_a_chief(addresses, caplog, now):
  """Asynchronous training needs no chief for a step, but for each checkpoint."""
  caplog.set_level('INFO', logger='cifar10')
  chief = f'chief 0 ({addresses["nowhere"]})'
  cluster = {'chief': (addresses['nowhere'],), 'ps': (addresses['here'],), 'worker': ('here:1',)}
  monitor = LivenessMonitor(Cluster(cluster, 'worker'), spare_workers=2, start_timeout=60)
  monitor._left.set()  # Else the process would be ended after some seconds.

  def look_at(seconds):
    now[0] = seconds
    monitor.progressed()
    monitor._report(is_starting=False)
    monitor._give_up_on_gone()

  look_at(115)
  with pytest.MonkeyPatch.context() as back:
    back.setattr(sockets, 'reachable', lambda *_: True)
    look_at(130)
  assert caplog.messages == [f'cannot reach {chief}, which alone saves']
  for seconds in (145, 204):
    look_at(seconds)
  assert not monitor.stopping
  look_at(205)
  with pytest.raises(TaskLostError) as error:
    monitor.check()
  assert str(error.value).startswith(f'waited 60 s: {chief} cannot be reached')


@pytest.mark.parametrize('worker', ['here', 'nowhere'])
def test_a_parameter_server_remembers_who_came_and_went(addresses, monkeypatch, worker, said, now):
  """The tasks are there for less than the 15 seconds between two reports."""
  monkeypatch.setattr('cifar10.cluster.liveness._BRIEF_SECONDS', 5)
  tasks = {'chief': ('here',), 'ps': ('nowhere',), 'worker': (worker,)}
  cluster = {job: tuple(addresses[each] for each in names) for job, names in tasks.items()}
  monitor = LivenessMonitor(Cluster(cluster, 'ps'), start_timeout=60)
  now[0] = 101
  monitor._look()
  monkeypatch.setattr('cifar10.cluster.sockets.reachable', lambda *_: False)
  now[0] = 161
  monitor._look()
  gone = f'worker 0 ({addresses["nowhere"]}) did not come up in 60 s'
  assert [line.partition(';')[0] for line in said] == [gone] * (worker == 'nowhere')


def test_all_reduce_gives_up_on_who_is_gone(addresses, said, now):
  """Five seconds after the beginning, and three looks in a row that find nobody."""
  monitor = LivenessMonitor(Cluster({'chief': ('127.0.0.1:1',), 'worker': (addresses['nowhere'],)}))
  for seconds in (1, 4.9, 5, 6):
    monitor._give_up_on_lost(100 + seconds)
  assert not said
  monitor._give_up_on_lost(107)
  [line] = said
  assert f'worker 0 ({addresses["nowhere"]}) is gone' in line
  monitor = LivenessMonitor(Cluster({'chief': ('127.0.0.1:1',), 'worker': (addresses['here'],)}))
  for seconds in (5, 6, 7, 8):
    monitor._give_up_on_lost(100 + seconds)
  assert len(said) == 1
  # Two looks found nobody before a step, and one after it.
  monitor = LivenessMonitor(Cluster({'chief': ('127.0.0.1:1',), 'worker': (addresses['nowhere'],)}))
  now[0] = 100
  monitor._give_up_on_lost(106)
  monitor._give_up_on_lost(107)
  now[0] = 108
  monitor.progressed()
  monitor.in_step = True
  monitor._give_up_on_lost(109)
  monitor._give_up_on_lost(113)
  assert len(said) == 1
  monitor.in_step = False  # It saves the last step: the others have ended.
  for seconds in (114, 115, 116):
    monitor._give_up_on_lost(seconds)
  assert len(said) == 1


def test_all_reduce_sees_a_task_that_was_started_again_alone(addresses, said, now):
  """Nobody listened for seconds within a step, and then somebody does."""
  place = addresses['nowhere']
  monitor = LivenessMonitor(Cluster({'chief': ('127.0.0.1:1',), 'worker': (place,)}))
  monitor.progressed()
  monitor.in_step = True
  monitor._give_up_on_lost(101)
  monitor._give_up_on_lost(100.5)  # No look is made so soon: it did not listen again.
  monitor._give_up_on_lost(101)
  monitor._give_up_on_lost(102)
  assert not said
  port = int(place.rpartition(':')[2])
  with socket.create_server(('127.0.0.1', port), reuse_port=True):
    monitor._give_up_on_lost(103)
    [line] = said
    assert f'worker 0 ({place}) was lost and started again alone' in line
    monitor._give_up_on_lost(104)
  assert len(said) == 1


def test_all_reduce_waits_until_everyone_listens(addresses):
  with socket.socket() as own:
    own.bind(('127.0.0.1', 0))
    port = own.getsockname()[1]
  cluster = Cluster({'chief': (f'127.0.0.1:{port}',), 'worker': (addresses['nowhere'],)})
  monitor = LivenessMonitor(cluster)
  waiting = threading.Thread(target=monitor.wait_for_peers, daemon=True)
  waiting.start()
  waiting.join(1)
  assert waiting.is_alive()
  assert reachable(f'127.0.0.1:{port}')  # It can be seen itself meanwhile.
  worker = int(addresses['nowhere'].rpartition(':')[2])
  with socket.create_server(('127.0.0.1', worker), reuse_port=True):
    waiting.join(5)
  assert not waiting.is_alive()


def test_missing_tasks_are_named(addresses, caplog, now):
  """At the report's time: those never seen; once all were seen, those gone if no step is made."""
  caplog.set_level('INFO', logger='cifar10')
  cluster = {
    'chief': ('127.0.0.1:1',),
    'ps': (addresses['here'],),
    'worker': (addresses['nowhere'],),
  }
  monitor = LivenessMonitor(Cluster(cluster))
  monitor._report(is_starting=True)
  monitor._report(is_starting=False)  # A step was just made, perhaps: nothing to say.
  now[0] += 15
  monitor._report(is_starting=False)
  monitor.progressed()
  monitor._report(is_starting=False)
  line = f'waiting for worker 0 ({addresses["nowhere"]})'
  assert [record.getMessage() for record in caplog.records] == [line, line]


@pytest.mark.parametrize('job', ['worker', 'ps'])
def test_a_task_that_hangs_is_told_after_a_minute(caplog, job, now):
  """A stopped process still answers: the kernel does. A server hears of no step."""
  caplog.set_level('INFO', logger='cifar10')
  with socket.create_server(('127.0.0.1', 0)) as other:
    address = f'127.0.0.1:{other.getsockname()[1]}'
    cluster = {'chief': (address,), 'worker': ('127.0.0.1:1',), 'ps': ('127.0.0.1:1',)}
    del cluster['worker' if job == 'ps' else 'ps']
    monitor = LivenessMonitor(Cluster(cluster, job, 0))
    for seconds in (0, 45, 15):
      now[0] += seconds
      monitor._report(is_starting=False)
  said = 'no step for 60 s, and all tasks answer: one evaluates, pauses or hangs'
  assert caplog.messages == ([said] if job == 'worker' else [])
