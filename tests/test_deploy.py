"""What can be checked of deploy/ without the real thing.

A real Slurm runs deploy/slurm.sh in test_slurm.py, podman the image in test_container.py, and
processes what a JobSet's containers run in test_hosts.py.
"""

import json
import os
import re
import runpy
import shlex
import sys

import checkout
import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api import models

from cifar10.cluster.tf_config import parse_cluster
from cifar10.options import flags


def read(name):
  return checkout.read(f'deploy/{name}')


def jobset():
  """The JobSet of jobset.yaml, and its Jobs by role."""
  made = yaml.safe_load(read('jobset.yaml'))
  return made, {job['name']: job['template']['spec'] for job in made['spec']['replicatedJobs']}


def parse(arguments):
  """cifar10_main.py's parser: exits where a flag does not exist."""
  return flags.full_parser().parse_args(arguments)


def check(definition):
  """Against the schemas that Kubernetes publishes, where no field may be unknown."""
  kubernetes_validate.validate(definition, kubernetes_validate.latest_version(), strict=True)


def test_published_schemas_admit_the_manifests():
  """Kubernetes' own, of the TFJob its pods; JobSet's and Trainer's, which drop unknown fields."""
  made, jobs = jobset()
  runtime, train_job = yaml.safe_load_all(read('trainjob.yaml'))
  check(yaml.safe_load(read('networkpolicy.yaml')))
  about = {'apiVersion': 'v1', 'kind': 'PodTemplate', 'metadata': {'name': 'cifar10'}}
  for spec in yaml.safe_load(read('tfjob.yaml'))['spec']['tfReplicaSpecs'].values():
    check({**about, 'template': spec['template']})
  for job in jobs.values():
    check({**about, 'apiVersion': 'batch/v1', 'kind': 'Job', 'spec': job})
  for each in (made, runtime, train_job):
    group, version = re.split(r'\..*/v', each['apiVersion'])
    kind = getattr(models, f'{group.title()}V{version}{each["kind"]}')
    assert kind.from_dict(each).to_dict() == each
  assert runtime['spec']['template']['spec'] == made['spec']
  assert train_job['spec']['runtimeRef']['kind'] == runtime['kind']  # Not the default.


def test_the_tfjob_uses_the_fields_that_there_are_and_no_privileges():
  """Of the TFJob API, kubeflow.org/v1."""
  job = yaml.safe_load(read('tfjob.yaml'))
  assert (job['apiVersion'], job['kind']) == ('kubeflow.org/v1', 'TFJob')
  assert set(job['spec']) == {'runPolicy', 'tfReplicaSpecs'}
  # Of those that there are the one which lets the evaluator end (kubeflow/trainer issue 1658).
  assert job['spec']['runPolicy']['cleanPodPolicy'] == 'None'
  replicas = job['spec']['tfReplicaSpecs']
  counts = {name: spec['replicas'] for name, spec in replicas.items()}
  assert counts == {'Chief': 1, 'Worker': 2, 'PS': 1, 'Evaluator': 1}
  for spec in replicas.values():
    assert set(spec) == {'replicas', 'restartPolicy', 'template'}
    assert spec['restartPolicy'] in ('Always', 'OnFailure', 'Never', 'ExitCode')
    pod = spec['template']['spec']
    assert pod['terminationGracePeriodSeconds'] > 20  # What the program may need after SIGTERM.
    assert pod['automountServiceAccountToken'] is False
    user = pod['securityContext']
    assert user['runAsNonRoot'] is True
    assert f'USER {user["runAsUser"]}:{user["runAsGroup"]}' in read('Dockerfile').splitlines()
    [container] = pod['containers']
    assert container['name'] == 'tensorflow'  # The operator sets TF_CONFIG in this one only.
    assert {'name': 'tfjob-port', 'containerPort': 2222} in container['ports']
    powers = {'allowPrivilegeEscalation': False, 'capabilities': {'drop': ['ALL']}}
    assert container['securityContext'] == {**powers, 'readOnlyRootFilesystem': True}
    # All that the program writes to: the job dir and temporary files.
    mounted = {mount['name']: mount['mountPath'] for mount in container['volumeMounts']}
    assert list(mounted.values()) == ['/cifar10', '/tmp']
    assert set(mounted) == {volume['name'] for volume in pod['volumes']}
    flags = parse(container['args'])
    assert all(folder.startswith('/cifar10/') for folder in (flags.data_dir, flags.job_dir))
    # TF_CONFIG lists 3 workers with the chief, of whom one may be missing.
    assert flags.backup_workers < 3


def test_a_jobset_has_the_tfjobs_pods_and_starts_again_what_was_lost():
  made, jobs = jobset()
  both = {'operator': 'All', 'targetReplicatedJobs': ['chief', 'evaluator']}
  assert (made['spec']['successPolicy'], made['spec']['failurePolicy']['maxRestarts']) == (both, 0)
  replicas = yaml.safe_load(read('tfjob.yaml'))['spec']['tfReplicaSpecs']
  assert list(jobs) == [name.lower() for name in replicas]
  for job, replica in zip(jobs.values(), replicas.values()):
    assert job['completionMode'] == 'Indexed'  # A new pod has the host name of the one before.
    assert job['completions'] == job['parallelism'] == replica['replicas']
    final = {'action': 'FailJob', 'onExitCodes': {'operator': 'In', 'values': [1, 2]}}
    assert job['podFailurePolicy']['rules'][0] == final
    [container], [other] = [each['template']['spec']['containers'] for each in (job, replica)]
    assert container['command'] == ['python', 'deploy/jobset_environment.py']
    assert container['ports'][0]['containerPort'] == 2222
    tasks = {role: each['completions'] for role, each in jobs.items()}
    assert {'name': 'TASKS', 'value': json.dumps(tasks)} in container['env']
    same = {**other, **{name: container[name] for name in ('command', 'env', 'ports')}}
    pod = {**replica['template']['spec'], 'restartPolicy': 'Never', 'containers': [same]}
    assert job['template'] == {**replica['template'], 'spec': pod}  # Never: for the rules.


@pytest.mark.parametrize('lacking', ['ROLE', 'TASKS', 'JOB_COMPLETION_INDEX'])
def test_a_container_without_its_environment_ends_by_one_line(lacking):
  given = {'JOBSET': 'a', 'ROLE': 'ps', 'TASKS': '{"ps": 1}', 'JOB_COMPLETION_INDEX': '0'}
  del given[lacking]
  ran = checkout.python('deploy/jobset_environment.py', env=given)
  line = f"error: no TF_CONFIG: '{lacking}'; set it as in deploy/jobset.yaml\n"
  assert (ran.returncode, ran.stderr) == (2, line)


def test_the_network_policy_admits_the_jobs_pods_alone():
  """At the port where the job's containers listen, and out to the names' server."""
  job = yaml.safe_load(read('tfjob.yaml'))
  spec = yaml.safe_load(read('networkpolicy.yaml'))['spec']
  # A JobSet's pods have the same.
  tasks = {'matchLabels': job['spec']['tfReplicaSpecs']['PS']['template']['metadata']['labels']}
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
  assert all(os.path.exists(os.path.join(checkout.ROOT, source)) for source in copied)
  program = {name for name in os.listdir(checkout.ROOT) if name.endswith('.py')} | {'cifar10'}
  program |= {'deploy/jobset_environment.py'}
  assert copied == program | {'requirements.txt', 'requirements-gpu.txt', 'pyproject.toml'}
  ignored = checkout.read('.dockerignore').splitlines()
  assert '*' in ignored  # All but these, above all no data.
  assert {line[1:].removesuffix('/**') for line in ignored if line.startswith('!')} == copied
  [base] = [step[1] for step in steps if step[0] == 'FROM']
  assert re.fullmatch(r'python:3\.1[01]-slim', base)
  [entry] = [' '.join(step[1:]) for step in steps if step[0] == 'ENTRYPOINT']
  assert json.loads(entry) == ['python', 'cifar10_main.py']


def tf_config(**environment):
  """deploy/slurm_environment.py's, of one parameter server and an evaluator."""
  script = runpy.run_path(f'{checkout.ROOT}/deploy/slurm_environment.py')
  return script['tf_config']({'NUM_PS': '1', 'EVALUATOR': '1', 'SLURM_JOB_ID': '7', **environment})


# Job 7 has the ports from 10,000 + 7 x 32. Two nodes of three tasks each: a port of its own for
# each task of a node.
SIX = {'chief': ['a:10224'], 'worker': ['b:10224', 'a:10225'], 'ps': ['b:10225', 'a:10226']}
SIX |= {'evaluator': ['b:10226']}
TWO = {'chief': ['a:10224'], 'worker': ['b:10224']}  # All-reduce: no parameter server.


@pytest.mark.parametrize(('num_ps', 'evaluators', 'cluster'), [(2, 1, SIX), (0, 0, TWO)])
def test_slurm_ranks_become_tasks(num_ps, evaluators, cluster):
  names = [f'{job} {index}' for job, at in cluster.items() for index in range(len(at))]
  for rank, name in enumerate(names):
    given = {'HOSTS': 'a\nb\n', 'NUM_PS': str(num_ps), 'EVALUATOR': str(evaluators)}
    text = tf_config(**given, SLURM_NTASKS=str(len(names)), SLURM_PROCID=str(rank))
    assert json.loads(text)['cluster'] == cluster
    assert parse_cluster(text, num_ps_needed=min(num_ps, 1)).name == name


def test_jobs_on_the_same_nodes_have_ports_of_their_own():
  one = {'HOSTS': 'a', 'SLURM_NTASKS': '32', 'SLURM_PROCID': '0'}
  ports = []
  for job_id in (624, 625, 626):  # The numbers of ports begin anew with 625.
    cluster = json.loads(tf_config(**one, SLURM_JOB_ID=str(job_id)))['cluster']
    ports += [int(at.partition(':')[2]) for listed in cluster.values() for at in listed]
  assert len(set(ports)) == 96
  assert (min(ports), max(ports)) == (10_000, 29_999)
  [address] = json.loads(tf_config(**one, BASE_PORT='2222'))['cluster']['chief']
  assert address == 'a:2222'


@pytest.mark.parametrize(('hosts', 'tasks'), [('a b', 2), ('a b c', 4)])
def test_slurm_allocations_that_cannot_train_are_refused(hosts, tasks):
  """Too few for a worker, and none that fills the nodes evenly."""
  with pytest.raises(ValueError, match='tasks'):
    tf_config(HOSTS=hosts, SLURM_NTASKS=str(tasks), SLURM_PROCID='0')


@pytest.fixture
def run_slurm_script(tmp_path):
  """Runs deploy/slurm.sh with stand-ins: a scontrol that knows the nodes and says what else it is
  asked for, and an srun -> CompletedProcess."""

  def run(srun, job, *flags):
    commands = {
      'scontrol': 'if [ "$*" = "show hostnames node[1-4]" ]; then printf "node%s\\n" 1 2 3 4\n'
      'else echo "scontrol $*"; fi',
      'srun': srun,
      'sleep': 'exit 0',
      'python': '[ "$1" != deploy/slurm_environment.py ] || '
      f'exec {shlex.quote(sys.executable)} "$@"\n'
      'echo "$TF_CONFIG"; shift; echo "$@"; echo hello >&2',
    }
    for name, text in commands.items():
      (tmp_path / name).write_text(f'#!/usr/bin/env bash\n{text}\n')
      (tmp_path / name).chmod(0o755)
    environment = {**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}'}
    environment |= {'SLURM_JOB_NODELIST': 'node[1-4]', 'SLURM_JOB_ID': '7', 'PYTHON': 'python'}
    return checkout.run('bash', 'deploy/slurm.sh', '/data', job, *flags, env=environment)

  return run


def test_the_slurm_script_starts_every_task_with_its_flags(run_slurm_script):
  """The srun starts the tasks one after the other, and the python says what it was asked to run."""
  srun = 'while [[ $1 == --* ]]; do shift; done\n'
  srun += 'for rank in 0 1 2 3; do SLURM_NTASKS=4 SLURM_PROCID=$rank "$@"; done'
  result = run_slurm_script(srun, '/job', '--sync', '--num-layers', '20')
  assert result.returncode == 0, result.stderr
  lines = result.stdout.splitlines()
  tasks = [parse_cluster(text).name for text in lines[::2]]
  assert tasks == ['chief 0', 'worker 0', 'ps 0', 'evaluator 0']
  assert sorted(result.stderr.splitlines()) == sorted(f'{name}: hello' for name in tasks)
  for arguments in lines[1::2]:
    flags = parse(shlex.split(arguments))
    assert (flags.data_dir, flags.job_dir, flags.num_layers) == ('/data', '/job', 20)
    assert flags.sync


@pytest.mark.parametrize('code', [143, 1])
def test_the_slurm_script_asks_to_start_again_what_got_further(run_slurm_script, tmp_path, code):
  result = run_slurm_script(f'echo model.ckpt-9 > {tmp_path}/checkpoint; exit {code}', tmp_path)
  assert result.stdout.splitlines() == ['scontrol requeue 7']
  again = run_slurm_script(f'echo model.ckpt-9 > {tmp_path}/checkpoint; exit {code}', tmp_path)
  assert (again.returncode, again.stdout) == (code, '')
  assert 'nothing was saved since the start; giving up' in again.stderr
