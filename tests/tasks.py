"""A cluster of real processes that a test follows."""

import json
import re
import signal
import time

import checkout
from outcome import saved_step

from cifar10.local_cluster import LocalCluster

# For what a cluster does in 20 s: CI's machine may be four times as slow, with a Slurm beside it.
PATIENCE_SECONDS = 300
SMALL = ['--train-batch-size', 8, '--eval-batch-size', 64]
RESNET = ['--num-layers', 8]
ALL_REDUCE = ['--distribute', 'multi_worker_mirrored']
FOREVER = ['--train-steps', 10**6, '--eval-every-steps', 10]


class Tasks(LocalCluster):
  """A cluster that remembers what its tasks said, and waits for what a test expects."""

  def __init__(self, job_dir, flags, **counts):
    self.log = []
    self.lines_before_death = 0
    self.job_dir = str(job_dir)
    super().__init__(flags, show=lambda *line: self.log.append(line), **counts)

  def said(self, name, pattern, skip=0):
    """The first groups, or whole matches, of a pattern in a task's lines."""
    return [
      match[1] if match.groups() else match[0]
      for task, line in list(self.log)[skip:]
      if task == name and (match := re.search(pattern, line))
    ]

  def until(self, condition, timeout=PATIENCE_SECONDS):
    """Waits until it holds, with nothing dying of an error meanwhile."""
    deadline = time.monotonic() + timeout
    while not condition():
      assert time.monotonic() < deadline, self.text()
      assert not any(code in (1, 2, 138) for code in self.codes().values()), self.text()
      time.sleep(0.1)

  def step(self):
    """Of the latest checkpoint; -1 before there is one."""
    return saved_step(self.job_dir)

  def resumed(self):
    """The steps at which the chief went on since a task was last ended.

    Before that, an asynchronous chief resumes, too, where a worker's first step is before its own.
    """
    steps = self.said('chief 0', r'resuming at step (\S+)', self.lines_before_death)
    return [int(step.replace(',', '')) for step in steps]

  def until_step(self, step):
    self.until(lambda: self.step() >= step)

  def kill(self, name):
    self.lines_before_death = len(self.log)
    self.processes[name].kill()
    self.processes[name].wait()

  def succeeded(self, name='chief 0'):
    """Waits until all have ended well -> what one of them printed."""
    assert set(self.ended()) == {0}, self.text()
    return json.loads(self.results[name])

  def ended(self):
    """The exit codes of all, in the names' order."""
    codes = self.wait(PATIENCE_SECONDS)
    for reader in self._readers:  # Of their last lines.
      reader.join(2)
    assert set(codes) == set(self.names) & set(self.processes), self.text()
    return [codes[name] for name in self.names if name in codes]

  def terminate(self, *names):
    """SIGTERM -> exit codes and the seconds that it took."""
    self.lines_before_death = len(self.log)
    since = time.monotonic()
    for name in names:
      self.processes[name].send_signal(signal.SIGTERM)
    codes = [self.processes[name].wait(40) for name in names]
    return codes, time.monotonic() - since

  def order(self, order):
    """Steers the training, as a person would."""
    checkout.python('-m', 'cifar10.control', self.job_dir, order, must_succeed=True)

  def text(self):
    return '\n'.join(f'{name} | {line}' for name, line in self.log)
