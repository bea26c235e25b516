"""The text of TF_CONFIG -> the tasks of a run, and which of them this process is.

plan.py reads the variable and calls `parse_cluster`, before TensorFlow is loaded.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import NoReturn

from cifar10.core.errors import InputError
from cifar10.core.option import is_address

_JOBS = ('chief', 'master', 'worker', 'ps', 'evaluator')


@dataclasses.dataclass(frozen=True)
class Cluster:
  """The tasks of a run. Without TF_CONFIG: a chief alone.

  `addresses` are host:port of each 'chief', 'worker' and 'ps' task, not of the evaluator.
  """

  addresses: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  task_type: str = 'chief'
  task_index: int = 0
  has_evaluator: bool = False  # whether TF_CONFIG lists one

  @property
  def is_distributed(self) -> bool:
    """Tells whether this process is one of several that train together."""
    return self.task_type != 'evaluator' and sum(map(len, self.addresses.values())) > 1

  @property
  def is_chief(self) -> bool:
    """Tells whether this process initialises, saves and writes summaries."""
    return self.task_type == 'chief'

  @property
  def num_workers(self) -> int:
    """The number of replicas that compute gradients: the chief and the workers."""
    return 1 + len(self.addresses.get('worker', ()))

  @property
  def worker(self) -> int:
    """This replica's number among the workers: 0 for the chief, index + 1 for a worker."""
    return 0 if self.is_chief else self.task_index + 1

  @property
  def num_ps(self) -> int:
    return len(self.addresses.get('ps', ()))

  @property
  def is_reduced(self) -> bool:
    """Tells whether the tasks train by all-reduce, without parameter servers."""
    return self.is_distributed and not self.num_ps

  @property
  def name(self) -> str:
    """This task's name for logs: 'worker 1'."""
    return f'{self.task_type} {self.task_index}'

  @property
  def job(self) -> str:
    """The start of this task's device names: '/job:worker/task:1'; '' for one process."""
    return f'/job:{self.task_type}/task:{self.task_index}' if self.is_distributed else ''

  @property
  def peers(self) -> dict[str, str]:
    """The addresses of the tasks that train with this one, by name."""
    listed = self.addresses.items() if self.is_distributed else ()
    named = {f'{job} {index}': at for job, all_ in listed for index, at in enumerate(all_)}
    return {name: address for name, address in named.items() if name != self.name}

  @property
  def device_filters(self) -> list[str]:
    """The tasks that this one's sessions need: without filters each waits for all tasks."""
    if not self.is_distributed:
      return []
    return [self.job] if self.task_type == 'ps' else ['/job:ps', self.job]

  @property
  def tf_config(self) -> str:
    """TF_CONFIG for the Estimator: with a chief, without an evaluator.

    A chief with no other task than an evaluator is listed, too: by '{}' it would itself evaluate.
    """
    if not (self.is_distributed or (self.is_chief and self.has_evaluator)):
      return '{}'
    task = {'type': self.task_type, 'index': self.task_index}
    # Upon this word the Estimator starts no server of its own (`roles.Role.connected` has why).
    return json.dumps({'cluster': self.addresses, 'task': task, 'environment': 'google'})


def parse_cluster(text: str, num_ps_needed: int = 1) -> Cluster:
  """Returns the cluster that the text of TF_CONFIG describes; '' is a single process.

  The text is a JSON object with 'cluster' (job -> addresses) and 'task' ('type', 'index'). A
  'master' is read as a chief. Other keys, which some services add, are ignored. Several workers
  need `num_ps_needed` parameter servers. Raises InputError: the first mistake, with its remedy.
  """
  try:
    config = json.loads(text or '{}')
  except (ValueError, RecursionError) as error:
    raise InputError(
      f'TF_CONFIG is not JSON ({error}); quote it as a whole, in single quotes: {text}'
    ) from None
  if not isinstance(config, dict):
    raise InputError(f'TF_CONFIG is {json.dumps(config)}; write a JSON object')
  jobs, task = config.get('cluster') or {}, config.get('task')
  if not jobs and not task:
    return Cluster()
  addresses = _read_jobs(jobs)
  match task:
    case {'type': str(task_type), 'index': int(index)} if task_type in _JOBS and index >= 0:
      task_type = 'chief' if task_type == 'master' else task_type
    case _:
      _refuse('task', task, 'say who this process is: {"type": "worker", "index": 0}')
  evaluators = addresses.pop('evaluator', ())
  if not addresses:  # The Estimator takes this for a single process, or for an evaluator alone.
    if task_type != 'evaluator' and (task_type, index) != ('worker', 0):
      _refuse('cluster', jobs, 'list the tasks, or unset TF_CONFIG to train in one process')
    return Cluster(task_type=task_type if task_type == 'evaluator' else 'chief')
  # An evaluator need not be listed.
  count = len({**addresses, 'evaluator': evaluators or ('',)}.get(task_type, ()))
  if index >= count:
    _refuse('task', task, f'cluster lists {count} {task_type} task(s)')
  if len(addresses.get('chief', ())) != 1 or len(evaluators) > 1:
    _refuse('cluster', jobs, 'list exactly one chief, and one evaluator or none')
  if len(addresses) > 1 and len(addresses.get('ps', ())) < num_ps_needed:
    _refuse('cluster.ps', [], 'list a parameter server, or use --distribute multi_worker_mirrored')
  return Cluster(addresses, task_type, index, bool(evaluators))


def _read_jobs(jobs: object) -> dict[str, tuple[str, ...]]:
  """Returns the tasks' addresses by job; a master counts as the chief."""
  if not isinstance(jobs, dict):
    _refuse('cluster', jobs, 'write an object: {"chief": ["host:port"]}')
  addresses: dict[str, tuple[str, ...]] = {}
  for job, listed in jobs.items():
    if job not in _JOBS:
      _refuse('cluster', job, f'the jobs are {", ".join(_JOBS)}')
    if not (isinstance(listed, list) and all(is_address(str(at)) for at in listed)):
      _refuse(f'cluster.{job}', listed, 'write a list of "host:port", an IPv6 address in brackets')
    name = 'chief' if job == 'master' else job
    if listed:
      addresses[name] = (*addresses.get(name, ()), *listed)
  everyone = [address for of_job in addresses.values() for address in of_job]
  if len(set(everyone)) < len(everyone):
    _refuse('cluster', jobs, 'give each task an address of its own')
  return addresses


def _refuse(key: str, value: object, remedy: str) -> NoReturn:
  raise InputError(f'TF_CONFIG: {key} is {json.dumps(value)}; {remedy}')
