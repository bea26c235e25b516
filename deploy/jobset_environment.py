"""Runs cifar10_main.py with its arguments as a pod of deploy/jobset.yaml or deploy/trainjob.yaml.

TF_CONFIG, which nothing sets there, is made of JOBSET: its name, which is its subdomain, too; ROLE:
the replicated job's name; JOB_COMPLETION_INDEX: this task's number in it, set by Kubernetes; and
TASKS: how many each role has, a JSON object.
"""

import json
import os
import sys

try:
  jobset, role = os.environ['JOBSET'], os.environ['ROLE']
  index, counts = int(os.environ['JOB_COMPLETION_INDEX']), json.loads(os.environ['TASKS'])
except (KeyError, ValueError) as error:
  print(f'error: no TF_CONFIG: {error}; set it as in deploy/jobset.yaml', file=sys.stderr)
  sys.exit(2)
cluster = {
  job: [f'{jobset}-{job}-0-{number}.{jobset}:2222' for number in range(count)]
  for job, count in counts.items()
}
os.environ['TF_CONFIG'] = json.dumps({'cluster': cluster, 'task': {'type': role, 'index': index}})
os.execv(sys.executable, [sys.executable, 'cifar10_main.py', *sys.argv[1:]])
