"""deploy/slurm.sh under a real Slurm, of nodes that are hosts of their own (tests/slurm.py).

Two nodes of two tasks each: a chief and a parameter server, a worker and an evaluator.
"""

import json
import os
import re
import shlex
import stat
import sys

import numpy as np
import pytest
import slurm
import tensorflow as tf
from checkout import ROOT
from recomputed import values

from cifar10.job import checkpoints, metrics_log

pytestmark = [pytest.mark.slurm, pytest.mark.hosts, pytest.mark.timeout(2400)]

SMALL = ['--train-batch-size', 8, '--eval-batch-size', 64, '--num-layers', 8]
SMALL += ['--batch-norm-decay', 0.9, '--learning-rate', 0.01, '--log-every', 1]
FOREVER = ['--train-steps', 10**6, '--eval-every-steps', 10**5]
TASKS = ['--nodes=2', '--ntasks-per-node=2']
START_SECONDS = 400  # For a job to start and make steps, where other programs slow this machine.


@pytest.fixture
def cluster(tmp_path_factory):
  """A Slurm of three nodes."""
  if reason := slurm.why_not():
    pytest.skip(reason)
  with slurm.Slurm(tmp_path_factory.mktemp('slurm') / 'slurm', ['n1', 'n2', 'n3']) as started:
    yield started


class Job:
  """A job of deploy/slurm.sh, and what it says and leaves."""

  def __init__(
    self, cluster, folder, data_dir, *flags, updates=('--sync',), options=(), held='', **variables
  ):
    """`held`: as tests/held_training.py has it; `variables`: of the script's environment."""
    self.cluster, self.folder, self.log = cluster, folder / 'job', folder / 'log'
    folder.mkdir()
    python = folder / 'python'
    held_training = os.path.join(ROOT, 'tests', 'held_training.py')
    python.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, held_training])} "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    options = [*TASKS, '--time=30', *options]
    flags = [*SMALL, *updates, *flags]
    variables = {'PYTHON': str(python), 'HELD': held, **variables}
    self.id = cluster.submit(self.log, data_dir, self.folder, *flags, options=options, **variables)

  def text(self):
    """What its tasks and the script have said, of all its starts."""
    return self.log.read_text() if self.log.exists() else ''

  def over(self, timeout):
    """Waits for its end -> its state, and how often it was started again."""
    about = self.cluster.until_over(self.id, timeout)
    return about['JobState'], int(about['Restarts'])

  def about(self):
    """What Slurm says of it; fails if it has failed."""
    about = self.cluster.about(self.id)
    assert about['JobState'] != 'FAILED', self.text()
    return about

  def limit(self, seconds):
    """Sets its time limit: to so many seconds from now, or up to a minute more."""
    hours, minutes, _ = map(int, self.about()['RunTime'].split(':'))
    limit = f'TimeLimit={60 * hours + minutes + 1 + seconds // 60}'
    self.cluster.run('scontrol', 'update', f'JobId={self.id}', limit)

  def until_step(self, step):
    """Waits until the newest checkpoint is of this step, or a later one."""
    self.cluster.until(lambda: self.step() >= step, START_SECONDS)

  def step(self):
    """Of the newest checkpoint; -1 before there is one."""
    checkpoint = tf.train.latest_checkpoint(str(self.folder))
    return int(checkpoint.rpartition('-')[2]) if checkpoint else -1

  def until_says(self, text, times=1):
    """Waits until its log has this text so often."""
    self.cluster.until(lambda: self.text().count(text) >= times, START_SECONDS)

  def result(self):
    """The evaluator's last evaluation, of the test set."""
    lines = [json.loads(line) for line in self.text().splitlines() if line.startswith('{')]
    [result] = [line for line in lines if line.get('subset') == 'eval']
    return result

  def validated(self):
    """The steps at which the evaluator has evaluated the validation split."""
    events = [event for event in metrics_log.read(str(self.folder)) if 'subset' in event]
    assert {event['task'] for event in events} == {'evaluator 0'}
    return {event['step'] for event in events if event['subset'] == 'validation'}

  def learned(self):
    """All variables of the newest checkpoint but batch norm's averages, by name.

    Those may be of one batch more, whose update SIGTERM prevented (docs/training.md).
    """
    found = values(self.folder).items()
    return {name: value for name, value in found if '/moving_' not in name}


def test_a_job_longer_than_three_time_limits(cluster, data_dir, tmp_path):
  """It ends with the weights, and so the accuracy, of one that nothing disturbed.

  That one runs at the same time on the same nodes. The limits are set when training is at a step,
  so that a slow machine gets there; Slurm sends the signal when it looks next, every 30 s.
  """
  flags = ['--train-steps', 80, '--eval-every-steps', 20, '--deterministic']
  chained = Job(cluster, tmp_path / 'chained', data_dir, *flags, held='chief 20 20 20')
  undisturbed = Job(cluster, tmp_path / 'undisturbed', data_dir, *flags)
  for start in (1, 2, 3):
    chained.until_says('held after', start)
    chained.limit(seconds=60)
    cluster.until(lambda: chained.about()['Restarts'] == str(start), 200)  # noqa: B023
    chained.limit(seconds=600)
  assert undisturbed.over(300) == ('COMPLETED', 0), undisturbed.text()
  assert chained.over(300) == ('COMPLETED', 3), chained.text()
  resumed = re.findall(r'resuming at step (\d+)', chained.text())
  assert len({step for step in map(int, resumed) if 0 < step < 80}) == 3, resumed
  assert chained.step() == undisturbed.step() == 80
  expected, actual = undisturbed.learned(), chained.learned()
  assert expected.keys() == actual.keys()
  assert len(expected) > 40
  for name, value in expected.items():
    np.testing.assert_array_equal(actual[name], value, name)
  assert chained.result()['accuracy'] == undisturbed.result()['accuracy']
  for job in (chained, undisturbed):
    assert checkpoints.best(str(job.folder))
    assert len(job.validated()) > 1  # Of those on the way, as many as it had time for.
    assert max(job.validated()) == 80


@pytest.mark.long
def test_a_node_loses_power(cluster, data_dir, tmp_path):
  """Slurm starts the job again on the nodes that are left, and it goes on from its checkpoint."""
  flags = ['--train-steps', 40, '--eval-every-steps', 10]
  job = Job(cluster, tmp_path / 'job', data_dir, *flags, held='chief 15')
  job.until_step(10)
  cluster.lose_power('n1')
  assert job.over(400) == ('COMPLETED', 1), job.text()
  assert 'n1' not in cluster.about(job.id)['NodeList']
  assert cluster.states()['n1'].startswith('down')
  assert 'resuming at step 1' in job.text()  # 10, or 15 if the chief could still save.
  assert job.result()['global_step'] == 40
  assert checkpoints.best(str(job.folder))


def test_a_mistake_in_the_flags_is_not_repeated(cluster, data_dir, tmp_path):
  job = Job(cluster, tmp_path / 'job', data_dir, '--num-layers', 9)
  assert job.over(120) == ('FAILED', 0), job.text()
  assert 'error: --num-layers 9' in job.text()
  assert 'nothing was saved since the start; giving up' in job.text()


def test_a_cancelled_job_saves_and_stays_cancelled(cluster, data_dir, tmp_path):
  job = Job(cluster, tmp_path / 'job', data_dir, *FOREVER)
  job.until_says('images/s', 4)  # Two of them are of the first step, which may not be over.
  cluster.run('scancel', job.id)
  assert job.over(60) == ('CANCELLED', 0), job.text()
  cluster.until(lambda: set(cluster.states().values()) == {'idle'}, 60)
  assert job.step() > 0  # Saved because of it, and not before.
