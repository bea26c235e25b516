"""TF_CONFIG, the manifest and a job's own files, with anything in them."""

import json

import numpy as np
import pytest
from hostile import changed, damaged, files, refusals, values
from hypothesis import example, given
from hypothesis import strategies as st

from cifar10.cluster.liveness import peers
from cifar10.cluster.tf_config import read_cluster
from cifar10.data import info, manifest, records
from cifar10.data.input_pipeline import RecordDataset
from cifar10.job import (
  adopted_config,
  best_checkpoints,
  checkpoints,
  control_requests,
  job_config,
  metrics_log,
  stop_record,
)
from cifar10.options.hparams import all_values, from_values

CLUSTER = {
  'cluster': {'chief': ['a:1'], 'worker': ['b:2', 'c:3'], 'ps': ['d:4'], 'evaluator': ['e:5']},
  'task': {'type': 'worker', 'index': 1},
  'model_dir': 'job',
}


@given(st.one_of(files(CLUSTER).map(lambda text: text.decode('utf-8', 'replace')), st.text()))
def test_tf_config(text):
  with refusals():
    cluster = read_cluster(text, 'job')
    assert cluster.name in ('chief 0', 'worker 0', 'worker 1', 'ps 0', 'evaluator 0')
    assert json.loads(cluster.tf_config) is not None
    assert all(peers(cluster).values())


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  """Record files of two classes, and what their manifest says."""
  folder = str(tmp_path_factory.mktemp('data'))
  counts = {'train': 3, 'validation': 1, 'eval': 2}
  for split, count in counts.items():
    path = manifest.record_path(folder, split)
    records.write_records(path, np.zeros([count, records.IMAGE_BYTES], np.uint8), [1] * count)
  content = {
    'format': 2,
    'source': 'synthetic',
    'flags': '--synthetic 1',
    **info.CIFAR10.to_json(),
    'subsets': {
      name: manifest.entry(manifest.record_path(folder, name), counts[name]) for name in counts
    },
  }
  return folder, content, counts


@given(st.data())
def test_manifest(data, drawn):
  folder, content, counts = data
  with open(manifest.manifest_path(folder), 'wb') as file:
    file.write(drawn.draw(files(content)))
  with refusals():
    assert RecordDataset(folder, 'train').num_examples_per_epoch() == counts['train']
    assert info.describe(folder).num_classes >= 2
    manifest.digests(folder)


NETWORKS = [
  {'num_layers': 8},
  {'network': 'fastnet'},
  {'network': 'wrn'},
  {'network': 'vgg'},
  {'network': 'vgg'},
]
CONFIGS = [
  {
    **all_values(from_values(network)),
    'data_set': info.CIFAR10.to_json(),
    'data': {'train': 'a', 'validation': 'b', 'eval': 'c'},
    'control': {'learning_rate': 0.1},
  }
  for network in NETWORKS
]


@given(st.sampled_from(CONFIGS).flatmap(files))
def test_config(tmp_path_factory, content):
  folder = tmp_path_factory.getbasetemp() / 'config'
  folder.mkdir(exist_ok=True)
  (folder / 'config.json').write_bytes(content)
  (folder / 'checkpoint').touch()  # So that it has begun.
  path = str(folder)
  with refusals():
    config = job_config.read_config(path)
    for training in (True, False):
      hparams = adopted_config.adopt_config({}, config, path, training=training)
      assert hparams.family.describe()
    job_config.described_data(path, None)
    control_requests.read_rates(path)
    before, now = job_config.before_and_now(path, hparams, 'data', info.CIFAR10, None)
    adopted_config.changes(before, now, path)


ENDED = {'name': 'control', 'message': 'stop', 'value': 0.0, 'step': 8}
BEST = {
  'accuracy': 0.5,
  'global_step': 4,
  'checkpoint': 'model.ckpt-4',
  'others': [{'accuracy': 0.4, 'global_step': 2, 'checkpoint': 'model.ckpt-2'}],
}


@given(files(ENDED))
def test_ended(tmp_path_factory, content):
  folder = tmp_path_factory.getbasetemp()
  (folder / stop_record.NAME).write_bytes(content)
  with refusals():
    ended = stop_record.read(str(folder))
    assert isinstance(ended[1], int)


@given(files(BEST))
def test_best(tmp_path_factory, content):
  folder = tmp_path_factory.getbasetemp() / 'best'
  folder.mkdir(exist_ok=True)
  (folder / best_checkpoints.NAME).write_bytes(content)
  with refusals():
    assert best_checkpoints.checkpoint(str(folder.parent)).startswith(str(folder))
    assert sorted(best_checkpoints.read(str(folder.parent)), key=lambda entry: -entry['accuracy'])


@given(st.one_of(st.text(), st.text().map('learning_rate={}'.format), values.map(str)))
def test_orders(text):
  with refusals():
    assert str(control_requests.parse(text))


@given(st.one_of(st.binary(max_size=200), damaged(b'model_checkpoint_path: "model.ckpt-8"\n' * 2)))
def test_list_of_checkpoints(tmp_path_factory, content):
  folder = tmp_path_factory.getbasetemp() / 'listed'
  folder.mkdir(exist_ok=True)
  (folder / 'checkpoint').write_bytes(content)
  found = checkpoints.survey(str(folder))
  assert found.newest is None  # There is none.
  assert '\n' not in found.described()


EVENTS = [
  {
    'event': 'start',
    'step': 0,
    'time': 1.0,
    'task': 'chief 0',
    'resumed': True,
    'steps_lost': 3,
    'seconds': 2.0,
    'options': {'num_layers': 8, 'network': 'resnet'},
    'versions': {'program': '1'},
    'hardware': {'cpu': 'x'},
    'command': ['x'],
    'cluster': {},
    'data_set': info.CIFAR10.to_json(),
    'data_dir': '/nowhere',
    'train_steps': 10,
  },
  {
    'event': 'train',
    'step': 5,
    'time': 2.0,
    'task': 'chief 0',
    'loss': 1.0,
    'accuracy': 0.5,
    'learning_rate': 0.1,
    'images_per_second': 3.0,
    'seconds': 4.0,
    'epoch': 0.1,
  },
  {
    'event': 'evaluate',
    'step': 5,
    'time': 3.0,
    'task': 'chief 0',
    'subset': 'eval',
    'examples': 4,
    'accuracy': 0.5,
    'cross_entropy': 1.0,
    'weights': 'last',
    'checkpoint': 'model.ckpt-5',
    'accuracy_by_class': {'cat': 0.5},
    'confusion_matrix': [[1, 0], [1, 2]],
  },
  {'event': 'control', 'step': 5, 'time': 3.0, 'task': 'chief 0', 'command': 'save', 'answer': 'x'},
  {'event': 'end', 'step': 5, 'time': 4.0, 'task': 'chief 0', 'reason': 'x', 'message': 'y'},
]
LINES = st.sampled_from(EVENTS).flatmap(
  lambda event: st.one_of(
    st.just(json.dumps(event).encode()), changed(event), damaged(json.dumps(event).encode())
  )
)


@example([json.dumps({**EVENTS[2], 'confusion_matrix': 2**63}).encode()], 0)
@given(st.lists(LINES, max_size=6), st.integers(0, 9))
def test_metrics(tmp_path_factory, lines, step):
  folder = tmp_path_factory.getbasetemp() / 'metrics'
  folder.mkdir(exist_ok=True)
  path = str(folder)
  (folder / metrics_log.NAME).write_bytes(b'\n'.join(lines) + b'\n')
  assert all(isinstance(event['step'], int) for event in metrics_log.read(path))
  assert metrics_log.go_back(path, step) >= 0
  metrics_log.append(path, metrics_log.event('save', step, 'chief 0'))
  assert metrics_log.read(path)[-1]['event'] == 'save'
