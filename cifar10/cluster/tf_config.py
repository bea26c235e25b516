"""Parses TF_CONFIG to a checked cluster: its tasks, their addresses, and this process's task.

This module does not need TensorFlow, so that mistakes are reported before TensorFlow starts.
"""

import contextlib
import itertools
import json
import socket
from collections.abc import Mapping
from typing import Any

from cifar10.cluster import sockets
from cifar10.cluster.tasks import Cluster
from cifar10.core.errors import InputError
from cifar10.core.option import ADDRESS

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
      f'TF_CONFIG is not JSON ({error}); quote it as a whole, in single quotes: {text}'
    ) from None
  _require(isinstance(config, dict), '', config, 'write a JSON object')
  model_dir = config.get('model_dir', job_dir)
  remedy = f'give the same folder as --job-dir {job_dir}, or leave it out'
  _require(model_dir == job_dir, 'model_dir', model_dir, remedy)
  jobs, task = config.get('cluster') or {}, config.get('task')
  _require(isinstance(jobs, dict), 'cluster', jobs, 'write an object: {"chief": ["host:port"]}')
  if not jobs and not task:
    return Cluster()
  addresses = _read_jobs(jobs)
  evaluators = addresses.pop('evaluator', ())
  _require(len(evaluators) < 2, 'cluster.evaluator', list(evaluators), 'list one: all write best/')
  task_type, index = _read_task(task)
  if not addresses:  # The Estimator takes this for a single process, or for an evaluator alone.
    alone = task_type == 'evaluator' or (task_type, index) == ('worker', 0)
    _require(alone, 'cluster', jobs, 'list the tasks, or unset TF_CONFIG to train in one process')
    return Cluster(task_type=task_type if task_type == 'evaluator' else 'chief')
  # An evaluator need not be listed.
  count = len({**addresses, 'evaluator': evaluators or ('',)}.get(task_type, ()))
  _require(count > 0, 'task.type', task_type, f'cluster lists no {task_type}')
  _require(index < count, 'task.index', index, f'cluster lists {count} {task_type} task(s)')
  chiefs, servers = addresses.get('chief', ()), addresses.get('ps', ())
  _require(len(chiefs) == 1, 'cluster.chief', list(chiefs), 'list exactly one chief')
  remedy = 'list a parameter server, or use --distribute multi_worker_mirrored'
  is_served = len(addresses) == 1 or len(servers) >= num_ps_needed
  _require(is_served, 'cluster.ps', list(servers), remedy)
  return Cluster(addresses, task_type, index, bool(evaluators))


def _read_jobs(jobs: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
  """Returns the tasks' addresses by job; a master counts as the chief."""
  addresses: dict[str, tuple[str, ...]] = {}
  for job, listed in jobs.items():
    key = f'cluster.{job}'
    _require(job in _JOBS, 'cluster', job, f'the jobs are {", ".join(_JOBS)}')
    _require(isinstance(listed, list), key, listed, 'write a list: ["host:port"]')
    for address in listed:
      is_one = isinstance(address, str) and ADDRESS.accepts(address)
      _require(is_one, key, address, 'write "host:port", an IPv6 address in brackets')
    name = 'chief' if job == 'master' else job
    _require(name not in addresses, key, listed, 'name a chief or a master, not both')
    if listed:
      addresses[name] = tuple(listed)
  places: dict[tuple[str, int], str] = {}
  for address in itertools.chain(*addresses.values()):
    is_first = places.setdefault(_place(address), address) is address
    _require(is_first, 'cluster', address, 'give each task an address of its own')
  return addresses


def _read_task(task: Any) -> tuple[str, int]:
  """Returns this process's job and its index there."""
  _require(isinstance(task, dict), 'task', task, f'say who this process is: {_EXAMPLE}')
  for key in task:
    known = key in ('type', 'index', 'trial', 'cloud')  # Hosted services add the last two.
    _require(known, f'task.{key}', task[key], f'the keys are type and index: {_EXAMPLE}')
  for key in ('type', 'index'):
    _require(key in task, 'task', task, f'add "{key}": {_EXAMPLE}')
  task_type, index = task['type'], task['index']
  _require(task_type in _JOBS, 'task.type', task_type, f'the jobs are {", ".join(_JOBS)}')
  is_number = type(index) is int and index >= 0
  _require(is_number, 'task.index', index, 'write a number, 0 or more, without quotes')
  return 'chief' if task_type == 'master' else task_type, index


def _place(address: str) -> tuple[str, int]:
  """The same for all spellings of an address, without asking anybody what a name means."""
  host, port = sockets.place(address.lower())
  with contextlib.suppress(OSError, UnicodeError):  # It is a name.
    host = str(socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)[0][4][0])
  is_here = host in ('127.0.0.1', '::1', 'localhost', socket.gethostname().lower())
  return 'localhost' if is_here else host, port


def _require(holds: bool, key: str, value: Any, remedy: str) -> None:
  if not holds:
    where = f'TF_CONFIG: {key}' if key else 'TF_CONFIG'
    raise InputError(f'{where} is {json.dumps(value)}; {remedy}')
