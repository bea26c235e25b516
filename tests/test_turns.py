"""Processes that take turns in a benchmark: one computes, the others are stopped."""

import itertools
import os
import subprocess
import sys
import time

import pytest

from cifar10.platform import errors

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, 'benchmarks'))
import turns  # noqa: E402

# Steps of 10 or 20 milliseconds, each of which is noted in a file.
STEPS = """
import sys, time
seconds, path = float(sys.argv[1]), sys.argv[2]
while True:
  time.sleep(seconds)
  with open(path, 'a') as file:
    file.write(f'{time.perf_counter()}\\n')
  print(time.perf_counter(), flush=True)
"""


def command(seconds, path):
  return [sys.executable, '-c', STEPS, seconds, path]


def is_alive(pid):
  """Whether a process is there and not a zombie, for which a container's init may not wait."""
  try:
    with open(f'/proc/{pid}/stat') as file:
      return file.read().rpartition(')')[2].split()[0] != 'Z'
  except FileNotFoundError:
    return False


def moments(path):
  return [float(line) for line in path.read_text().split()]


def test_processes_take_turns_and_none_remains(tmp_path, capsys):
  paths = {'fast': tmp_path / 'fast', 'slow': tmp_path / 'slow'}
  both = {'fast': command(0.01, paths['fast']), 'slow': command(0.02, paths['slow'])}
  rates = turns.steps_per_second(both, turns=3, seconds=0.3, warm_up=2)
  assert 'turn 3 of 3' in capsys.readouterr().err
  # A sleep never ends early, and no step that lasted over another's turn is counted.
  assert {name: len(values) for name, values in rates.items()} == {'fast': 3, 'slow': 3}
  assert all(0 < rate <= 100 for rate in rates['fast'])
  assert all(0 < rate <= 50 for rate in rates['slow'])
  # Whose step was noted, over time: it changes from one turn to the next, and not within one (but
  # for a step's end in the moment of a stop).
  steps = sorted((moment, name) for name, path in paths.items() for moment in moments(path))
  changes = sum(before[1] != after[1] for before, after in itertools.pairwise(steps))
  assert changes <= 2 * 2 * 4
  before = [path.read_text() for path in paths.values()]
  time.sleep(0.1)
  assert [path.read_text() for path in paths.values()] == before


def test_a_process_that_ends_is_told_and_the_others_end_too(tmp_path):
  both = {'first': command(0.01, tmp_path / 'first'), 'second': [sys.executable, '-c', 'exit(3)']}
  with pytest.raises(errors.InputError, match=r'exit\(3\) ended with exit code 3; above it says'):
    turns.steps_per_second(both, turns=1, seconds=0.1, warm_up=1)
  before = (tmp_path / 'first').read_text()
  time.sleep(0.1)
  assert (tmp_path / 'first').read_text() == before


def test_a_python_that_is_not_there_is_named():
  with pytest.raises(errors.InputError, match=r'/nowhere/python cannot be started .*No such file'):
    turns.steps_per_second({'torch': ['/nowhere/python']}, turns=1, seconds=0.1, warm_up=1)


def test_stopped_processes_end_with_the_one_that_was_killed(tmp_path):
  """The kernel ends a group of stopped processes whose last connection to its session is gone."""
  path = tmp_path / 'steps'
  script = (
    f'import sys; sys.path[:0] = [{ROOT!r}, {os.path.join(ROOT, "benchmarks")!r}]; '
    f'import time, turns; process = turns._Process({command(0.01, str(path))!r}, 1); '
    'print(process._process.pid, flush=True); time.sleep(60)'
  )
  with subprocess.Popen([sys.executable, '-c', script], stdout=subprocess.PIPE) as parent:
    stopped = int(parent.stdout.readline())
    parent.kill()
  deadline = time.monotonic() + 10
  while is_alive(stopped) and time.monotonic() < deadline:
    time.sleep(0.05)
  assert not is_alive(stopped)
