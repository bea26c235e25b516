"""Clusters whose tasks each have a host of their own: they train, and end or go on after a cut.

Root is needed for the hosts (tests/hosts.py).
"""

import json
import re
import shlex
import sys
import time

import checkout
import hosts
import pytest
from outcome import succeeded

from cifar10.core.errors import TaskLostError

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(1200)]

SMALL = ['--train-batch-size', 8, '--eval-batch-size', 64, '--num-layers', 8]
FOREVER = ['--train-steps', 10**6, '--eval-every-steps', 10]
ALL_REDUCE = ['--distribute', 'multi_worker_mirrored']
START_SECONDS = 300
CHIEF_AND_SLOWLY_OTHERS = [
  'chief 0',
  *(pytest.param(name, marks=pytest.mark.slow) for name in ('worker 0', 'ps 0')),
]


@pytest.fixture(scope='module', autouse=True)
def can_make_hosts():
  if reason := hosts.why_not():
    pytest.skip(reason)


@pytest.fixture
def cluster(data_dir, tmp_path):
  """Makes and starts one cluster and its hosts for a test, and removes them after it."""
  made = []

  def make(*flags, workers=1, ps=1, evaluator=False, shared_job_dir=False):
    network = hosts.Network(hosts.names(workers, ps, evaluator))
    made.append(network)
    tasks = hosts.HostedTasks(
      network,
      tmp_path,
      data_dir,
      [*SMALL, *flags],
      shared_job_dir,
      num_workers=workers,
      num_ps=ps,
      evaluator=evaluator,
    )
    made.append(tasks)
    tasks.start()
    return tasks

  yield make
  for each in reversed(made):
    each.__exit__()


def until_step(tasks, step):
  tasks.until(lambda: tasks.step() >= step, START_SECONDS)


def until_all_step(tasks):
  """Waits until every replica says again that it makes steps."""
  before = len(tasks.log)
  replicas = [name for name in tasks.names if name.split()[0] in ('chief', 'worker')]
  tasks.until(lambda: all(tasks.said(name, 'images/s', before) for name in replicas), START_SECONDS)


@pytest.mark.parametrize(
  ('flags', 'ps'),
  [
    pytest.param([], 2, marks=pytest.mark.slow),
    (['--sync'], 2),
    pytest.param(['--sync', '--backup-workers', 1], 2, marks=pytest.mark.slow),
    pytest.param(ALL_REDUCE, 0, marks=pytest.mark.slow),
  ],
  ids=['async', 'sync', 'spare', 'all-reduce'],
)
def test_hosts_that_share_nothing(cluster, flags, ps):
  tasks = cluster('--train-steps', 20, '--eval-every-steps', 10, *flags, workers=2, ps=ps)
  assert tasks.ended(START_SECONDS) == [0] * (3 + ps), tasks.text()
  result = json.loads(tasks.results['chief 0'])
  assert (result['subset'], result['examples']) == ('eval', 70)
  assert 20 <= result['global_step'] <= (20 if flags else 24)  # Async: two more of each worker.


@pytest.mark.slow
def test_an_evaluator_shares_the_job_dir(cluster):
  flags = ['--train-steps', 20, '--eval-every-steps', 10, '--sync']
  tasks = cluster(*flags, evaluator=True, shared_job_dir=True)
  assert tasks.ended(START_SECONDS) == [0] * 4, tasks.text()
  result = json.loads(tasks.results['evaluator 0'])
  assert (result['subset'], result['global_step']) == ('eval', 20)


@pytest.mark.long
@pytest.mark.parametrize('victim', CHIEF_AND_SLOWLY_OTHERS)
def test_a_short_cut_costs_no_step(cluster, victim):
  """No connection ends: each replica makes every step once."""
  tasks = cluster('--train-steps', 120, '--eval-every-steps', 20, '--sync')
  until_step(tasks, 20)
  tasks.network.cut(victim)
  time.sleep(5)
  assert not tasks.codes()
  tasks.network.mend(victim)
  assert tasks.ended(START_SECONDS) == [0, 0, 0], tasks.text()
  assert json.loads(tasks.results['chief 0'])['global_step'] == 120
  assert json.loads(tasks.results['worker 0'])['steps'] == 120
  assert not tasks.said('chief 0', 'resuming')


@pytest.mark.long
@pytest.mark.parametrize('victim', CHIEF_AND_SLOWLY_OTHERS)
def test_a_cut_of_less_than_a_minute_ends_no_task(cluster, victim):
  """It ends connections, and the chief may go back to its checkpoint."""
  tasks = cluster(*FOREVER, '--sync', '--log-every', 1)
  until_step(tasks, 20)
  tasks.network.cut(victim)
  time.sleep(45)
  step = tasks.step()
  for name in set(tasks.names) - {victim}:
    assert len(tasks.said(name, f'waiting for .*{victim}')) >= 2, tasks.text()
  tasks.network.mend(victim)
  until_all_step(tasks)
  until_step(tasks, step + 20)
  assert not tasks.codes()


@pytest.mark.parametrize(
  ('victim', 'flags'),
  [
    ('chief 0', ['--sync']),
    pytest.param('worker 0', ['--sync'], marks=pytest.mark.slow),
    pytest.param('ps 0', ['--sync'], marks=pytest.mark.slow),
    pytest.param('chief 0', [], marks=pytest.mark.slow),
    pytest.param('worker 0', ALL_REDUCE, marks=pytest.mark.slow),
  ],
)
def test_a_longer_cut_ends_every_task_within_two_minutes(cluster, victim, flags):
  """Each says who was cut off; started again, they go on from what was saved."""
  tasks = cluster(*FOREVER, *flags, ps=int(flags != ALL_REDUCE))
  until_step(tasks, 20)
  tasks.network.cut(victim)
  since = time.monotonic()
  codes = tasks.ended()
  assert time.monotonic() - since < 120
  assert set(codes) == {TaskLostError.code}, tasks.text()
  for name in tasks.names:
    [line] = tasks.said(name, 'error: .* was cut off for 60 s')
    assert name == victim or f'{victim} (10.77.0.' in line
  step = tasks.step()
  tasks.network.mend(victim)
  tasks.start()
  until_step(tasks, step + 20)


@pytest.mark.slow
def test_all_others_end_while_a_worker_is_cut_off(cluster):
  """Asynchronous workers need no other: they and the server end well, and the worker is lost."""
  tasks = cluster('--train-steps', 300, '--eval-every-steps', 20, '--log-every', 1)
  tasks.until(lambda: tasks.said('worker 0', 'images/s') and tasks.step() >= 20, START_SECONDS)
  tasks.network.cut('worker 0')
  assert tasks.ended() == [0, TaskLostError.code, 0], tasks.text()
  [line] = tasks.said('worker 0', 'error: .*')
  assert 'chief 0 (10.77.0.1:2222), ps 0 (10.77.0.3:2222) was cut off' in line


@pytest.mark.long
@pytest.mark.parametrize('sync', [[], ['--sync']], ids=['async', 'sync'])
@pytest.mark.parametrize('victim', CHIEF_AND_SLOWLY_OTHERS)
def test_a_host_loses_power_and_comes_back(cluster, victim, sync):
  """Nobody hears of it; its task is started again at the same address."""
  tasks = cluster(*FOREVER, *sync, '--log-every', 1)
  until_step(tasks, 20)
  tasks.network.cut(victim)
  tasks.kill(victim)
  time.sleep(10)
  step = tasks.step()
  tasks.network.mend(victim)
  tasks.start(victim)
  until_all_step(tasks)
  until_step(tasks, step + 20)


def test_the_document_fences_a_cluster_with_a_network_of_its_own(data_dir, tmp_path):
  """SECURITY.md's command, which makes its own namespace, with flags that make it short."""
  [command] = re.findall(r'```sh\n(.*?)\n```', checkout.read('SECURITY.md'), re.S)
  short = shlex.join(map(str, ['--data-dir', data_dir, *SMALL, '--train-steps', 5]))
  for written, ours in (
    ('python -m', f'{shlex.quote(sys.executable)} -m'),
    ('--data-dir data', short),
    ('job-fenced', shlex.quote(str(tmp_path / 'job'))),
  ):
    assert command.count(written) == 1
    command = command.replace(written, ours)
  assert succeeded(checkout.run('sh', '-c', command))['global_step'] >= 5


@pytest.mark.slow
def test_the_bytes_of_a_step_are_as_reckoned(cluster):
  """docs/clusters.md, beside TCP's headers and a few scalars: all parameters there and back.

  ResNet-20: 3 x 3 x (3 x 16 + 6 x 16 x 16 + 16 x 32 + 5 x 32 x 32 + 32 x 64 + 5 x 64 x 64) in
  kernels, 2 x (7 x 16 + 6 x 32 + 6 x 64) in batch norm, 64 x 10 + 10 in the head; 4 bytes each.
  """
  more = ['--num-layers', 20, '--train-batch-size', 1, '--log-every', 1]
  tasks = cluster('--train-steps', 10**6, '--eval-every-steps', 10**6, *more, '--sync')

  def step():
    return int((tasks.said('chief 0', r'step ([\d,]+) of') or ['0'])[-1].replace(',', ''))

  def received():
    path = '/sys/class/net/eth0/statistics/rx_bytes'
    return step(), int(tasks.network.run('worker 0', 'cat', path))

  tasks.until(lambda: step() > 10, START_SECONDS)  # Far from the start.
  first, before = received()
  tasks.until(lambda: step() >= first + 100, START_SECONDS)
  last, after = received()
  expected = 4 * (267_696 + 1_376 + 650)
  assert (after - before) / (last - first) == pytest.approx(expected, rel=0.1)
