"""A real Slurm of several nodes on one machine, for tests.

Each node is a host of its own (tests/hosts.py) with a slurmd; the controller has one, too. The
daemons see a configuration and an /etc/hosts of their own: nothing of the machine's is changed,
but for the packages, which are installed where they are missing.
"""

import functools
import os
import re
import shlex
import signal
import subprocess
import time

import checkout
import debian
import hosts
import outcome
import psutil

PACKAGES = ('slurmctld', 'slurmd', 'slurm-client', 'munge')
CONTROLLER = 'controller'
DEAD_SECONDS = 15  # After which the controller gives a silent node up.
CPUS = 8  # Of each node, as Slurm sees it: more than there are, so that two jobs fit side by side.
_CONFIGURATION = """\
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
SlurmdTimeout={dead_seconds}
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillOnBadExit=1
KillWait=30
"""
_NODE = 'NodeName={name} NodeAddr={address} CPUs={cpus} RealMemory=8000 State=UNKNOWN\n'
_PARTITION = 'PartitionName=all Nodes={nodes} Default=YES MaxTime=INFINITE State=UP\n'


@functools.cache
def why_not():
  """Why no Slurm can run here; '' where it can. Installs what is missing."""
  return hosts.why_not() or debian.why_missing(
    ('slurmctld', 'slurmd', 'sbatch', 'munged'), PACKAGES
  )


class Slurm:
  """Its nodes and daemons. Leaving its context ends and removes all of them."""

  def __init__(self, folder, nodes):
    """Args:
    folder: of configuration, states and logs.
    nodes: their names.
    """
    self.folder = str(folder)
    self.nodes = list(nodes)
    self._network = hosts.Network([CONTROLLER, *self.nodes])
    self._munged = None
    try:
      self._configure()
      self._start_munge()
      self.daemons = {
        name: self._enter(name, program, '-D', program=program)
        for name, program in {CONTROLLER: 'slurmctld', **dict.fromkeys(nodes, 'slurmd')}.items()
      }
      self.until(lambda: self.states() == dict.fromkeys(self.nodes, 'idle'), 60)
    except BaseException:
      self.remove()
      raise

  def run(self, *command, **environment):
    """Runs a Slurm command on the controller's host -> what it printed."""
    words = [*self._in_host(CONTROLLER), 'exec ' + shlex.join(map(str, command))]
    ran = checkout.run(*words, env={**self._environment(), **environment})
    assert ran.returncode == 0, ran.stderr
    return ran.stdout

  def submit(self, log, data, job, *flags, options=(), **environment):
    """sbatch of deploy/slurm.sh -> the job's number. `log` gets what its tasks say."""
    command = ['sbatch', '--parsable', f'--output={log}', *options, 'deploy/slurm.sh']
    return int(self.run(*command, data, job, *flags, **environment))

  def about(self, job_id):
    """What Slurm says of a job: JobState, Restarts, ExitCode ('code:signal') and others."""
    return dict(re.findall(r'(\S+?)=(\S*)', self.run('scontrol', 'show', 'job', job_id)))

  def until_over(self, job_id, timeout):
    """Waits until a job has ended -> what Slurm says of it."""
    over = ('COMPLETED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'NODE_FAIL', 'OUT_OF_MEMORY')
    self.until(lambda: self.about(job_id)['JobState'] in over, timeout)
    return self.about(job_id)

  def until(self, condition, timeout):
    """Waits until it holds."""
    deadline = time.monotonic() + timeout
    while not condition():
      assert time.monotonic() < deadline, self.run('squeue', '--all') + self.run('sinfo', '-Nl')
      time.sleep(0.5)

  def states(self):
    """Each node's: 'idle', 'down' and so on."""
    return dict(line.split() for line in self.run('sinfo', '-hN', '-o', '%N %T').splitlines())

  def processes(self, node, *words):
    """Those on a node's host whose command line has all words."""
    found = []
    for pid in hosts.pids(self._network.namespace(node)):
      try:
        process = psutil.Process(pid)
        line = process.cmdline()
      except psutil.NoSuchProcess:
        continue
      if set(words) <= set(line):
        found.append(process)
    return found

  def lose_power(self, node):
    """Cuts the node's cable and kills all that runs there."""
    self._network.cut(node)
    for process in self.processes(node):
      process.send_signal(signal.SIGKILL)

  def remove(self):
    """Ends the daemons and all that they started."""
    self._network.remove()
    if self._munged:
      self._munged.kill()
      self._munged.wait()

  def __enter__(self):
    return self

  def __exit__(self, *exception):
    self.remove()

  def _configure(self):
    os.makedirs(os.path.join(self.folder, 'state'))
    os.chmod(self.folder, 0o755)
    address = self._network.address
    text = _CONFIGURATION.format(
      controller=CONTROLLER,
      address=address(CONTROLLER),
      folder=self.folder,
      dead_seconds=DEAD_SECONDS,
    )
    for name in self.nodes:
      os.makedirs(os.path.join(self.folder, f'spool.{name}'))
      text += _NODE.format(name=name, address=address(name), cpus=CPUS)
    self._write('slurm.conf', text + _PARTITION.format(nodes=','.join(self.nodes)))
    self._write('cgroup.conf', 'CgroupPlugin=cgroup/v1\n')
    addresses = [f'{address(name)} {name}\n' for name in (CONTROLLER, *self.nodes)]
    self._write('hosts', '127.0.0.1 localhost\n' + ''.join(addresses))

  def _write(self, name, text):
    with open(os.path.join(self.folder, name), 'w', encoding='utf-8') as file:
      file.write(text)

  def _start_munge(self):
    """The daemon by which Slurm's processes know each other, with a key of its own."""
    at = functools.partial(os.path.join, self.folder)
    with open(at('munge.key'), 'wb') as file:
      file.write(os.urandom(128))
    os.chmod(at('munge.key'), 0o400)
    files = {'socket': 'socket', 'key-file': 'key', 'pid-file': 'pid', 'log-file': 'log'}
    options = [f'--{name}={at("munge." + end)}' for name, end in files.items()]
    options.append(f'--seed-file={at("munge.seed")}')
    # --force: the folder is root's, and so may be open to others in the tests' temporary folder.
    with open(at('munged.out'), 'wb') as out:
      self._munged = subprocess.Popen(
        ['munged', '--foreground', '--force', *options], stdout=out, stderr=out
      )
    outcome.until(lambda: os.path.exists(at('munge.socket')), 20)

  def _enter(self, host, *command, program):
    with open(os.path.join(self.folder, f'{host}.out'), 'wb') as out:
      return subprocess.Popen(
        [*self._in_host(host), 'exec ' + shlex.join(command)],
        env=self._environment(),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        start_new_session=True,
      )

  def _in_host(self, host):
    """What runs a shell command on a host, under its name and with the hosts' names.

    Not `ip netns exec`: it mounts another /sys, without the cgroups that slurmd looks for.
    """
    prepare = f'mount --bind {shlex.quote(self.folder)}/hosts /etc/hosts; hostname {host}; '
    enter = ['nsenter', f'--net=/run/netns/{self._network.namespace(host)}', 'unshare', '-u', '-m']
    return [*enter, 'sh', '-c', f'{prepare} eval "$1"', 'host']

  def _environment(self):
    kept = {name: value for name, value in os.environ.items() if not name.startswith('SLURM')}
    return {**kept, 'SLURM_CONF': os.path.join(self.folder, 'slurm.conf')}
