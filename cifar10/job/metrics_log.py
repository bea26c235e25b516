"""JOB/metrics.jsonl: the events of a job, one JSON object per line.

The file describes one continuous training: a run that resumes from a checkpoint first removes the
events of later steps, which it repeats. `docs/watching.md` lists the events.

Processes append to a local file under a lock of the file system, if it has locks. A URL has no such
lock, and often cannot be appended to, so each file there has one writer, which rewrites it for each
event: tasks other than the chief write JOB/metrics-TASK.jsonl, and `read` merges the files by time.
"""

import contextlib
import errno
import fcntl
import io
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

import tensorflow as tf

from cifar10.core import files

NAME = 'metrics.jsonl'
_OF_TASK = 'metrics-{}.jsonl'
_OF_EVALUATORS = _OF_TASK.format('evaluator-*')
# Kept when training goes back: they happened even if their steps are repeated.
_STAYS = ('start', 'control')

# Of a file system mounted without locks, as Lustre may be. Each line is then one write, and one
# that another task writes just as a training resumes may be lost.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)

Event = dict[str, Any]


def read(job_dir: str) -> list[Event]:
  """Returns the events in order, without the half line of a killed process."""
  events = _read_file(os.path.join(job_dir, NAME))
  others = files.matching(job_dir, _OF_EVALUATORS)  # Also of a job that was at a URL.
  if others:
    events += [event for path in others for event in _read_file(path)]
    events.sort(key=_time)
  return events


def event(name: str, step: int, task: str, /, **rest: Any) -> Event:
  """Returns an event of a task, as 'chief 0', with the current time and `rest`, for `append`."""
  return {'event': name, 'time': round(time.time(), 3), 'step': step, 'task': task, **rest}


def append(job_dir: str, event: Mapping[str, Any]) -> None:
  """Appends one event as a whole line, whoever else appends meanwhile; raises OSError."""
  line = (files.json_text(event, separators=(',', ':')) + '\n').encode()
  if files.is_url(job_dir):
    task = event['task']
    name = NAME if task.startswith('chief') else _OF_TASK.format(task.replace(' ', '-'))
    path = os.path.join(job_dir, name)
    _write(path, [*(each for each in _lines(path) if each.endswith(b'\n')), line])
    return
  with _locked(os.path.join(job_dir, NAME)) as file:
    _drop_half_line(file)
    file.write(line)


def is_evaluation(event: Event) -> bool:
  """Tells whether it is an evaluation with a split and an accuracy: others may write lines, too."""
  has_accuracy = isinstance(event.get('accuracy'), (int, float))
  return event['event'] == 'evaluate' and isinstance(event.get('subset'), str) and has_accuracy


def has_evaluation(job_dir: str, step: int, split: str) -> bool:
  """Tells whether a training has evaluated this split at this step."""
  return any(
    event['event'] == 'evaluate' and event['step'] == step and event.get('subset') == split
    for event in read(job_dir)
  )


def go_back(job_dir: str, step: int) -> int:
  """Removes the events of steps after `step`; returns how many steps were lost.

  Raises:
    OSError: the file cannot be written.
  """
  path = os.path.join(job_dir, NAME)
  has_lock = not files.is_url(job_dir) and files.exists(path)
  with _locked(path) if has_lock else contextlib.nullcontext():
    paths = [path, *files.matching(job_dir, _OF_EVALUATORS)]
    reached = max(_go_back(each, step) for each in paths)
  return max(reached - step, 0)


def _go_back(path: str, step: int) -> int:
  """Removes the events of later steps from one file; returns its last step."""
  lines = _lines(path)
  reached = max(map(_repeated_step, lines), default=0)
  if reached > step:
    _write(path, [line for line in lines if _repeated_step(line) <= step])
  return reached


def _repeated_step(line: bytes) -> int:
  """Returns the step of a line that going back may remove; 0 for others, and for no event."""
  event = _parsed(line)
  return event['step'] if event and event['event'] not in _STAYS else 0


def _read_file(path: str) -> list[Event]:
  return [event for line in _lines(path) if (event := _parsed(line))]


def _lines(path: str) -> list[bytes]:
  """Returns the lines with line ends; [] if there is no file."""
  try:
    return io.BytesIO(files.read(path)).readlines()
  except FileNotFoundError:
    return []


def _time(event: Event) -> float:
  time = event.get('time')
  return time if isinstance(time, (int, float)) else 0


def _write(path: str, lines: Iterable[bytes]) -> None:
  with files.writing(path) as file:
    file.writelines(lines)


def _parsed(line: bytes) -> Event | None:
  """Returns the event of a line; None if it is half a line or of another program."""
  try:
    event: Any = json.loads(line) if line.endswith(b'\n') else None
  except (ValueError, RecursionError):
    return None
  is_named = isinstance(event, dict) and isinstance(event.get('event'), str)
  return event if is_named and isinstance(event.get('step'), int) else None


@contextlib.contextmanager
def _locked(path: str) -> Iterator[IO[bytes]]:
  """Opens (and creates) the file for one process at a time."""
  while True:
    with open(path, 'a+b') as file:
      try:
        fcntl.flock(file, fcntl.LOCK_EX)
      except OSError as error:
        if error.errno not in _NO_LOCKS:
          raise
      if _is_at(file, path):
        yield file
        return


def _is_at(file: IO[bytes], path: str) -> bool:
  """Tells whether the open file still has that name: `go_back` may have replaced it."""
  try:
    return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
  except FileNotFoundError:
    return False


def _drop_half_line(file: IO[bytes]) -> None:
  end = file.seek(0, os.SEEK_END)
  file.seek(max(end - 1, 0))
  if file.read(1) not in (b'', b'\n'):
    file.seek(0)
    file.truncate(file.read().rfind(b'\n') + 1)


def write_scalars(folder: str, step: int, values: Mapping[str, float]) -> None:
  """Adds a point to each of these curves."""
  listed = [tf.compat.v1.Summary.Value(tag=tag, simple_value=values[tag]) for tag in values]
  write_summary(folder, step, tf.compat.v1.Summary(value=listed))


def write_summary(folder: str, step: int, summary: Any) -> None:
  """Writes a summary of a step, a Summary or its bytes, at once."""
  summary_writer(folder).add_summary(summary, step)
  summary_writer(folder).flush()


def drop_summaries_from(folder: str, step: int) -> None:
  """Makes TensorBoard drop what a folder has of this step and later ones."""
  start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
  summary_writer(folder).add_session_log(start, step)


def summary_writer(folder: str) -> tf.compat.v1.summary.FileWriter:
  """Returns the writer of a folder's event file, which the Estimator shares."""
  with tf.Graph().as_default():  # Evaluations end outside of a graph, where a writer raises.
    return tf.compat.v1.summary.FileWriterCache.get(folder)
