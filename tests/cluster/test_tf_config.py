"""TF_CONFIG is read, or refused with its key, its value and the remedy."""

import json

import pytest

from cifar10.cluster.tf_config import parse_cluster
from cifar10.core.errors import InputError

ADDRESSES = {'chief': ['a:1'], 'worker': ['b:1', 'b:2'], 'ps': ['c:1', 'c:2']}


def config(cluster=ADDRESSES, task=('worker', 1), **more):
  return json.dumps({'cluster': cluster, 'task': {'type': task[0], 'index': task[1]}, **more})


@pytest.mark.parametrize(
  ('task', 'worker', 'job', 'filters'),
  [
    (('chief', 0), 0, '/job:chief/task:0', ['/job:ps', '/job:chief/task:0']),
    (('worker', 1), 2, '/job:worker/task:1', ['/job:ps', '/job:worker/task:1']),
  ],
)
def test_a_replica_knows_its_place(task, worker, job, filters):
  cluster = parse_cluster(config(task=task))
  assert cluster.is_distributed
  assert (cluster.num_workers, cluster.num_ps) == (3, 2)  # The chief works too.
  assert (cluster.is_chief, cluster.worker, cluster.job) == (not worker, worker, job)
  assert cluster.device_filters == filters


def test_a_parameter_server_talks_to_itself_only():
  cluster = parse_cluster(config(task=('ps', 1)))
  assert cluster.device_filters == ['/job:ps/task:1']
  assert cluster.peers == {'chief 0': 'a:1', 'worker 0': 'b:1', 'worker 1': 'b:2', 'ps 0': 'c:1'}


@pytest.mark.parametrize('task', ['master', 'chief'])
def test_a_master_is_a_chief(task):
  """The Estimator is told so, and to start no server."""
  cluster = parse_cluster(config({'master': ['a:1'], 'worker': ['b:1'], 'ps': ['c:1']}, (task, 0)))
  assert cluster.is_chief
  assert json.loads(cluster.tf_config) == {
    'cluster': {'chief': ['a:1'], 'worker': ['b:1'], 'ps': ['c:1']},
    'task': {'type': 'chief', 'index': 0},
    'environment': 'google',
  }


def test_an_evaluator_is_no_part_of_the_training():
  with_evaluator = {**ADDRESSES, 'evaluator': ['d:1']}
  chief = parse_cluster(config(with_evaluator, ('chief', 0)))
  assert chief.has_evaluator
  assert 'evaluator' not in json.loads(chief.tf_config)['cluster']
  assert not any(name.startswith('evaluator') for name in chief.peers)
  for addresses in (with_evaluator, ADDRESSES):  # Listed in the cluster or not.
    evaluator = parse_cluster(config(addresses, ('evaluator', 0)))
    assert not evaluator.is_distributed
    assert evaluator.tf_config == '{}'
    assert evaluator.addresses['chief'] == ('a:1',)


@pytest.mark.parametrize(
  'text',
  [
    '',
    '{}',
    '{"environment": "cloud"}',
    '{"cluster": {}, "task": {"type": "worker", "index": 0}}',
    '{"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}}',
  ],
)
def test_one_process_is_no_cluster(text):
  cluster = parse_cluster(text)
  assert cluster.is_chief
  assert not cluster.is_distributed
  assert (cluster.num_workers, cluster.num_ps, cluster.job, cluster.name) == (1, 0, '', 'chief 0')
  assert (cluster.tf_config, cluster.device_filters, cluster.peers) == ('{}', [], {})


def with_task(**task):
  return json.dumps({'cluster': ADDRESSES, 'task': task})


REFUSED = [
  ('{"cluster":', 'is not JSON'),
  ('[' * 100_000, 'is not JSON'),
  ('[1]', 'is [1]; write a JSON object'),
  ('{"cluster": ["a:1"], "task": 1}', ': cluster is ["a:1"]'),
  (config({'workers': ['b:1']}), ': cluster is "workers"'),
  (config({'chief': 'a:1'}), ': cluster.chief is "a:1"'),
  (config({**ADDRESSES, 'ps': ['b:1']}), 'give each task an address of its own'),
  (config({**ADDRESSES, 'master': ['d:1']}), 'list exactly one chief'),
  (config({'worker': ['b:1', 'b:2'], 'ps': ['c:1']}), 'list exactly one chief'),
  (config({**ADDRESSES, 'evaluator': ['d:1', 'd:2']}), 'one evaluator or none'),
  (config({'chief': ['a:1'], 'worker': ['b:1', 'b:2']}), ': cluster.ps is []'),
  (json.dumps({'cluster': ADDRESSES}), ': task is null'),
  (with_task(type='worker'), ': task is {"type": "worker"}'),
  (with_task(type='boss', index=0), ': task is {"type": "boss", "index": 0}'),
  (with_task(type='worker', index='1'), ': task is {"type": "worker", "index": "1"}'),
  (with_task(type='worker', index=2), 'lists 2 worker task(s)'),
  (with_task(type='evaluator', index=1), 'lists 1 evaluator task(s)'),
  ('{"task": {"type": "ps", "index": 0}}', ': cluster is {}'),
  *[
    (config({**ADDRESSES, 'worker': [address]}), ': cluster.worker is ')
    for address in ('http://a:2', '::1:2', '[::1:2', 'me@host:2', 'a\n:2', 'a', 'a:0', 'a:65536', 2)
  ],
]


@pytest.mark.parametrize(('text', 'part'), REFUSED)
def test_refuses_with_key_and_value(text, part):
  with pytest.raises(InputError) as error:
    parse_cluster(text)
  message = str(error.value)
  assert message.startswith('TF_CONFIG')
  assert part in message
  assert '\n' not in message
  assert len(message) < 1000
