"""Clusters whose tasks each have a host of their own: they train, and end or go on after a cut.

Root is needed for the hosts (tests/hosts.py).
"""

import re
import shlex
import sys
import time

import checkout
import hosts
import pytest
import yaml
from outcome import succeeded
from tasks import ALL_REDUCE, FOREVER, RESNET, SMALL

from cifar10.core.errors import TaskLostError

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(1200)]


@pytest.fixture(scope='module', autouse=True)
def can_make_hosts():
  if reason := hosts.why_not():
    pytest.skip(reason)


@pytest.fixture
def cluster(data_dir, tmp_path):
  """Makes and starts one cluster and its hosts for a test, and removes them after it."""
  made = []

  def make(*flags, workers=1, ps=1):
    names = [f'{job} {i}' for job, n in (('worker', workers), ('ps', ps)) for i in range(n)]
    made.append(hosts.Network(['chief 0', *names]))
    flags, counts = [*SMALL, *RESNET, *flags], {'num_workers': workers, 'num_ps': ps}
    made.append(hosts.HostedTasks(made[-1], tmp_path, data_dir, flags, **counts))
    made[-1].start()
    return made[-1]

  yield make
  for each in reversed(made):
    each.__exit__()


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
  result = tasks.succeeded()
  assert (result['subset'], result['examples']) == ('eval', 70)
  assert 20 <= result['global_step'] <= (20 if flags else 24)  # Async: two more of each worker.


class Pods(hosts.HostedTasks):
  """What a JobSet's containers run, with more flags, and this folder's `hosts` and job."""

  def command(self, name):
    role, index = name.split()
    jobs = yaml.safe_load(checkout.read('deploy/jobset.yaml'))['spec']['replicatedJobs']
    [job] = [job['template']['spec'] for job in jobs if job['name'] == role]
    [container] = job['template']['spec']['containers']
    labels = {'jobset-name': 'cifar10', 'replicatedjob-name': role}
    known = {f"metadata.labels['jobset.sigs.k8s.io/{name}']": labels[name] for name in labels}
    given = {'JOB_COMPLETION_INDEX': index}
    for each in container['env']:
      given[each['name']] = each.get('value') or known[each['valueFrom']['fieldRef']['fieldPath']]
    words = [*container['command'][1:], *container['args'], *self._flags]
    words = [word.replace('=/cifar10', f'={self._folder}') for word in words]
    prepare = f'cd {checkout.ROOT}; mount --bind {self._folder}/hosts /etc/hosts; exec "$@"'
    host = ['ip', 'netns', 'exec', self.network.namespace(name), 'sh', '-c', prepare, 'sh']
    return [*host, 'env', '-i', *map('='.join, given.items()), sys.executable, *words]


def test_a_jobsets_containers_train_and_end(data_dir, tmp_path):
  (tmp_path / 'data').symlink_to(data_dir)
  flags = [*SMALL, *RESNET, '--train-steps', 20, '--save-every-steps', 10]
  names = ['chief 0', 'worker 0', 'worker 1', 'ps 0', 'evaluator 0']
  with hosts.Network(names) as network:
    known = [f'{network.address(n)} cifar10-{n.replace(" ", "-0-")}.cifar10\n' for n in names]
    (tmp_path / 'hosts').write_text(''.join(known))
    with Pods(network, tmp_path, '', flags, num_workers=2, num_ps=1, evaluator=True) as pods:
      pods.start()
      result = pods.succeeded('evaluator 0')
      # Where the network policy lets others in.
      assert pods.said('ps 0', r'serves at (\S+)') == ['cifar10-ps-0-0.cifar10:2222']
  assert (result['global_step'], result['subset'], result['examples']) == (20, 'eval', 70)


@pytest.mark.long
@pytest.mark.parametrize('victim', ['chief 0', 'worker 0', 'ps 0'])
def test_a_cut_of_less_than_a_minute_ends_no_task(cluster, victim):
  """It ends connections, and the chief may go back to its checkpoint."""
  tasks = cluster(*FOREVER, '--sync', '--log-every', 1)
  tasks.until_step(20)
  tasks.network.cut(victim)
  time.sleep(45)
  step = tasks.step()
  for name in set(tasks.names) - {victim}:
    assert len(tasks.said(name, f'waiting for .*{victim}')) >= 2, tasks.text()
  tasks.network.mend(victim)
  before = len(tasks.log)
  for name in ('chief 0', 'worker 0'):
    tasks.until(lambda: tasks.said(name, 'images/s', before))  # noqa: B023
  tasks.until_step(step + 20)
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
  tasks.until_step(20)
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
  tasks.until_step(step + 20)


def test_the_document_fences_a_cluster_with_a_network_of_its_own(data_dir, tmp_path):
  """SECURITY.md's command, which makes its own namespace, with flags that make it short."""
  [command] = re.findall(r'```sh\n(.*?)\n```', checkout.read('SECURITY.md'), re.S)
  short = shlex.join(map(str, ['--data-dir', data_dir, *SMALL, *RESNET, '--train-steps', 5]))
  for written, ours in (
    ('python -m', f'{shlex.quote(sys.executable)} -m'),
    ('--data-dir data', short),
    ('job-fenced', shlex.quote(str(tmp_path / 'job'))),
  ):
    assert command.count(written) == 1
    command = command.replace(written, ours)
  assert succeeded(checkout.run('sh', '-c', command))['global_step'] >= 5
