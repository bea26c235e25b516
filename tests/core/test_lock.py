"""Locks between real processes: who has a folder, who is refused, and what the dead leave."""

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest
from checkout import ROOT

from cifar10.core import lock
from cifar10.core.errors import InputError

HOLD = """
import os, sys, time
from cifar10.core import lock
with lock.locked(sys.argv[1] + '/lock', 'taken by {holder}', sys.argv[1]):
  child = os.fork()  # It holds nothing, and lives on.
  if not child:
    print(os.getpid(), flush=True)
  time.sleep(1000)
"""


@contextlib.contextmanager
def holding(folder):
  """Another process, which has the folder, and a child that has not."""
  command = [sys.executable, '-c', HOLD, str(folder)]
  with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
    child = int(process.stdout.readline())
    try:
      yield process
      os.kill(child, 0)
    finally:
      process.kill()
      os.kill(child, signal.SIGKILL)


def take(folder):
  return lock.locked(f'{folder}/lock', 'taken by {holder}', str(folder))


def holder(folder):
  return lock.holder(f'{folder}/lock')


def test_the_second_is_refused_and_the_first_named(tmp_path):
  with holding(tmp_path) as process:
    with pytest.raises(InputError, match=f'taken by process {process.pid} on .* \\(since 20'):
      take(tmp_path).__enter__()
    assert holder(tmp_path).startswith(f'process {process.pid} on ')
  assert os.listdir(tmp_path) == ['lock']


def test_what_a_killed_process_leaves_is_in_nobodys_way(tmp_path):
  """A supervisor starts again in the same second; the child lives on."""
  with holding(tmp_path) as process:
    process.kill()
    process.wait()
    assert holder(tmp_path) == ''
    with take(tmp_path):
      assert holder(tmp_path).startswith(f'process {os.getpid()} on ')
  assert holder(tmp_path) == ''
  assert (tmp_path / 'lock').read_text() == ''


def test_a_look_at_who_has_it_keeps_nobody_out(tmp_path):
  (tmp_path / 'lock').touch()
  with open(tmp_path / 'lock', 'rb') as looking:
    fcntl.flock(looking, fcntl.LOCK_SH)
    signal.signal(signal.SIGALRM, lambda *_: fcntl.flock(looking, fcntl.LOCK_UN))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with take(tmp_path):
      assert holder(tmp_path)


def test_a_process_of_version_1_is_refused_while_it_is_heard_of(tmp_path):
  claim = tmp_path / 'claim-a-17-0123abcd.json'
  claim.touch()
  with pytest.raises(InputError, match=r'taken by a process of version 1 \(.*claim-a-17-'):
    take(tmp_path).__enter__()
  os.utime(claim, (time.time() - 11,) * 2)
  with take(tmp_path):
    assert claim.exists()


@pytest.mark.parametrize(
  ('place', 'why'), [('', ' (No locks available)'), ('ram://bucket', ', being a URL')]
)
def test_where_there_are_no_locks_it_says_so_and_goes_on(tmp_path, monkeypatch, caplog, place, why):
  def fail(*_):
    raise OSError(errno.ENOLCK, 'No locks available')

  monkeypatch.setattr(fcntl, 'flock', fail)
  folder = place or tmp_path
  with caplog.at_level('INFO', 'cifar10'), take(folder):
    [line] = caplog.messages
    assert line.startswith(f'{folder}/lock is not locked{why}: ')
    assert holder(folder).startswith(f'process {os.getpid()} on ')
  assert holder(folder) == ''
