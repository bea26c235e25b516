"""Clusters of real processes: they start, survive their tasks' deaths, and end."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
import tensorflow as tf

from cifar10.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SMALL = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 64]
FOREVER = ['--train-steps', 10**6, '--eval-every-steps', 10]


class Tasks(LocalCluster):
  """A cluster that remembers what its tasks said, and waits for what a test expects."""

  def __init__(self, job_dir, flags, **counts):
    self.log = []
    self.job_dir = str(job_dir)
    super().__init__(flags, show=lambda *line: self.log.append(line), **counts)

  def said(self, name, pattern):
    """The first groups, or whole matches, of a pattern in a task's lines."""
    return [
      match[1] if match.groups() else match[0]
      for task, line in list(self.log)
      if task == name and (match := re.search(pattern, line))
    ]

  def until(self, condition, timeout=60):
    """Waits until it holds, with nothing dying of an error meanwhile."""
    deadline = time.monotonic() + timeout
    while not condition():
      assert time.monotonic() < deadline, self.text()
      assert not any(code in (1, 2) for code in self.codes().values()), self.text()
      time.sleep(0.1)

  def step(self):
    """Of the latest checkpoint; -1 before there is one."""
    checkpoint = tf.train.latest_checkpoint(self.job_dir)
    return int(checkpoint.rpartition('-')[2]) if checkpoint else -1

  def until_step(self, step):
    self.until(lambda: self.step() >= step)

  def kill(self, name):
    self.processes[name].kill()
    self.processes[name].wait()

  def ended(self, timeout=60):
    """The exit codes of all, in the names' order."""
    codes = self.wait(timeout)
    assert len(codes) == len(self.processes), self.text()
    return [codes[name] for name in self.names if name in codes]

  def terminate(self, *names):
    """SIGTERM -> exit codes and the seconds that it took."""
    since = time.monotonic()
    for name in names:
      self.processes[name].send_signal(signal.SIGTERM)
    codes = [self.processes[name].wait(40) for name in names]
    return codes, time.monotonic() - since

  def text(self):
    return '\n'.join(f'{name} | {line}' for name, line in self.log)


@pytest.fixture
def cluster(data_dir, tmp_path):
  """Makes one cluster for a test, and ends it after it."""
  made = []

  def make(*flags, workers=1, ps=1, evaluator=False):
    job = tmp_path / 'job'
    flags = ['--data-dir', data_dir, '--job-dir', job, *SMALL, *flags]
    made.append(Tasks(job, flags, num_workers=workers, num_ps=ps, evaluator=evaluator))
    return made[-1]

  yield make
  for tasks in made:
    tasks.__exit__()
    assert len(tasks.codes()) == len(tasks.processes)


def is_our_line(line):
  return re.match(r'\d\d:\d\d:\d\d |started as process |ended by SIGTERM|error: ', line)


@pytest.mark.parametrize('workers', [1, 2])
@pytest.mark.parametrize('sync', [[], ['--sync']], ids=['async', 'sync'])
@pytest.mark.parametrize('ps', [1, 2])
def test_every_task_ends(cluster, ps, sync, workers):
  tasks = cluster('--train-steps', 20, '--eval-every-steps', 10, *sync, workers=workers, ps=ps)
  tasks.start()
  assert tasks.ended() == [0] * (1 + workers + ps), tasks.text()
  assert all(is_our_line(line) for _, line in tasks.log), tasks.text()
  result = json.loads(tasks.results['chief 0'])
  assert (result['subset'], result['examples']) == ('eval', 70)
  if sync:
    assert result['global_step'] == 20
  else:  # Each worker may be in a step when the last one is made.
    assert 20 <= result['global_step'] <= 20 + workers
  for worker in range(workers):
    made = json.loads(tasks.results[f'worker {worker}'])
    assert made['task'] == f'worker {worker}'
    assert 0 <= made['steps'] <= 21


def test_an_evaluator_evaluates_and_ends(cluster):
  tasks = cluster('--train-steps', 20, '--eval-every-steps', 10, '--sync', evaluator=True)
  tasks.start()
  assert tasks.ended() == [0, 0, 0, 0], tasks.text()
  assert json.loads(tasks.results['chief 0'])['global_step'] == 20
  result = json.loads(tasks.results['evaluator 0'])
  assert (result['subset'], result['examples'], result['global_step']) == ('eval', 70, 20)
  assert not tasks.said('chief 0', 'evaluated')


def test_an_evaluator_does_not_outlast_its_chief(cluster):
  tasks = cluster('--train-steps', 20, '--evaluator-patience', 2, evaluator=True)
  tasks.start('evaluator 0')
  assert tasks.ended() == [1]
  [line] = tasks.said('evaluator 0', 'error: .*')
  assert 'for 2 s' in line
  assert 'the chief cannot be reached' in line
  assert '--evaluator-patience' in line


def test_a_killed_worker_of_asynchronous_training(cluster):
  tasks = cluster(*FOREVER)
  tasks.start()
  tasks.until_step(10)
  tasks.kill('worker 0')
  tasks.until_step(tasks.step() + 20)  # The chief goes on.
  tasks.start('worker 0')
  tasks.until(lambda: tasks.said('worker 0', 'step .* images/s'))  # It made steps again.
  codes, _ = tasks.terminate(*tasks.names)
  assert codes == [143, 143, 143], tasks.text()


def test_a_killed_backup_worker(cluster):
  tasks = cluster(*FOREVER, '--sync', '--backup-workers', 1, workers=2)
  tasks.start()
  tasks.until_step(10)
  tasks.kill('worker 1')
  tasks.until(lambda: len(tasks.said('chief 0', 'images/s')) >= 3)
  losses = [float(loss) for loss in tasks.said('chief 0', r'loss (\S+)')]
  assert losses[-1] < losses[0]
  assert not tasks.said('chief 0', 'waiting for (?!worker 1)')


def test_a_killed_worker_that_synchronous_training_needs(cluster):
  tasks = cluster(*FOREVER, '--sync', workers=2)
  tasks.start()
  tasks.until_step(10)
  tasks.kill('worker 1')
  address = json.loads(tasks.tf_config('chief 0'))['cluster']['worker'][1]
  for name in ('chief 0', 'worker 0'):
    tasks.until(lambda: tasks.said(name, f'waiting for worker 1 .{address}.'))  # noqa: B023
  step = tasks.step()
  time.sleep(3)
  assert tasks.step() == step
  tasks.start('worker 1')
  tasks.until_step(step + 20)


def test_a_worker_that_starts_late(cluster):
  tasks = cluster('--train-steps', 20, '--eval-every-steps', 10, '--sync')
  tasks.start('chief 0', 'ps 0')
  time.sleep(20)
  assert tasks.said('chief 0', 'waiting for worker 0')
  assert tasks.step() <= 0
  tasks.start('worker 0')
  assert tasks.ended() == [0, 0, 0], tasks.text()
  assert json.loads(tasks.results['chief 0'])['global_step'] == 20
  assert json.loads(tasks.results['worker 0'])['steps'] == 20  # One batch for each update.


@pytest.mark.parametrize('sync', [[], ['--sync']], ids=['async', 'sync'])
def test_a_killed_parameter_server(cluster, sync):
  tasks = cluster(*FOREVER, *sync, ps=2)
  tasks.start()
  tasks.until_step(20)
  tasks.kill('ps 1')
  step = tasks.step()
  time.sleep(2)
  tasks.start('ps 1')
  tasks.until_step(step + 20)
  [resumed] = tasks.said('chief 0', 'resuming at step (\\d+)')
  assert step <= int(resumed) <= step + 10  # A checkpoint was perhaps just being written.
  tasks.until(lambda: len(tasks.said('worker 0', 'joining at step (\\d+)')) >= 1)
  assert int(tasks.said('worker 0', 'joining at step (\\d+)')[-1]) >= step


@pytest.mark.parametrize('sync', [[], ['--sync']], ids=['async', 'sync'])
def test_a_killed_chief(cluster, sync):
  tasks = cluster(*FOREVER, *sync)
  tasks.start()
  tasks.until_step(20)
  tasks.kill('chief 0')
  step = tasks.step()
  tasks.start('chief 0')
  tasks.until_step(step + 20)
  assert tasks.said('chief 0', 'resuming at step (\\d+)') == [str(step)]
  assert tasks.processes['worker 0'].poll() is None
  before = len(tasks.said('worker 0', 'images/s'))
  tasks.until(lambda: len(tasks.said('worker 0', 'images/s')) > before)


@pytest.mark.parametrize('sync', [[], ['--sync']], ids=['async', 'sync'])
def test_sigterm(cluster, sync):
  tasks = cluster(*FOREVER, '--save-every-steps', 10**6, *sync)
  tasks.start()
  tasks.until(lambda: tasks.said('chief 0', 'images/s') and tasks.said('worker 0', 'images/s'))
  for name in ('worker 0', 'chief 0'):
    [code], seconds = tasks.terminate(name)
    assert code == 143, tasks.text()
    assert seconds < 20
    if name == 'worker 0':
      tasks.start(name)
      tasks.until(lambda: tasks.said('worker 0', 'joining'))
  step = tasks.step()
  assert step % 10 or step > 10  # Saved because of the signal, and not before.
  tasks.start('chief 0')
  tasks.until(lambda: tasks.said('chief 0', f'resuming at step {step:,} '))
  codes, seconds = tasks.terminate(*tasks.names)
  assert codes == [143, 143, 143], tasks.text()
  assert seconds < 20
  assert tasks.step() >= step


@pytest.mark.parametrize(
  ('missing', 'flags'), [('worker 0', ['--sync']), ('ps 0', []), ('chief 0', [])]
)
def test_a_task_that_never_comes_up(cluster, missing, flags):
  tasks = cluster(*FOREVER, *flags, '--start-timeout', 18)
  others = [name for name in tasks.names if name != missing]
  tasks.start(*others)
  assert tasks.ended() == [1, 1], tasks.text()
  job, index = missing.split()
  address = json.loads(tasks.tf_config('chief 0'))['cluster'][job][int(index)]
  for name in others:
    assert tasks.said(name, f'waiting for {missing} .{address}.'), tasks.text()
    [line] = tasks.said(name, 'error: .*')
    assert f'{missing} ({address}) did not come up in 18 s' in line


def run(data_dir, job_dir, *flags, own=('--workers', '1', '--ps', '1')):
  command = [sys.executable, '-m', 'cifar10.local_cluster', *own, '--']
  flags = ['--data-dir', data_dir, '--job-dir', job_dir, *SMALL, *flags]
  return subprocess.Popen(
    [*command, *map(str, flags)],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def test_the_command_prints_the_chiefs_result(data_dir, tmp_path):
  with run(data_dir, tmp_path, '--train-steps', 5, '--sync') as process:
    output, log = process.communicate(timeout=90)
  assert process.returncode == 0, log
  [line] = output.splitlines()
  assert json.loads(line)['global_step'] == 5
  assert {entry.partition(' | ')[0].strip() for entry in log.splitlines()} == {
    'chief 0',
    'worker 0',
    'ps 0',
  }


def test_the_command_ends_all_when_one_fails(data_dir, tmp_path):
  with run(data_dir, tmp_path, '--num-layers', 9) as process:
    output, log = process.communicate(timeout=90)
  assert process.returncode == 2
  assert output == ''
  assert 'number of layers 9 is not 6n+2' in log
  assert 'ending all tasks' in log


def test_the_command_restarts_what_was_killed(data_dir, tmp_path):
  own = ('--workers', '1', '--ps', '1', '--restart')
  with run(data_dir, tmp_path, *FOREVER, own=own) as process:
    children = wait_for_children(process.pid)
    victim = next(child for child in children if is_task(child, 'worker'))
    victim.kill()
    lines = iter(process.stderr.readline, '')
    assert any('worker 0 | ended with signal 9; starting it again' in line for line in lines)
    assert any('worker 0 | started as process' in line for line in lines)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
  assert process.returncode == 143


def test_ctrl_c_leaves_nothing_behind(data_dir, tmp_path):
  with run(data_dir, tmp_path, *FOREVER) as process:
    children = wait_for_children(process.pid)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
  assert process.returncode == 130
  assert not [child for child in children if child.is_running()]


def wait_for_children(pid, count=3):
  deadline = time.monotonic() + 30
  while len(children := psutil.Process(pid).children()) < count:
    assert time.monotonic() < deadline
    time.sleep(0.1)
  return children


def is_task(process, job):
  return json.loads(process.environ()['TF_CONFIG'])['task']['type'] == job
