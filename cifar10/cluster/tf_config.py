"""TF_CONFIG -> a checked cluster: which tasks there are, where, and which one this process is.

Nothing here needs TensorFlow: a mistake is named before TensorFlow starts.
"""

import dataclasses
import json
import socket
from collections.abc import Mapping
from typing import Any

from cifar10.core.errors import InputError

_JOBS = ('chief', 'master', 'worker', 'ps', 'evaluator')
_EXAMPLE = '{"type": "worker", "index": 0}'


@dataclasses.dataclass(frozen=True)
class Cluster:
  """The tasks of one run. Without TF_CONFIG: a chief alone."""

  # host:port of each 'chief', 'worker' and 'ps' task; an evaluator is no part of the training.
  addresses: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  task_type: str = 'chief'
  task_index: int = 0
  has_evaluator: bool = False  # whether TF_CONFIG lists one

  @property
  def is_distributed(self) -> bool:
    """Whether several processes train together, this one among them."""
    return self.task_type != 'evaluator' and sum(map(len, self.addresses.values())) > 1

  @property
  def is_watched_alone(self) -> bool:
    """Whether this is a chief without workers, and an evaluator checks that it is alive."""
    return self.is_chief and self.has_evaluator and not self.is_distributed

  @property
  def is_chief(self) -> bool:
    """Whether this process initialises, saves and writes summaries."""
    return self.task_type == 'chief'

  @property
  def num_workers(self) -> int:
    """Replicas that compute gradients: the chief and the workers."""
    return 1 + len(self.addresses.get('worker', ()))

  @property
  def worker(self) -> int:
    """This replica's number among the workers: 0 for the chief, index + 1 for a worker."""
    return 0 if self.is_chief else self.task_index + 1

  def gradients_per_update(self, sync: bool, backup_workers: int = 0) -> int:
    """How many workers' gradients make one synchronous update; 0: each is applied as it comes."""
    return self.num_workers - backup_workers if sync and self.num_workers > 1 else 0

  @property
  def num_ps(self) -> int:
    """Parameter servers."""
    return len(self.addresses.get('ps', ()))

  @property
  def name(self) -> str:
    """This task in a log: 'worker 1'."""
    return f'{self.task_type} {self.task_index}'

  @property
  def job(self) -> str:
    """The start of this task's device names: '/job:worker/task:1', or '' for one process."""
    return f'/job:{self.task_type}/task:{self.task_index}' if self.is_distributed else ''

  @property
  def port(self) -> int:
    """Where this task of a cluster listens."""
    return int(self.addresses[self.task_type][self.task_index].rpartition(':')[2])

  @property
  def is_local(self) -> bool:
    """Whether all tasks are on this machine, by addresses that no other can reach."""
    return all(is_loopback(address) for listed in self.addresses.values() for address in listed)

  @property
  def device_filters(self) -> list[str]:
    """The tasks that this one's sessions need: without filters each waits for all tasks."""
    if not self.is_distributed:
      return []
    return [self.job] if self.task_type == 'ps' else ['/job:ps', self.job]

  @property
  def peers(self) -> dict[str, str]:
    """The other tasks' addresses, by name."""
    return {
      f'{job} {index}': address
      for job, addresses in self.addresses.items()
      for index, address in enumerate(addresses)
      if (job, index) != (self.task_type, self.task_index)
    }

  @property
  def tf_config(self) -> str:
    """TF_CONFIG as the Estimator should read it: with a chief, without an evaluator."""
    if not self.is_distributed:
      return '{}'
    task = {'type': self.task_type, 'index': self.task_index}
    return json.dumps({'cluster': self.addresses, 'task': task})


def is_loopback(address: str) -> bool:
  """Whether no other machine can reach this host:port."""
  host = address.rpartition(':')[0]
  return host in ('localhost', '[::1]') or host.startswith('127.')


def read_cluster(text: str, job_dir: str, num_ps_needed: int = 1) -> Cluster:
  """Checks the text of TF_CONFIG; '' is one process.

  Args:
    text: a JSON object with 'cluster' (job -> addresses) and 'task' ('type', 'index'). A 'master'
      is read as the chief. Other keys, which some services add, are left alone.
    job_dir: what 'model_dir', where it is there, must agree with.
    num_ps_needed: parameter servers that several workers must have.

  Raises:
    InputError: the first thing that is wrong, by key and value, and what to write instead.
  """
  try:
    config = json.loads(text or '{}')
  except (ValueError, RecursionError) as error:
    raise InputError(
      f'TF_CONFIG is not JSON ({error}): {text!r}; quote it as a whole, in single quotes'
    ) from None
  _require(isinstance(config, dict), '', config, 'write a JSON object')
  model_dir = config.get('model_dir', job_dir)
  _require(
    model_dir == job_dir,
    'model_dir',
    model_dir,
    f'give the same folder as --job-dir {job_dir}, or leave it out',
  )
  jobs = config.get('cluster') or {}
  _require(isinstance(jobs, dict), 'cluster', jobs, 'write an object: {"chief": ["host:port"]}')
  if not jobs and not config.get('task'):
    return Cluster()
  addresses = _read_jobs(jobs)
  evaluators = addresses.pop('evaluator', ())
  task_type, index = _read_task(config.get('task'), {**addresses, 'evaluator': evaluators or ('',)})
  if not addresses:  # What the Estimator takes for one process, or for an evaluator by itself.
    alone = task_type == 'evaluator' or (task_type, index) == ('worker', 0)
    _require(alone, 'cluster', jobs, 'list the tasks, or unset TF_CONFIG to train in one process')
    return Cluster(task_type=task_type if task_type == 'evaluator' else 'chief')
  _check_jobs(addresses, num_ps_needed)
  return Cluster(addresses, task_type, index, bool(evaluators))


def reachable(address: str, timeout: float = 1) -> bool:
  """Whether something listens at 'host:port'."""
  host, _, port = address.rpartition(':')
  try:
    with socket.create_connection((host.strip('[]'), int(port)), timeout):
      return True
  except OSError:
    return False


def _read_jobs(jobs: dict[str, Any]) -> dict[str, tuple[str, ...]]:
  """The tasks' addresses by job, a master under 'chief'."""
  addresses: dict[str, tuple[str, ...]] = {}
  for job, listed in jobs.items():
    key = f'cluster.{job}'
    _require(job in _JOBS, 'cluster', job, f'the jobs are {", ".join(_JOBS)}')
    _require(isinstance(listed, list), key, listed, 'write a list: ["host:port"]')
    for address in listed:
      _require(_is_address(address), key, address, 'write "host:port"')
    name = 'chief' if job == 'master' else job
    _require(name not in addresses, key, listed, 'name a chief or a master, not both')
    if listed:
      addresses[name] = tuple(listed)
  everyone = [address for listed in addresses.values() for address in listed]
  for address in everyone:
    _require(
      everyone.count(address) == 1, 'cluster', address, 'give each task an address of its own'
    )
  return addresses


def _read_task(task: Any, addresses: Mapping[str, tuple[str, ...]]) -> tuple[str, int]:
  """This process's job and number in it."""
  _require(isinstance(task, dict), 'task', task, f'say who this process is: {_EXAMPLE}')
  for key in task:
    known = key in ('type', 'index', 'trial', 'cloud')  # Hosted services add the last two.
    _require(known, f'task.{key}', task[key], f'the keys are type and index: {_EXAMPLE}')
  for key in ('type', 'index'):
    _require(key in task, 'task', task, f'add "{key}": {_EXAMPLE}')
  task_type, index = task['type'], task['index']
  _require(
    isinstance(task_type, str) and task_type in _JOBS,
    'task.type',
    task_type,
    f'the jobs are {", ".join(_JOBS)}',
  )
  number = isinstance(index, int) and not isinstance(index, bool) and index >= 0
  _require(number, 'task.index', index, 'write a number, 0 or more, without quotes')
  if task_type == 'master':
    task_type = 'chief'
  if len(addresses) == 1:  # No tasks are listed, so no index is out of range.
    return task_type, index
  count = len(addresses.get(task_type, ()))
  _require(count > 0, 'task.type', task_type, f'cluster lists no {task_type}')
  _require(index < count, 'task.index', index, f'cluster lists {count} {task_type} task(s)')
  return task_type, index


def _check_jobs(addresses: Mapping[str, tuple[str, ...]], num_ps_needed: int) -> None:
  """Raises InputError for a cluster that cannot train."""
  chiefs = addresses.get('chief', ())
  _require(len(chiefs) == 1, 'cluster.chief', list(chiefs), 'list exactly one chief')
  if len(addresses) == 1:
    return
  servers = list(addresses.get('ps', ()))
  _require(
    len(servers) >= num_ps_needed,
    'cluster.ps',
    servers,
    'list a parameter server, or use --distribute multi_worker_mirrored',
  )


def _is_address(address: Any) -> bool:
  host, _, port = address.rpartition(':') if isinstance(address, str) else ('', '', '')
  is_number = port.isascii() and port.isdigit()
  return bool(host) and not any(map(str.isspace, host)) and is_number and 0 < int(port) < 65536


def _require(holds: bool, key: str, value: Any, remedy: str) -> None:
  if not holds:
    where = f'TF_CONFIG: {key}' if key else 'TF_CONFIG'
    raise InputError(f'{where} is {json.dumps(value)}; {remedy}')
