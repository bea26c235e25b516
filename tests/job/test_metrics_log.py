"""metrics.jsonl: events are whole lines, and stand as one curve."""

import errno
import fcntl
import json
import math
import multiprocessing

import pytest

from cifar10.core import files
from cifar10.job import metrics_log


def add(tmp_path, *events):
  for name, step in events:
    metrics_log.append(str(tmp_path), name, step, 'chief 0')


def curve(tmp_path):
  return [(event['event'], event['step']) for event in metrics_log.read(str(tmp_path))]


def test_an_event_is_a_line_of_json(tmp_path):
  assert (curve(tmp_path), metrics_log.go_back(str(tmp_path), 5)) == ([], 0)
  rest = {'loss': 1.5, 'rate': math.nan, 'by_class': {'a': [1.0]}}
  metrics_log.append(str(tmp_path), 'train', 3, 'chief 0', **rest)
  [line] = (tmp_path / metrics_log.NAME).read_bytes().splitlines()
  expected = {'event': 'train', 'step': 3, 'task': 'chief 0', 'loss': 1.5, 'by_class': {'a': [1.0]}}
  found = json.loads(line)
  assert found.pop('time') > 1.7e9
  assert found == {**expected, 'rate': None}


def test_going_back_takes_out_what_later_steps_wrote(tmp_path):
  add(tmp_path, ('start', 0), ('train', 100), ('save', 150), ('train', 200), ('control', 210))
  add(tmp_path, ('evaluate', 250), ('train', 300))
  assert metrics_log.go_back(str(tmp_path), 150) == 150  # Steps 151 to 300 are made again.
  add(tmp_path, ('start', 150), ('train', 200))
  expected = [('start', 0), ('train', 100), ('save', 150), ('control', 210)]
  assert curve(tmp_path) == [*expected, ('start', 150), ('train', 200)]


@pytest.mark.parametrize('half', [b'{"event": "train", "st', b'\xff\xfe'])
def test_half_a_line_is_no_event_and_spoils_none(tmp_path, half):
  add(tmp_path, ('train', 100))
  with open(tmp_path / metrics_log.NAME, 'ab') as file:
    file.write(half)
  assert curve(tmp_path) == [('train', 100)]
  add(tmp_path, ('train', 200), ('train', 300))
  assert curve(tmp_path) == [('train', 100), ('train', 200), ('train', 300)]
  assert half not in (tmp_path / metrics_log.NAME).read_bytes()
  assert metrics_log.go_back(str(tmp_path), 200) == 100
  assert curve(tmp_path) == [('train', 100), ('train', 200)]


def _add_many(folder, task):
  for step in range(200):
    metrics_log.append(folder, 'train', step, task)


def _go_back_often(folder):
  for _ in range(50):
    metrics_log.go_back(folder, 1000)
    metrics_log.append(folder, 'save', 2000, 'chief 0')


def test_processes_write_beside_each_other(tmp_path):
  """Two append 200 events each while a third replaces the file: it takes out its own alone."""
  folder = str(tmp_path)
  context = multiprocessing.get_context('fork')
  writers = [context.Process(target=_add_many, args=[folder, task]) for task in ('a', 'b')]
  writers.append(context.Process(target=_go_back_often, args=[folder]))
  for process in writers:
    process.daemon = True  # Ended with this one, where it hangs.
    process.start()
  for process in writers:
    process.join(60)
    assert process.exitcode == 0
  events = [event for event in metrics_log.read(folder) if event['event'] == 'train']
  for task in ('a', 'b'):
    assert [event['step'] for event in events if event['task'] == task] == list(range(200))


def test_a_file_system_without_locks(tmp_path, monkeypatch):
  """As Lustre mounted without 'flock': lines are appended as ever."""

  def refuse(file, operation):
    raise OSError(errno.ENOSYS, 'refused')

  monkeypatch.setattr(fcntl, 'flock', refuse)
  add(tmp_path, ('train', 100), ('train', 200))
  assert metrics_log.go_back(str(tmp_path), 100) == 100
  add(tmp_path, ('train', 200), ('train', 300))
  assert curve(tmp_path) == [('train', 100), ('train', 200), ('train', 300)]


def test_behind_a_url_each_task_writes_its_own_file_and_they_are_read_as_one(tmp_path):
  """There nothing appends beside others, and a lost line would be a hole in the curve."""
  folder = f'ram:/{tmp_path}'
  own = [('start', 0, 'chief 0'), ('train', 10, 'chief 0'), ('evaluate', 10, 'evaluator 0')]
  for time, event in enumerate([*own, ('train', 20, 'chief 0'), ('evaluate', 20, 'evaluator 0')]):
    metrics_log.append(folder, *event, subset='eval', accuracy=0.5, time=time)
  assert [event['time'] for event in metrics_log.read(folder)] == [0, 1, 2, 3, 4]
  names = [path.rpartition('/')[2] for path in files.matching(folder, '*')]
  assert names == ['metrics-evaluator-0.jsonl', 'metrics.jsonl']
  assert metrics_log.evaluations(folder, 20, 'eval')
  assert metrics_log.go_back(folder, 10) == 10  # The steps 11 to 20 are made again.
  left = [(event['event'], event['step'], event['task']) for event in metrics_log.read(folder)]
  assert left == own
  assert metrics_log.go_back(folder, 10) == 0
