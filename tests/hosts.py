"""Hosts of their own on one machine: network namespaces, joined by cables that can be cut.

Each host has its own address, its own loopback and its own folder. Their cables end in a switch, a
namespace with a bridge; nothing reaches the machine's own network. Only root can make them.
"""

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import time

from tasks import Tasks

PREFIX = 'cifar10'


@functools.cache
def why_not():
  """Why no hosts can be made here; '' where they can."""
  if not shutil.which('ip'):
    return 'hosts of their own need the command ip, of iproute2'
  if os.geteuid() != 0:
    return 'hosts of their own need root, who alone makes network namespaces'
  try:
    with Network(['one', 'two']) as network:
      network.run('one', 'ip', 'route', 'get', network.address('two'))
  except subprocess.CalledProcessError as error:
    return f'no hosts of their own can be made here: {error.stderr.strip()}'
  return ''


class Network:
  """Hosts and the cables between them and a switch. Leaving its context ends and removes all."""

  def __init__(self, hosts):
    _sweep()
    self._stem = f'{PREFIX}-{os.getpid()}-{time.monotonic_ns() % 10**9}'
    self._hosts = list(hosts)
    self._made = []
    self._make()  # What is left where this fails, a later process sweeps.

  def address(self, host):
    """Its IPv4 address."""
    return f'10.77.0.{self._hosts.index(host) + 1}'

  def namespace(self, host):
    """What `ip netns exec` calls it."""
    return f'{self._stem}-h{self._hosts.index(host)}'

  def run(self, host, *command):
    """Runs a command on a host -> what it printed."""
    return _ip('netns', 'exec', self.namespace(host), *command)

  def cut(self, host):
    """Cuts its cable: at the switch, so that no connection of the host is closed by its kernel."""
    _ip('-n', self._switch, 'link', 'set', self._cable(host), 'down')

  def mend(self, host):
    """Joins the cable again."""
    _ip('-n', self._switch, 'link', 'set', self._cable(host), 'up')

  def __enter__(self):
    return self

  def __exit__(self, *exception):
    for namespace in self._made:
      _remove(namespace)
    self._made.clear()

  @property
  def _switch(self):
    return f'{self._stem}-s'

  def _cable(self, host):
    return f'to{self._hosts.index(host)}'

  def _make(self):
    self._add(self._switch)
    _ip('-n', self._switch, 'link', 'add', 'bridge', 'type', 'bridge')
    _ip('-n', self._switch, 'link', 'set', 'bridge', 'up')
    for host in self._hosts:
      name, cable = self.namespace(host), self._cable(host)
      self._add(name)
      ends = ['eth0', 'netns', name, 'type', 'veth', 'peer', cable, 'netns', self._switch]
      _ip('link', 'add', *ends)
      _ip('-n', self._switch, 'link', 'set', cable, 'master', 'bridge')
      _ip('-n', self._switch, 'link', 'set', cable, 'up')
      _ip('-n', name, 'address', 'add', f'{self.address(host)}/24', 'dev', 'eth0')
      for device in ('eth0', 'lo'):
        _ip('-n', name, 'link', 'set', device, 'up')

  def _add(self, namespace):
    _ip('netns', 'add', namespace)
    self._made.append(namespace)


class HostedTasks(Tasks):
  """A cluster whose tasks each run on the host of their name, in a folder below `folder`.

  Into that the data dir is copied. The flags are cifar10_main.py's, without folders.
  """

  def __init__(self, network, folder, data_dir, flags, **counts):
    self.network = network
    self._folder = folder
    self._data_dir = data_dir
    super().__init__(folder / 'chief-0/job', flags, **counts)
    for job, addresses in self.addresses.items():
      hosts = [network.address(f'{job} {index}') for index in range(len(addresses))]
      self.addresses[job] = [f'{host}:2222' for host in hosts]  # Each has ports of its own.

  def command(self, name):
    own = self._folder / name.replace(' ', '-')
    if not own.exists():
      shutil.copytree(self._data_dir, own / 'data')
    folders = ['--data-dir', str(own / 'data'), '--job-dir', str(own / 'job')]
    return ['ip', 'netns', 'exec', self.network.namespace(name), *super().command(name), *folders]


def _ip(*arguments):
  command = ['ip', *map(str, arguments)]
  return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def _sweep():
  """Removes what a killed process left behind."""
  for name in re.findall(rf'^{PREFIX}-\d+-\S+', _ip('netns', 'list'), re.MULTILINE):
    if not os.path.exists(f'/proc/{name.split("-")[1]}'):
      with contextlib.suppress(subprocess.CalledProcessError):  # Another process was faster.
        _remove(name)


def kill_all(namespace):
  """Kills all processes on a host."""
  for pid in map(int, _ip('netns', 'pids', namespace).split()):
    with contextlib.suppress(ProcessLookupError):
      os.kill(pid, signal.SIGKILL)


def _remove(namespace):
  kill_all(namespace)
  _ip('netns', 'del', namespace)
