"""deploy/slurm.sh under a real Slurm, of nodes that are hosts of their own (tests/hosts.py).

Two nodes of two tasks each: a chief and a parameter server, a worker and an evaluator. Each node
has a slurmd; the controller has a host, too. The daemons see a configuration and an /etc/hosts of
their own: nothing of the machine's is changed, but for the packages, which are installed.
"""

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import time

import checkout
import debian
import hosts
import numpy as np
import pytest
from outcome import saved_step, until
from recomputed import values

from cifar10.job import checkpoints

pytestmark = [pytest.mark.slurm, pytest.mark.hosts, pytest.mark.timeout(2400)]

SMALL = ['--train-batch-size', 8, '--eval-batch-size', 64, '--num-layers', 8]
SMALL += ['--batch-norm-decay', 0.9, '--learning-rate', 0.01, '--log-every', 1]
FOREVER = ['--train-steps', 10**6, '--eval-every-steps', 10**5]
TASKS = ['--nodes=2', '--ntasks-per-node=2', '--time=30']
START_SECONDS = 400  # For a job to start and make steps, where other programs slow this machine.
PACKAGES = ('slurmctld', 'slurmd', 'slurm-client', 'munge')
CONTROLLER = 'controller'
OVER = ('COMPLETED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'NODE_FAIL', 'OUT_OF_MEMORY')
# The controller gives up a node that is silent for 15 s.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={controller}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SlurmdTimeout=15
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillOnBadExit=1
KillWait=30
{nodes}PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
# Of each node more cores than there are, so that two jobs fit side by side.
NODE = 'NodeName={name} NodeAddr={address} CPUs=8 RealMemory=8000 State=UNKNOWN\n'


class Slurm:
  """Its nodes and daemons. Leaving its context ends and removes all of them."""

  def __init__(self, folder, nodes):
    """`folder`: of configuration, states and logs; `nodes`: their names."""
    self._folder, self._nodes = folder, nodes
    self._network = hosts.Network([CONTROLLER, *nodes])
    self._munged = None
    folder.mkdir()
    try:
      self._configure()
      self._start_munge()
      for name, daemon in {CONTROLLER: 'slurmctld', **dict.fromkeys(nodes, 'slurmd')}.items():
        words = [*self._in_host(name), f'exec {daemon} -D']
        self._start(f'{name}.out', words, env=self._environment(), start_new_session=True)
      self.until(lambda: self.states() == dict.fromkeys(nodes, 'idle'), 60)
    except BaseException:
      self.__exit__()
      raise

  def run(self, *command, **environment):
    """Runs a Slurm command on the controller's host -> what it printed."""
    words = [*self._in_host(CONTROLLER), 'exec ' + shlex.join(map(str, command))]
    environment = {**self._environment(), **environment}
    return checkout.run(*words, env=environment, must_succeed=True).stdout

  def until(self, condition, timeout):
    """Waits until it holds."""
    deadline = time.monotonic() + timeout
    while not condition():
      assert time.monotonic() < deadline, self.run('squeue', '--all') + self.run('sinfo', '-Nl')
      time.sleep(0.5)

  def states(self):
    """Each node's: 'idle', 'down' and so on."""
    return dict(line.split() for line in self.run('sinfo', '-hN', '-o', '%N %T').splitlines())

  def lose_power(self, node):
    """Cuts the node's cable and kills all that runs there."""
    self._network.cut(node)
    hosts.kill_all(self._network.namespace(node))

  def __enter__(self):
    return self

  def __exit__(self, *exception):
    self._network.__exit__()
    if self._munged:
      self._munged.kill()
      self._munged.wait()

  def _configure(self):
    (self._folder / 'state').mkdir()
    self._folder.chmod(0o755)
    at = {name: self._network.address(name) for name in (CONTROLLER, *self._nodes)}
    nodes = [NODE.format(name=name, address=at[name]) for name in self._nodes]
    for name in self._nodes:
      (self._folder / f'spool.{name}').mkdir()
    text = CONFIGURATION.format(
      controller=CONTROLLER, address=at[CONTROLLER], folder=self._folder, nodes=''.join(nodes)
    )
    (self._folder / 'slurm.conf').write_text(text)
    (self._folder / 'cgroup.conf').write_text('CgroupPlugin=cgroup/v1\n')
    known = [f'{address} {name}\n' for name, address in at.items()]
    (self._folder / 'hosts').write_text('127.0.0.1 localhost\n' + ''.join(known))

  def _start_munge(self):
    """The daemon by which Slurm's processes know each other, with a key of its own."""
    key = self._folder / 'munge.key'
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    ends = {'socket': 'socket', 'key-file': 'key', 'pid-file': 'pid', 'log-file': 'log'}
    ends['seed-file'] = 'seed'
    options = [f'--{name}={self._folder}/munge.{end}' for name, end in ends.items()]
    # --force: the folder is root's, and so may be open to others in the tests' temporary folder.
    self._munged = self._start('munged.out', ['munged', '--foreground', '--force', *options])
    until((self._folder / 'munge.socket').exists, 20)

  def _start(self, log, words, **settings):
    with open(self._folder / log, 'wb') as out:
      streams = {'stdin': subprocess.DEVNULL, 'stdout': out, 'stderr': out}
      return subprocess.Popen(words, **streams, **settings)

  def _in_host(self, host):
    """What runs a shell command on a host, under its name and with the hosts' names.

    Not `ip netns exec`: it mounts another /sys, without the cgroups that slurmd looks for.
    """
    known = shlex.quote(f'{self._folder}/hosts')
    prepare = f'mount --bind {known} /etc/hosts; hostname {host}; '
    enter = ['nsenter', f'--net=/run/netns/{self._network.namespace(host)}', 'unshare', '-u', '-m']
    return [*enter, 'sh', '-c', f'{prepare} eval "$1"', 'host']

  def _environment(self):
    kept = {name: value for name, value in os.environ.items() if not name.startswith('SLURM')}
    return {**kept, 'SLURM_CONF': f'{self._folder}/slurm.conf'}


@pytest.fixture
def cluster(tmp_path_factory):
  """A Slurm of three nodes."""
  daemons = ('slurmctld', 'slurmd', 'sbatch', 'munged')
  if reason := hosts.why_not() or debian.why_missing(daemons, PACKAGES):
    pytest.skip(reason)
  with Slurm(tmp_path_factory.mktemp('slurm') / 'slurm', ['n1', 'n2', 'n3']) as started:
    yield started


class Job:
  """A job of deploy/slurm.sh, and what it says and leaves."""

  def __init__(self, cluster, folder, data_dir, *flags, held=''):
    """`held`: as tests/held_training.py has it."""
    self.cluster, self.folder, self.log = cluster, folder / 'job', folder / 'log'
    folder.mkdir()
    python = folder / 'python'
    held_training = os.path.join(checkout.ROOT, 'tests', 'held_training.py')
    python.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, held_training])} "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    variables = {'PYTHON': str(python), 'HELD': held}
    command = ['sbatch', '--parsable', f'--output={self.log}', *TASKS, 'deploy/slurm.sh']
    flags = [*SMALL, '--sync', *flags]
    self.id = cluster.run(*command, data_dir, self.folder, *flags, **variables).strip()

  def text(self):
    """What its tasks and the script have said, of all its starts."""
    return self.log.read_text() if self.log.exists() else ''

  def over(self, timeout):
    """Waits for its end -> its state, and how often it was started again."""
    self.cluster.until(lambda: self.about()['JobState'] in OVER, timeout)
    return self.about()['JobState'], int(self.about()['Restarts'])

  def about(self):
    """What Slurm says of it."""
    return dict(re.findall(r'(\S+?)=(\S*)', self.cluster.run('scontrol', 'show', 'job', self.id)))

  def limit(self, seconds):
    """Sets its time limit: to so many seconds from now, or up to a minute more."""
    hours, minutes, _ = map(int, self.about()['RunTime'].split(':'))
    limit = f'TimeLimit={60 * hours + minutes + 1 + seconds // 60}'
    self.cluster.run('scontrol', 'update', f'JobId={self.id}', limit)

  def until_says(self, text, times=1):
    """Waits until its log has this text so often."""
    self.cluster.until(lambda: self.text().count(text) >= times, START_SECONDS)

  def result(self):
    """The evaluator's last evaluation, of the test set."""
    lines = [json.loads(line) for line in self.text().splitlines() if line.startswith('{')]
    [result] = [line for line in lines if line.get('subset') == 'eval']
    return result

  def learned(self):
    """All variables of the newest checkpoint but batch norm's averages, by name.

    Those may be of one batch more, whose update SIGTERM prevented (docs/training.md).
    """
    return {name: value for name, value in values(self.folder).items() if '/moving_' not in name}


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
  assert saved_step(chained.folder) == saved_step(undisturbed.folder) == 80
  expected, actual = undisturbed.learned(), chained.learned()
  assert expected.keys() == actual.keys()
  assert len(expected) > 40
  for name, value in expected.items():
    np.testing.assert_array_equal(actual[name], value, name)
  assert chained.result()['accuracy'] == undisturbed.result()['accuracy']
  for job in (chained, undisturbed):
    assert checkpoints.best(str(job.folder))


@pytest.mark.long
def test_a_node_loses_power(cluster, data_dir, tmp_path):
  """Slurm starts the job again on the nodes that are left, and it goes on from its checkpoint."""
  flags = ['--train-steps', 40, '--eval-every-steps', 10]
  job = Job(cluster, tmp_path / 'job', data_dir, *flags, held='chief 15')
  cluster.until(lambda: saved_step(job.folder) >= 10, START_SECONDS)
  cluster.lose_power('n1')
  assert job.over(400) == ('COMPLETED', 1), job.text()
  assert 'n1' not in job.about()['NodeList']
  assert cluster.states()['n1'].startswith('down')
  assert 'resuming at step 1' in job.text()  # 10, or 15 if the chief could still save.
  assert job.result()['global_step'] == 40
  assert checkpoints.best(str(job.folder))


def test_a_cancelled_job_saves_and_stays_cancelled(cluster, data_dir, tmp_path):
  job = Job(cluster, tmp_path / 'job', data_dir, *FOREVER)
  job.until_says('images/s', 4)  # Two of them are of the first step, which may not be over.
  cluster.run('scancel', job.id)
  assert job.over(60) == ('CANCELLED', 0), job.text()
  cluster.until(lambda: set(cluster.states().values()) == {'idle'}, 60)
  assert saved_step(job.folder) > 0  # Saved because of it, and not before.
