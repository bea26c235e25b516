"""What a command that a test ran came to."""

import json
import time

from cifar10.job import metrics_log


def succeeded(result):
  """The JSON of its last line; a failure shows what it said."""
  assert result.returncode == 0, result.stderr
  return json.loads(result.stdout.splitlines()[-1])


def wait_for_start(process, job_dir, seconds):
  """Returns when the training of a process has begun."""
  deadline = time.monotonic() + seconds
  while not any(event['event'] == 'start' for event in metrics_log.read(job_dir)):
    assert process.poll() is None
    assert time.monotonic() < deadline
    time.sleep(0.1)
