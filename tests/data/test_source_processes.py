"""A source in processes of its own: its order, its faults, and that nothing is left of them."""

import os
import signal
import subprocess
import sys

import given_sources
import numpy as np
import outcome
import psutil
import pytest

from cifar10.core.errors import SourceError
from cifar10.data.python_source import SourceProcesses

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def started(name, count=2):
  return SourceProcesses(f'given_sources:{name}', 10, range(count), count)


def children():
  """Those that run a source: not the helper that multiprocessing keeps."""
  found = psutil.Process().children(recursive=True)
  return [each for each in found if any('spawn_main' in word for word in each.cmdline())]


def test_the_order_is_the_sources_one_process_after_the_other():
  """Each sends all of its shard as one chunk: 0, 3, ..., then 1, 4, ..., then 2, 5, ...; twice."""
  expected = [number for shard in range(3) for number in range(shard, 96, 3)]
  with started('shards', 3) as processes:
    for _ in range(2):
      chunks = list(processes.epoch())
      found = given_sources.numbers(np.concatenate([chunk.images for chunk in chunks]))
      assert found == expected
      assert np.concatenate([chunk.labels for chunk in chunks]).tolist() == [
        number % 10 for number in expected
      ]
    for each in children():
      maps = [mapped.path for mapped in each.memory_maps()]
      assert not any('tensorflow' in path for path in maps)
      assert any('numpy' in path for path in maps)
  assert not children()


def test_an_epoch_whose_examples_were_all_taken_ends_without_more():
  """As after a session that ended between an epoch's last example and its end."""
  with started('shards') as processes:
    first = processes.epoch()
    assert sum(len(next(first).labels) for _ in range(2)) == 96
    first.close()
    assert list(processes.epoch()) == []
    assert sum(len(chunk.labels) for chunk in processes.epoch()) == 96


def test_an_exception_is_told_with_its_shard_and_example():
  with started('fails_in_shard_1') as processes:
    with pytest.raises(SourceError) as raised:
      for _ in range(2):
        list(processes.epoch())
    message = str(raised.value)
    assert message.startswith(
      '--source given_sources:fails_in_shard_1, shard 1 of 2: example 4 (counted from 1): '
      'RuntimeError: no more ('
    )
    assert 'given_sources.py, line ' in message
  assert not children()


def test_a_killed_process_is_told():
  with started('shards') as processes:
    list(processes.epoch())
    [victim, _] = children()
    victim.kill()
    with pytest.raises(
      SourceError,
      match=r'^--source given_sources:shards: the process of shard \d of 2 .* by signal 9$',
    ):
      for _ in range(1000):  # What it had sent before is still in the pipe.
        list(processes.epoch())
  assert not children()


def test_they_end_with_a_killed_training():
  """Also one whose function is busy, and does not notice that nobody reads."""
  code = (
    'import sys, time\n'
    'from cifar10.data.python_source import SourceProcesses\n'
    "made = SourceProcesses('given_sources:busy', 10, range(2), 2)\n"
    "print('started', flush=True)\n"
    'time.sleep(600)\n'
  )
  environment = {**os.environ, 'PYTHONPATH': os.pathsep.join([os.path.dirname(TESTS), TESTS])}
  command = [sys.executable, '-c', code]
  started = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
  with outcome.followed(started) as process:
    assert process.stdout.readline() == 'started\n'
    begun = psutil.Process(process.pid)
    left = outcome.until(lambda: len(found := begun.children(recursive=True)) >= 2 and found, 60)
    process.send_signal(signal.SIGKILL)
  _, alive = psutil.wait_procs(left, timeout=60)
  # A container's first process may wait for no zombies.
  assert not [each for each in alive if each.is_running() and each.status() != 'zombie']
