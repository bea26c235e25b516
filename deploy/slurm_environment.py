"""Prints one Slurm task's TF_CONFIG, for deploy/slurm.sh.

HOSTS: the job's nodes, one per line. SLURM_NTASKS, SLURM_PROCID: the number of tasks, and this
task's; tasks are dealt to the nodes in turn. NUM_PS: parameter servers. EVALUATOR: 1, or 0 for
none. BASE_PORT: each node's first port; default: computed from the job's number.
"""

import json
import os
import sys
from collections.abc import Mapping


def tf_config(environment: Mapping[str, str]) -> str:
  """Returns TF_CONFIG: the chief is rank 0; workers follow, then servers, then an evaluator.

  Raises KeyError: no such variable; ValueError: too few tasks, or none that fill the nodes evenly.
  """
  hosts = environment['HOSTS'].split()
  num_tasks, rank = int(environment['SLURM_NTASKS']), int(environment['SLURM_PROCID'])
  num_ps, num_evaluators = int(environment['NUM_PS']), int(environment['EVALUATOR'])
  num_workers = num_tasks - 1 - num_ps - num_evaluators
  if num_workers < min(num_ps, 1) or num_tasks % len(hosts):
    wanted = f'a chief, {num_ps} ps, {num_evaluators} evaluator and a worker, and fill the nodes'
    raise ValueError(f'{num_tasks} tasks on {len(hosts)} nodes; they must be {wanted} evenly')
  jobs = ['chief', *['worker'] * num_workers, *['ps'] * num_ps, *['evaluator'] * num_evaluators]
  # Ports below those that Linux gives to clients: 32 of each node for each of 625 jobs in a row.
  base_port = int(environment.get('BASE_PORT') or 0)
  base_port = base_port or 10_000 + int(environment['SLURM_JOB_ID']) % 625 * 32
  cluster: dict[str, list[str]] = {}
  for other, job in enumerate(jobs):
    address = f'{hosts[other % len(hosts)]}:{base_port + other // len(hosts)}'
    cluster.setdefault(job, []).append(address)
  task = {'type': jobs[rank], 'index': jobs[:rank].count(jobs[rank])}
  return json.dumps({'cluster': cluster, 'task': task})


if __name__ == '__main__':
  try:
    print(tf_config(os.environ))
  except (KeyError, ValueError) as error:
    sys.exit(f'error: no TF_CONFIG: {error}')
