"""Prints the shell commands that set one Slurm task's environment, for deploy/slurm.sh.

HOSTS: the job's nodes, one per line. SLURM_NTASKS, SLURM_PROCID: the number of tasks, and this
task's; tasks are dealt to the nodes in turn. NUM_PS: parameter servers. EVALUATOR: 1, or 0 for
none. BASE_PORT: each node's first port; default: computed from the job's number.
"""

import json
import os
import shlex
import sys
from collections.abc import Mapping

_FIRST_PORT = 10_000  # Ports from here to 29,999 are below those that Linux gives to clients.
_PORTS_OF_A_JOB = 32  # On each node.
_JOBS_APART = 625  # So many jobs in a row have different ports.
_REPLICAS = ('chief', 'worker')


def settings(environment: Mapping[str, str]) -> dict[str, str]:
  """Returns TF_CONFIG, and CUDA_VISIBLE_DEVICES if replicas share a node's GPUs.

  The chief is rank 0; workers follow, then parameter servers; an evaluator is the last rank.

  Raises:
    KeyError: Slurm or deploy/slurm.sh has not set a variable.
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
  """Returns each rank's job."""
  num_workers = num_tasks - 1 - num_ps - num_evaluators
  if num_workers < min(num_ps, 1):
    wanted = f'a chief, {num_ps} ps, {num_evaluators} evaluator and a worker'
    raise ValueError(f'{num_tasks} tasks are too few for {wanted}')
  return ['chief', *['worker'] * num_workers, *['ps'] * num_ps, *['evaluator'] * num_evaluators]


def _base_port(job_id: int) -> int:
  return _FIRST_PORT + job_id % _JOBS_APART * _PORTS_OF_A_JOB


def _share(gpus: list[str], index: int, count: int) -> list[str]:
  """Returns one replica's share of the GPUs that Slurm shows to all tasks of a node."""
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
