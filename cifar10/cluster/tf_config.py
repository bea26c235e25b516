"""Parses TF_CONFIG to a checked cluster: its tasks, their addresses, and this process's task.

This module does not need TensorFlow, so that mistakes are reported before TensorFlow starts.
"""

import json
from collections.abc import Mapping
from typing import Any

from cifar10.cluster.tasks import Cluster
from cifar10.core.errors import InputError

_JOBS = ('chief', 'master', 'worker', 'ps', 'evaluator')
_EXAMPLE = '{"type": "worker", "index": 0}'


def read_cluster(text: str, job_dir: str, num_ps_needed: int = 1) -> Cluster:
  """Returns the cluster that the text of TF_CONFIG describes; '' is a single process.

  Args:
    text: a JSON object with 'cluster' (job -> addresses) and 'task' ('type', 'index'). A 'master'
      is read as a chief. Other keys, which some services add, are ignored.
    job_dir: 'model_dir', if given, must be the same.
    num_ps_needed: parameter servers that several workers must have.

  Raises:
    InputError: the first mistake, with key, value and remedy.
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
  if not addresses:  # The Estimator takes this for a single process, or for an evaluator alone.
    alone = task_type == 'evaluator' or (task_type, index) == ('worker', 0)
    _require(alone, 'cluster', jobs, 'list the tasks, or unset TF_CONFIG to train in one process')
    return Cluster(task_type=task_type if task_type == 'evaluator' else 'chief')
  _check_jobs(addresses, num_ps_needed)
  return Cluster(addresses, task_type, index, bool(evaluators))


def _read_jobs(jobs: dict[str, Any]) -> dict[str, tuple[str, ...]]:
  """Returns the tasks' addresses by job; a master counts as the chief."""
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
  """Returns this process's job and its index there."""
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
  if len(addresses) == 1:  # No tasks are listed, so every index is valid.
    return task_type, index
  count = len(addresses.get(task_type, ()))
  _require(count > 0, 'task.type', task_type, f'cluster lists no {task_type}')
  _require(index < count, 'task.index', index, f'cluster lists {count} {task_type} task(s)')
  return task_type, index


def _check_jobs(addresses: Mapping[str, tuple[str, ...]], num_ps_needed: int) -> None:
  """Raises InputError if the cluster cannot train."""
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
