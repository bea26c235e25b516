"""deploy/ cannot run here: its files are checked for what can be checked without the real thing."""

import importlib.util
import json
import os
import re
import shlex
import stat
import subprocess
import sys

import pytest
import yaml

from cifar10.cluster.tf_config import read_cluster
from cifar10.options import flags

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEPLOY = os.path.join(ROOT, 'deploy')


def read(name):
  with open(os.path.join(DEPLOY, name), encoding='utf-8') as file:
    return file.read()


def parse(arguments):
  """cifar10_main.py's parser: exits where a flag does not exist."""
  return flags.full_parser().parse_args(arguments)


# What the TFJob API (kubeflow.org/v1) and Kubernetes' pods call the fields that are used here.
REPLICA = {'replicas', 'restartPolicy', 'template'}
POD = {
  'automountServiceAccountToken',
  'containers',
  'securityContext',
  'terminationGracePeriodSeconds',
  'volumes',
}
CONTAINER = {'name', 'image', 'args', 'ports', 'securityContext', 'volumeMounts'}


def test_the_tfjob_uses_the_fields_that_there_are():
  job = yaml.safe_load(read('tfjob.yaml'))
  assert (job['apiVersion'], job['kind']) == ('kubeflow.org/v1', 'TFJob')
  assert set(job['spec']) == {'runPolicy', 'tfReplicaSpecs'}
  assert job['spec']['runPolicy']['cleanPodPolicy'] in ('Running', 'All', 'None')
  replicas = job['spec']['tfReplicaSpecs']
  assert {name: spec['replicas'] for name, spec in replicas.items()} == {
    'Chief': 1,
    'Worker': 2,
    'PS': 1,
    'Evaluator': 1,
  }
  for spec in replicas.values():
    assert set(spec) == REPLICA
    assert spec['restartPolicy'] in ('Always', 'OnFailure', 'Never', 'ExitCode')
    pod = spec['template']['spec']
    assert set(pod) == POD
    assert pod['terminationGracePeriodSeconds'] > 20  # What the program may need after SIGTERM.
    [container] = pod['containers']
    assert set(container) == CONTAINER
    assert container['name'] == 'tensorflow'  # The operator sets TF_CONFIG in this one only.
    assert {'name': 'tfjob-port', 'containerPort': 2222} in container['ports']
    mounted = {mount['name']: mount['mountPath'] for mount in container['volumeMounts']}
    assert set(mounted) == {volume['name'] for volume in pod['volumes']}
    flags = parse(container['args'])
    for folder in (flags.data_dir, flags.job_dir):
      assert folder.startswith(f'{mounted["cifar10"]}/')
    # TF_CONFIG lists 3 workers with the chief, of whom one may be missing.
    assert flags.backup_workers < 3


def test_the_pods_have_no_privileges():
  for spec in yaml.safe_load(read('tfjob.yaml'))['spec']['tfReplicaSpecs'].values():
    pod = spec['template']['spec']
    assert pod['automountServiceAccountToken'] is False
    user = pod['securityContext']
    assert user['runAsNonRoot'] is True
    assert f'USER {user["runAsUser"]}:{user["runAsGroup"]}' in read('Dockerfile').splitlines()
    assert user['runAsUser'] > 0
    [container] = pod['containers']
    assert container['securityContext'] == {
      'allowPrivilegeEscalation': False,
      'readOnlyRootFilesystem': True,
      'capabilities': {'drop': ['ALL']},
    }
    # All that the program writes to: the job dir and temporary files.
    assert [mount['mountPath'] for mount in container['volumeMounts']] == ['/cifar10', '/tmp']


def test_the_network_policy_admits_the_jobs_pods_alone():
  """At the port where the job's containers listen, and out to the names' server."""
  job = yaml.safe_load(read('tfjob.yaml'))
  policy = yaml.safe_load(read('networkpolicy.yaml'))
  assert (policy['apiVersion'], policy['kind']) == ('networking.k8s.io/v1', 'NetworkPolicy')
  spec = policy['spec']
  assert set(spec) == {'podSelector', 'policyTypes', 'ingress', 'egress'}
  tasks = {'matchLabels': {'training.kubeflow.org/job-name': job['metadata']['name']}}
  assert spec['podSelector'] == tasks
  assert spec['policyTypes'] == ['Ingress', 'Egress']
  [container] = job['spec']['tfReplicaSpecs']['Chief']['template']['spec']['containers']
  at_port = [{'protocol': 'TCP', 'port': container['ports'][0]['containerPort']}]
  assert spec['ingress'] == [{'from': [{'podSelector': tasks}], 'ports': at_port}]
  between, names = spec['egress']
  assert between == {'to': [{'podSelector': tasks}], 'ports': at_port}
  assert {port['port'] for port in names['ports']} == {53}


def test_the_image_holds_all_that_the_program_imports():
  steps = [line.split() for line in read('Dockerfile').splitlines() if line and line[0] != '#']
  copied = {source for step in steps if step[0] == 'COPY' for source in step[1:-1]}
  assert all(os.path.exists(os.path.join(ROOT, source)) for source in copied)
  program = {name for name in os.listdir(ROOT) if name.endswith('.py')} | {'cifar10'}
  assert copied == program | {'requirements.txt'}
  [base] = [step[1] for step in steps if step[0] == 'FROM']
  assert re.fullmatch(r'python:3\.1[01]-slim', base)
  [entry] = [' '.join(step[1:]) for step in steps if step[0] == 'ENTRYPOINT']
  assert json.loads(entry) == ['python', 'cifar10_main.py']


def tf_config(**environment):
  specification = importlib.util.spec_from_file_location(
    'slurm_tf_config', os.path.join(DEPLOY, 'slurm_tf_config.py')
  )
  module = importlib.util.module_from_spec(specification)
  specification.loader.exec_module(module)
  return module.tf_config({'NUM_PS': '1', 'BASE_PORT': '2222', **environment})


@pytest.mark.parametrize(
  ('hosts', 'tasks', 'num_ps', 'cluster'),
  [
    (
      'n1\nn2\nn3\nn4\n',
      4,
      1,
      {'chief': ['n1:2222'], 'ps': ['n2:2223'], 'worker': ['n3:2224', 'n4:2225']},
    ),
    # Two nodes of three tasks each: a port of its own for each task of a node.
    (
      'gpu-007\ngpu-012\n',
      6,
      2,
      {
        'chief': ['gpu-007:2222'],
        'ps': ['gpu-007:2223', 'gpu-007:2224'],
        'worker': ['gpu-012:2225', 'gpu-012:2226', 'gpu-012:2227'],
      },
    ),
    # All-reduce: no parameter server.
    ('a\nb\n', 2, 0, {'chief': ['a:2222'], 'worker': ['b:2223']}),
  ],
)
def test_slurm_ranks_become_tasks(hosts, tasks, num_ps, cluster):
  names = []
  for rank in range(tasks):
    text = tf_config(
      HOSTS=hosts, SLURM_NTASKS=str(tasks), SLURM_PROCID=str(rank), NUM_PS=str(num_ps)
    )
    assert {job: at for job, at in json.loads(text)['cluster'].items() if at} == cluster
    names.append(read_cluster(text, 'job', num_ps_needed=min(num_ps, 1)).name)
  assert names == [f'{job} {index}' for job, at in cluster.items() for index in range(len(at))]


@pytest.mark.parametrize(
  ('hosts', 'tasks', 'message'),
  [('a b', 2, 'too few'), ('a b c', 4, 'do not fill 3 nodes evenly')],
)
def test_slurm_allocations_that_cannot_train_are_refused(hosts, tasks, message):
  with pytest.raises(ValueError, match=message):
    tf_config(HOSTS=hosts, SLURM_NTASKS=str(tasks), SLURM_PROCID='0')


def write_command(folder, name, text):
  path = folder / name
  path.write_text(f'#!/usr/bin/env bash\n{text}\n')
  path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_the_slurm_script_starts_every_task_with_its_flags(tmp_path):
  """With a scontrol that knows the nodes, an srun that starts the tasks one after the other, and a
  python that says what it was asked to run."""
  write_command(
    tmp_path, 'scontrol', '[ "$*" = "show hostnames node[1-4]" ] && printf "node%s\\n" 1 2 3 4'
  )
  write_command(
    tmp_path,
    'srun',
    'while [[ $1 == --* ]]; do shift; done\n'
    'for rank in 0 1 2 3; do SLURM_NTASKS=4 SLURM_PROCID=$rank "$@"; done',
  )
  write_command(
    tmp_path,
    'python',
    f'if [ "$1" = deploy/slurm_tf_config.py ]; then exec {shlex.quote(sys.executable)} "$@"; fi\n'
    'echo "$TF_CONFIG"; shift; echo "$@"',
  )
  environment = {
    **os.environ,
    'PATH': f'{tmp_path}:{os.environ["PATH"]}',
    'SLURM_JOB_NODELIST': 'node[1-4]',
    'PYTHON': 'python',  # Which `make PYTHON=...` sets otherwise.
  }
  result = subprocess.run(
    ['bash', 'deploy/slurm.sh', '/data', '/job', '--sync', '--num-layers', '20'],
    cwd=ROOT,
    env=environment,
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  lines = result.stdout.splitlines()
  tasks = [read_cluster(text, '/job').name for text in lines[::2]]
  assert tasks == ['chief 0', 'ps 0', 'worker 0', 'worker 1']
  for arguments in lines[1::2]:
    flags = parse(shlex.split(arguments))
    assert (flags.data_dir, flags.job_dir, flags.num_layers) == ('/data', '/job', 20)
    assert flags.sync


def test_the_slurm_script_asks_for_what_slurm_has():
  asked = re.findall(r'^#SBATCH (--[a-z-]+)', read('slurm.sh'), re.M)
  assert set(asked) == {'--job-name', '--nodes', '--ntasks-per-node', '--signal', '--requeue'}
  [signal] = re.findall(r'--signal=TERM@(\d+)', read('slurm.sh'))
  assert int(signal) > 20  # Before the time is over: what the program may need after SIGTERM.
