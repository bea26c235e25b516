"""Processes that take turns in a benchmark: one computes, the others are stopped."""

import itertools
import os
import signal
import sys

import pytest
from checkout import ROOT

from cifar10.core import errors

sys.path.insert(0, os.path.join(ROOT, 'benchmarks'))
import turns

# Prints its process id and then steps of so many seconds, each of which it notes in a file.
STEPS = """
import os, sys, time
seconds, path = float(sys.argv[1]), sys.argv[2]
with open(path, 'w') as file:
  file.write(f'{os.getpid()}\\n')
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
  except (FileNotFoundError, ProcessLookupError):
    return False


def noted(path):
  """The process and when its steps ended."""
  pid, *moments = path.read_text().split()
  return int(pid), [float(moment) for moment in moments]


def test_processes_take_turns_and_none_remains(tmp_path, capsys):
  paths = {'fast': tmp_path / 'fast', 'slow': tmp_path / 'slow'}
  both = {'fast': command(0.01, paths['fast']), 'slow': command(0.02, paths['slow'])}
  rates = turns.steps_per_second(both, turns=3, seconds=0.3, warm_up=2)
  assert 'turn 3 of 3' in capsys.readouterr().err
  assert {name: len(values) for name, values in rates.items()} == {'fast': 3, 'slow': 3}
  # A sleep never ends early.
  assert all(0 < rate <= 100 for rate in rates['fast'])
  assert all(0 < rate <= 50 for rate in rates['slow'])
  # The order is fast slow (starts), fast slow, slow fast, fast slow: whose step ended changes five
  # times, and twice more for each end of a turn where a step ends in that moment.
  steps = sorted((moment, name) for name, path in paths.items() for moment in noted(path)[1])
  changes = sum(before[1] != after[1] for before, after in itertools.pairwise(steps))
  assert 5 <= changes <= 5 + 2 * 8
  assert len(steps) > 2 * changes
  assert not any(is_alive(noted(path)[0]) for path in paths.values())


@pytest.mark.parametrize(
  ('seconds', 'expected'),
  [
    # The turn begins at 10: a step of 9 was printed before it. The step that ends at 11 was cut.
    # Steps of a second: 12, 13, 14 and 15, which is 5 seconds after the beginning.
    (5, 4 / (15 - 11)),
    (0.5, 3 / (14 - 11)),  # Three at least.
  ],
)
def test_a_turn_measures_whole_steps_of_its_own(monkeypatch, seconds, expected):
  process = object.__new__(turns._Process)
  signals, moments = [], iter([9, 11, 12, 13, 14, 15, 16])
  monkeypatch.setattr(process, '_signal', signals.append, raising=False)
  monkeypatch.setattr(process, '_step', lambda: next(moments), raising=False)
  monkeypatch.setattr(turns.time, 'perf_counter', lambda: 10)
  assert process.turn(seconds) == expected
  assert signals == [signal.SIGCONT, signal.SIGSTOP]


@pytest.mark.parametrize(
  ('last', 'message'),
  [
    ('exit(3)', r'exit\(3\) ended with exit code 3; above it says why'),
    ('import os; os.kill(os.getpid(), 9)', 'was ended by signal 9; if memory was short'),
    ('print("Hello", flush=True)', "printed 'Hello', where the moment of a step was expected"),
  ],
)
def test_a_process_that_ends_is_told_and_the_others_end_too(tmp_path, last, message):
  path = tmp_path / 'first'
  both = {'first': command(0.01, path), 'second': [sys.executable, '-c', last]}
  with pytest.raises(errors.InputError, match=message):
    turns.steps_per_second(both, turns=1, seconds=0.1, warm_up=1)
  assert not is_alive(noted(path)[0])


def test_a_python_that_is_not_there_is_named():
  with pytest.raises(errors.InputError, match=r'/nowhere/python cannot be started; name a Python'):
    turns.steps_per_second({'torch': ['/nowhere/python']}, turns=1, seconds=0.1, warm_up=1)
