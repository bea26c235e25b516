"""How a local cluster's tasks are watched over, with small processes in their place."""

import os
import signal
import sys
import threading

import psutil
import pytest

from cifar10 import local_cluster

ENDS = 'pass'
STAYS = 'import time; time.sleep(600)'
DIES = 'import os, time; time.sleep(1); os.kill(os.getpid(), 9)'


class Acted(local_cluster.LocalCluster):
  """A cluster whose tasks do what a test says: a list of programs each, one a start."""

  def __init__(self, acts):
    self.acts = {name: list(programs) for name, programs in acts.items()}
    super().__init__([], num_workers=1, num_ps=1)

  def command(self, name):
    return [sys.executable, '-c', self.acts[name].pop(0)]


def supervised(acts, restarts=10):
  """-> the code, the programs that nobody started, and how the tasks ended."""
  with Acted(acts) as cluster:
    cluster.start()
    code = local_cluster._supervise(cluster, restarts)
    cluster.end()
    return code, cluster.acts, cluster.codes()


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch):
  monkeypatch.setattr(local_cluster, '_GRACE_SECONDS', 2)
  monkeypatch.setattr(local_cluster, '_FAREWELL_SECONDS', 4)


@pytest.mark.parametrize('victim', ['ps 0', 'worker 0'])
def test_what_dies_after_the_chief_s_end_is_not_started_again(victim):
  """It would wait for a chief; and the other one, which may wait for it, is ended."""
  acts = {name: [STAYS] for name in ('worker 0', 'ps 0')}
  acts = {'chief 0': [ENDS], **acts, victim: [DIES, STAYS]}
  code, unused, _ = supervised(acts)
  assert (code, unused) == (0, {'chief 0': [], 'worker 0': [], 'ps 0': [], victim: [STAYS]})


def test_what_comes_back_too_late_for_the_chief_is_ended():
  dies_at_once = DIES.replace('1', '0', 1)
  ends_later = 'import time; time.sleep(2)'
  acts = {'chief 0': [ends_later], 'worker 0': [dies_at_once, STAYS], 'ps 0': [ends_later]}
  code, unused, codes = supervised(acts)
  assert (code, unused) == (0, {'chief 0': [], 'worker 0': [], 'ps 0': []})
  assert codes == {'chief 0': 0, 'worker 0': -signal.SIGTERM, 'ps 0': 0}


def test_a_chief_that_dies_is_started_again(tmp_path):
  """And with it those that have ended well: it goes on from a checkpoint before their last step."""
  there = f'pathlib.Path({str(tmp_path / "again")!r})'
  again = f'import pathlib; {there}.touch()'
  waits = f'import pathlib, time\nwhile not {there}.exists(): time.sleep(0.1)'
  acts = {'chief 0': [DIES, again], 'worker 0': [ENDS, ENDS], 'ps 0': [waits, STAYS]}
  assert supervised(acts)[:2] == (0, {'chief 0': [], 'worker 0': [], 'ps 0': [STAYS]})


def test_without_restart_a_death_ends_all():
  acts = {'chief 0': [STAYS], 'worker 0': [STAYS], 'ps 0': [DIES]}
  assert supervised(acts, restarts=0)[0] == 137


def test_a_signal_ends_all():
  """The tasks hear SIGTERM, so that they can save."""
  cluster = Acted({name: [STAYS] for name in ('chief 0', 'worker 0', 'ps 0')})
  threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
  before = signal.signal(signal.SIGTERM, signal.default_int_handler)
  try:
    with pytest.raises(KeyboardInterrupt), cluster:
      cluster.start()
      local_cluster._supervise(cluster, 0)
  finally:
    signal.signal(signal.SIGTERM, before)
  assert cluster.codes() == dict.fromkeys(cluster.names, -signal.SIGTERM)


def test_what_a_task_leaves_running_is_not_waited_for():
  """It holds the streams of the task, which has ended; the task's line is read all the same."""
  leaves = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid)"
  with Acted({'chief 0': [leaves], 'worker 0': [ENDS], 'ps 0': [ENDS]}) as cluster:
    cluster.start()
    code = local_cluster._supervise(cluster, 0)
  left = psutil.Process(int(cluster.results['chief 0']))
  try:
    assert code == 0
    assert left.status() != psutil.STATUS_ZOMBIE
  finally:
    left.kill()
