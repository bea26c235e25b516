"""Prints the TF_CONFIG of one Slurm task, from the environment that deploy/slurm.sh gives it.

HOSTS: the job's nodes, one a line. SLURM_NTASKS, SLURM_PROCID: how many tasks, and which one this
is; they fill one node before the next. NUM_PS: parameter servers. BASE_PORT: the first task's port.
"""

import json
import os
import sys
from collections.abc import Mapping


def tf_config(environment: Mapping[str, str]) -> str:
  """The JSON text: rank 0 is the chief, then parameter servers, then workers.

  Raises:
    ValueError: too few tasks, or tasks that do not fill the nodes evenly.
  """
  hosts = environment['HOSTS'].split()
  num_tasks, rank = int(environment['SLURM_NTASKS']), int(environment['SLURM_PROCID'])
  num_ps, base_port = int(environment['NUM_PS']), int(environment['BASE_PORT'])
  if num_tasks < num_ps + 2:
    raise ValueError(f'{num_tasks} tasks are too few for a chief, {num_ps} ps and a worker')
  if num_tasks % len(hosts):
    raise ValueError(f'{num_tasks} tasks do not fill {len(hosts)} nodes evenly')
  tasks_per_node = num_tasks // len(hosts)
  addresses = [f'{hosts[i // tasks_per_node]}:{base_port + i}' for i in range(num_tasks)]
  cluster = {
    'chief': addresses[:1],
    'ps': addresses[1 : 1 + num_ps],
    'worker': addresses[1 + num_ps :],
  }
  job = next(job for job in cluster if addresses[rank] in cluster[job])
  task = {'type': job, 'index': cluster[job].index(addresses[rank])}
  return json.dumps({'cluster': cluster, 'task': task})


if __name__ == '__main__':
  try:
    print(tf_config(os.environ))
  except (KeyError, ValueError) as error:
    sys.exit(f'error: no TF_CONFIG: {error}')
