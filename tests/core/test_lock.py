"""Locks between real processes: who has a folder, who is refused, and what the dead leave."""

import contextlib
import errno
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from checkout import ROOT
from outcome import until

from cifar10.core import files, lock
from cifar10.core.errors import InputError

HOLD = """
import sys, time
from cifar10.core import lock
with lock.Lock(sys.argv[1], 'taken by {holder}'):
  print('has it', flush=True)
  time.sleep(1000)
"""

HOLD_IN_A_JOB = HOLD.replace("'taken by {holder}'", "'taken', around=os.path.dirname(sys.argv[1])")
HOLD_IN_A_JOB = HOLD_IN_A_JOB.replace('import sys', 'import os, sys')


@contextlib.contextmanager
def holding(folder, code=HOLD):
  """Another process, which has the folder."""
  with subprocess.Popen(
    [sys.executable, '-c', code, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
  ) as process:
    try:
      assert process.stdout.readline() == 'has it\n'
      yield process
    finally:
      process.kill()


def take(folder):
  return lock.Lock(str(folder), 'taken by {holder}')


def claims(folder):
  return sorted(folder.glob('claim-*.json'))


def test_the_second_is_refused_and_the_first_named(tmp_path):
  with holding(tmp_path) as process:
    with pytest.raises(InputError, match=f'taken by process {process.pid} on .* \\(since 20'):
      take(tmp_path).__enter__()
    assert len(claims(tmp_path)) == 1  # The second left nothing.
    assert lock.holder(str(tmp_path))['pid'] == process.pid


def test_what_a_killed_process_leaves_is_in_nobodys_way(tmp_path):
  """At once, and before anybody has waited for it: a supervisor starts again in the same second."""
  with holding(tmp_path) as process:
    process.kill()
    while lock._started(process.pid) not in ('dead', ''):
      time.sleep(0.01)
    since = time.monotonic()
    assert lock.holder(str(tmp_path)) is None
    with take(tmp_path):
      assert time.monotonic() - since < lock._DEAD_SECONDS
      assert len(claims(tmp_path)) == 1  # Its own; the dead one's is gone.
  assert not claims(tmp_path)


def test_a_number_that_was_given_again_is_another_process(tmp_path):
  """As after days of uptime: the claim's number lives, and was started at another time."""
  with holding(tmp_path):
    [path] = claims(tmp_path)
    claim = json.loads(path.read_text())
  path.write_text(json.dumps({**claim, 'pid': os.getpid()}))
  with take(tmp_path):
    assert len(claims(tmp_path)) == 1


def test_a_stopped_process_keeps_what_it_has(tmp_path):
  with holding(tmp_path) as process:
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(InputError, match=f'process {process.pid}'):
      take(tmp_path).__enter__()


def test_of_many_that_want_it_at_once_one_has_it(tmp_path):
  """Each that has it notes when it came and went; no two notes overlap."""
  code = """
import random, sys, time
from cifar10.core import lock
from cifar10.core.errors import InputError
had = 0
until = time.monotonic() + 3
while time.monotonic() < until:
  try:
    with lock.Lock(sys.argv[1], 'taken by {holder}'):
      came = time.monotonic()
      time.sleep(0.005)
      print(came, time.monotonic())
  except InputError:
    time.sleep(random.uniform(0, 0.3))
"""
  processes = [
    subprocess.Popen(
      [sys.executable, '-c', code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    for _ in range(4)
  ]
  notes = []
  for process in processes:
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    notes += [tuple(map(float, line.split())) for line in output.splitlines()]
  notes.sort()
  assert len(notes) > 4
  assert all(went <= came for (_, went), (came, _) in itertools.pairwise(notes))
  assert not claims(tmp_path)


@pytest.fixture
def elsewhere(monkeypatch):
  """Makes every other process one of another system, which is watched for two seconds and more."""
  monkeypatch.setattr(lock, '_system', lambda: 'another')
  monkeypatch.setattr(lock, '_DEAD_SECONDS', 2.5)


def test_a_claim_from_elsewhere_holds_while_it_beats(tmp_path, elsewhere):
  with holding(tmp_path) as process:
    with pytest.raises(InputError, match=f'process {process.pid}'):
      take(tmp_path).__enter__()
    assert lock.holder(str(tmp_path))['pid'] == process.pid
    process.kill()
    process.wait()
    assert lock.holder(str(tmp_path)) is None
    with take(tmp_path):
      assert len(claims(tmp_path)) == 1


_HALF = '{"host": "a", "pid": 1'


@pytest.mark.parametrize('content', ['', '{"ho', _HALF, '\0' * 99, _HALF + ', "state": 3}'])
def test_a_half_written_claim_holds_nobody_up_for_long(tmp_path, elsewhere, content):
  (tmp_path / 'claim-a-1-0123abcd.json').write_text(content)
  with take(tmp_path):
    assert len(claims(tmp_path)) == 1


@pytest.mark.parametrize(
  ('name', 'content'),
  [
    ('claim-2024-001', '{"insured": "Smith"}'),
    ('claim-notes', ''),
    ('claim-2024-05-20240501', '{"host": "Smith", "guests": 3}'),
    ('claim-2024-05-20240501', '[]'),
    ('claim-2024-05-20240501', 'no JSON'),
    ('claim-2024-05-20240501', '\xff'),
  ],
)
def test_a_file_of_others_is_no_claim(tmp_path, name, content):
  """It is not waited for, and stays."""
  path = tmp_path / f'{name}.json'
  path.write_text(content, encoding='latin-1')
  since = time.monotonic()
  with take(tmp_path):
    assert time.monotonic() - since < lock._DEAD_SECONDS
    assert lock.holder(str(tmp_path))['pid'] == os.getpid()
  assert path.read_text(encoding='latin-1') == content


@pytest.mark.parametrize('has_ended', [False, True])
def test_who_was_thought_dead_ends_when_it_wakes(tmp_path, elsewhere, has_ended):
  """As a host that slept: another had taken over, and two must not write into one folder.

  Nor may it go on from its old step where the other one has ended.
  """
  code = HOLD.replace('with lock', f'lock._DEAD_SECONDS = {lock._DEAD_SECONDS}\nwith lock')
  with holding(tmp_path, code) as process:
    process.send_signal(signal.SIGSTOP)
    with take(tmp_path):
      if not has_ended:
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) == 1
    process.send_signal(signal.SIGCONT)
    assert process.wait(60) == 1


@pytest.mark.parametrize('number', [errno.EIO, errno.ESHUTDOWN, errno.ENOMEM])
def test_a_listing_that_fails_gives_the_folder_to_nobody(tmp_path, monkeypatch, number):
  """As on a file system of a network: the folder would seem to be free."""
  with holding(tmp_path):
    monkeypatch.setattr(os, 'listdir', failing(number))
    with pytest.raises(OSError, match=os.strerror(number)):
      take(tmp_path).__enter__()
    monkeypatch.undo()
    assert len(claims(tmp_path)) == 1
    assert lock.holder(str(tmp_path))


def failing(number):
  def fail(*arguments):
    raise OSError(number, os.strerror(number))

  return fail


def test_a_claim_that_cannot_be_read_holds_while_it_beats(tmp_path, monkeypatch):
  """As another user's, whose files are their own."""
  with holding(tmp_path):
    monkeypatch.setattr(files, 'read_object', lambda path: None)
    with pytest.raises(InputError, match='taken by an unnamed process'):
      take(tmp_path).__enter__()


def test_a_bucket_can_be_locked(monkeypatch):
  monkeypatch.setattr(lock, '_DEAD_SECONDS', 0.1)
  with lock.Lock('ram://bucket', 'taken'):
    assert lock.holder('ram://bucket')['pid'] == os.getpid()
  assert lock.holder('ram://bucket') is None


def test_a_copy_of_a_folder_is_free(tmp_path, monkeypatch):
  """After a look whether its claims are written anew, which those of the folder itself are."""
  monkeypatch.setattr(lock, '_DEAD_SECONDS', 2.5)
  (tmp_path / 'job').mkdir()
  with holding(tmp_path / 'job'):
    shutil.copytree(tmp_path / 'job', tmp_path / 'copy')
    assert lock.holder(str(tmp_path / 'copy')) is None
    with take(tmp_path / 'copy'):
      assert lock.holder(str(tmp_path / 'copy'))['pid'] == os.getpid()
    assert lock.holder(str(tmp_path / 'job'))['pid'] != os.getpid()


@pytest.mark.parametrize('whole', [False, True])
def test_a_claim_that_was_cleaned_away_comes_back(tmp_path, whole):
  """And the folder with it."""
  with holding(tmp_path / 'control', HOLD_IN_A_JOB) as process:
    [path] = claims(tmp_path / 'control')
    path.unlink()
    if whole:
      path.parent.rmdir()
    until(path.exists, 60)
    assert process.poll() is None
