"""JOB/metrics.jsonl, the events of a job, one JSON object a line; and TensorBoard's event files.

metrics.jsonl describes one continuous training: a run that resumes from a checkpoint first removes
the events of later steps, which it repeats. `docs/watching.md` lists the events.

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
from collections.abc import Iterator, Mapping
from typing import IO, Any

import tensorflow as tf

from cifar10.core import files

NAME = 'metrics.jsonl'
# Kept when training goes back: they happened even if their steps are repeated.
_STAYS = ('start', 'control')

Event = dict[str, Any]


def read(job_dir: str) -> list[Event]:
  """Returns the events in order, without the half line of a killed process."""
  paths = _paths(job_dir)
  events = [event for path in paths for line in _lines(path) if (event := _parsed(line))]
  return sorted(events, key=lambda event: event.get('time', 0)) if len(paths) > 1 else events


def append(job_dir: str, name: str, step: int, task: str, /, **rest: Any) -> None:
  """Appends an event of a task, as 'chief 0', as a whole line, whoever else appends meanwhile.

  Raises OSError.
  """
  event = {'event': name, 'time': round(time.time(), 3), 'step': step, 'task': task, **rest}
  path = os.path.join(job_dir, NAME)
  line = (files.json_text(event, separators=(',', ':')) + '\n').encode()
  if files.is_url(job_dir):
    if not task.startswith('chief'):
      path = os.path.join(job_dir, f'metrics-{task.replace(" ", "-")}.jsonl')
    before = b''.join(each for each in _lines(path) if each.endswith(b'\n'))
    with files.writing(path) as file:
      file.write(before + line)
  else:
    with _locked(path) as file:
      file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
      if file.read() not in (b'', b'\n'):  # Half a line of a killed process.
        file.seek(0)
        file.truncate(file.read().rfind(b'\n') + 1)
      file.write(line)


def is_evaluation(event: Event) -> bool:
  """Tells whether it is an evaluation with a split and an accuracy: others may write lines, too."""
  return event['event'] == 'evaluate' and {'accuracy', 'subset'} <= event.keys()


def evaluations(job_dir: str, step: int, split: str) -> list[Event]:
  """Returns the evaluations of a split at a step, in order."""
  found = filter(is_evaluation, read(job_dir))
  return [event for event in found if (event['step'], event['subset']) == (step, split)]


def go_back(job_dir: str, step: int) -> int:
  """Removes the events of steps after `step`; returns how many steps were lost."""
  reached, path = step, os.path.join(job_dir, NAME)
  if not files.exists(path):
    return 0
  with contextlib.nullcontext() if files.is_url(path) else _locked(path):
    for each in _paths(job_dir):
      lines = _lines(each)
      events = [_parsed(line) for line in lines]
      steps = [event['step'] if event and event['event'] not in _STAYS else 0 for event in events]
      reached = max([reached, *steps])
      if max(steps, default=0) > step:
        with files.writing(each) as file:
          file.writelines(line for line, at in zip(lines, steps) if at <= step)
  return reached - step


def _paths(job_dir: str) -> list[str]:
  """Returns the paths of the file, and of what evaluators wrote while the job was at a URL."""
  return [os.path.join(job_dir, NAME), *files.matching(job_dir, 'metrics-evaluator-*.jsonl')]


def _lines(path: str) -> list[bytes]:
  """Returns the lines with line ends; [] if there is no file."""
  try:
    return io.BytesIO(files.read(path)).readlines()
  except FileNotFoundError:
    return []


def _parsed(line: bytes) -> Event | None:
  """Returns the event of a line; None if it is half a line or of another program."""
  try:
    event: Any = json.loads(line) if line.endswith(b'\n') else None
  except (ValueError, RecursionError):
    return None
  is_event = isinstance(event, dict) and isinstance(event.get('event'), str)
  return event if is_event and isinstance(event.get('step'), int) else None


@contextlib.contextmanager
def _locked(path: str) -> Iterator[IO[bytes]]:
  """Opens (and creates) the file for one process at a time."""
  while True:
    with open(path, 'a+b') as file:
      # Without locks, as Lustre may be mounted, each line is one write; one that another task
      # writes just as a training resumes may be lost.
      with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX)
      with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
          yield file
          return
      # `go_back` has replaced it meanwhile.


def write_scalars(folder: str, step: int, values: Mapping[str, float]) -> None:
  """Adds a point to each of these curves in TensorBoard."""
  listed = [tf.compat.v1.Summary.Value(tag=tag, simple_value=values[tag]) for tag in values]
  write_summary(folder, step, tf.compat.v1.Summary(value=listed))


def write_summary(folder: str, step: int, summary: tf.compat.v1.Summary | bytes) -> None:
  """Writes a summary of a step at once."""
  writer = _summary_writer(folder)
  writer.add_summary(summary, step)
  writer.flush()


def drop_summaries_from(folder: str, step: int) -> None:
  """Makes TensorBoard drop what a folder has of this step and later ones."""
  start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
  _summary_writer(folder).add_session_log(start, step)


def _summary_writer(folder: str) -> tf.compat.v1.summary.FileWriter:
  """Returns the writer of a folder's event file, which all share that write there."""
  if os.path.isdir(folder) and not os.access(folder, os.W_OK):  # TensorFlow would not say so.
    number = errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES
    raise OSError(number, os.strerror(number), folder)
  with tf.Graph().as_default():  # Evaluations end outside of a graph, where a writer raises.
    return tf.compat.v1.summary.FileWriterCache.get(folder)
