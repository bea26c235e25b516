"""Prints the shell commands that set one Slurm task's environment, as deploy/slurm.sh needs it.

HOSTS: the job's nodes, one a line. SLURM_NTASKS, SLURM_PROCID: how many tasks, and which one this
is; they take turns over the nodes. NUM_PS: parameter servers. EVALUATOR: 1, or 0 for none.
BASE_PORT: each node's first port; by default the job's number gives it.
"""

import json
import os
import shlex
import sys
from collections.abc import Mapping

_FIRST_PORT = 10_000  # The ports from here to 29,999 are below those that Linux gives to clients.
_PORTS_OF_A_JOB = 32  # On each node.
_JOBS_APART = 625  # How many jobs in a row have ports of their own.
_REPLICAS = ('chief', 'worker')


def settings(environment: Mapping[str, str]) -> dict[str, str]:
  """TF_CONFIG, and where a node's GPUs are shared by replicas, CUDA_VISIBLE_DEVICES.

  The chief is rank 0; workers follow, then parameter servers, and the evaluator is the last.

  Raises:
    KeyError: Slurm or deploy/slurm.sh has not said something.
    ValueError: too few tasks, tasks that do not fill the nodes evenly, or GPUs that cannot be
      shared evenly.
  """
  hosts = environment['HOSTS'].split()
  num_tasks, rank = int(environment['SLURM_NTASKS']), int(environment['SLURM_PROCID'])
  jobs = _jobs(num_tasks, int(environment['NUM_PS']), int(environment['EVALUATOR']))
  if num_tasks % len(hosts):
    raise ValueError(f'{num_tasks} tasks do not fill {len(hosts)} nodes evenly')
  base_port = int(environment.get('BASE_PORT') or _base_port(int(environment['SLURM_JOB_ID'])))
  cluster: dict[str, list[str]] = {}
  for other, job in enumerate(jobs):
    address = f'{hosts[other % len(hosts)]}:{base_port + other // len(hosts)}'
    cluster.setdefault(job, []).append(address)
  task = {'type': jobs[rank], 'index': jobs[:rank].count(jobs[rank])}
  set_here = {'TF_CONFIG': json.dumps({'cluster': cluster, 'task': task})}
  if jobs[rank] in _REPLICAS and not environment.get('SLURM_GPUS_PER_TASK'):
    here = [other for other in range(rank % len(hosts), num_tasks, len(hosts))]
    replicas = [other for other in here if jobs[other] in _REPLICAS]
    gpus = [gpu for gpu in environment.get('CUDA_VISIBLE_DEVICES', '').split(',') if gpu]
    if gpus and len(replicas) > 1:
      set_here['CUDA_VISIBLE_DEVICES'] = ','.join(_share(gpus, replicas.index(rank), len(replicas)))
  return set_here


def _jobs(num_tasks: int, num_ps: int, num_evaluators: int) -> list[str]:
  """Each rank's job."""
  num_workers = num_tasks - 1 - num_ps - num_evaluators
  if num_workers < min(num_ps, 1):
    wanted = f'a chief, {num_ps} ps, {num_evaluators} evaluator and a worker'
    raise ValueError(f'{num_tasks} tasks are too few for {wanted}')
  return ['chief', *['worker'] * num_workers, *['ps'] * num_ps, *['evaluator'] * num_evaluators]


def _base_port(job_id: int) -> int:
  return _FIRST_PORT + job_id % _JOBS_APART * _PORTS_OF_A_JOB


def _share(gpus: list[str], index: int, count: int) -> list[str]:
  """One replica's part of the GPUs that Slurm shows to all tasks of a node."""
  if len(gpus) % count:
    raise ValueError(f'{len(gpus)} GPUs of a node cannot be shared evenly by its {count} replicas')
  size = len(gpus) // count
  return gpus[index * size : (index + 1) * size]


if __name__ == '__main__':
  try:
    for name, value in settings(os.environ).items():
      print(f'export {name}={shlex.quote(value)}')
  except (KeyError, ValueError) as error:
    sys.exit(f'error: no TF_CONFIG: {error}')
