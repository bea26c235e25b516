"""What a command that a test runs comes to."""

import contextlib
import json
import subprocess
import threading
import time

import tensorflow as tf

from cifar10.job import metrics_log


def succeeded(result):
  """The JSON of its last line; a failure shows what it said."""
  assert result.returncode == 0, result.stderr
  return json.loads(result.stdout.splitlines()[-1])


def refused(result, *, at_once=False):
  """The line of a mistake of the user's, who is told nothing else where it is found `at_once`."""
  assert (result.returncode, result.stdout) == (2, ''), result.stderr
  assert 'Traceback' not in result.stderr
  [line] = [line for line in result.stderr.splitlines() if line.startswith('error: ')]
  assert not at_once or result.stderr == f'{line}\n'
  return line


@contextlib.contextmanager
def followed(process, end=subprocess.Popen.kill):
  """A process as a context that waits for it, and first ends it where a test fails inside.

  subprocess.Popen's own context only waits: for ever, when a training has no last step.
  """
  with process:
    try:
      yield process
    except BaseException:
      end(process)
      raise


def until(condition, seconds, process=None):
  """Waits so long for a condition, which a process may have to bring about -> its value."""
  deadline = time.monotonic() + seconds
  while not (value := condition()):
    assert time.monotonic() < deadline
    assert not process or process.poll() is None
    time.sleep(0.05)
  return value


def still_waiting(function, seconds=0.5):
  """Runs in a thread what does not end by itself in that time -> the thread."""
  thread = threading.Thread(target=function, daemon=True)
  thread.start()
  thread.join(seconds)
  assert thread.is_alive()
  return thread


def events(job_dir, name):
  """Those of this name in metrics.jsonl."""
  return [event for event in metrics_log.read(str(job_dir)) if event['event'] == name]


def saved_step(job_dir):
  """Of the latest checkpoint; -1 before there is one."""
  checkpoint = tf.train.latest_checkpoint(str(job_dir))
  return int(checkpoint.rpartition('-')[2]) if checkpoint else -1
