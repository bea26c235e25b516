"""Files with anything in them: read rightly, or refused in one line.

Each value of a JSON file, at any depth, in turn is gone or another; bytes of any file are changed.
What is drawn is the same each time.
"""

import contextlib
import copy
import dataclasses
import functools
import gzip
import hashlib
import json
import operator
import pickle
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from cifar10.cluster.tf_config import read_cluster
from cifar10.core.errors import InputError
from cifar10.data import image_files, info, manifest, records
from cifar10.data.build import archive
from cifar10.data.input_pipeline import Cifar10DataSet
from cifar10.job import checkpoints, control_requests, job_config, metrics_log, stop_record
from cifar10.options.hparams import all_values, from_values

ODD = [
  None,
  True,
  0,
  -1,
  2**31,
  10**30,
  1e308,
  float('nan'),
  '',
  '\n',
  '\x00',
  '\ud800',
  'a' * 5000,
]
ODD += [[], [1], {}, {'': None}]
TEXTS = [b'', b'{', b'[]', b'null', b'NaN', b'"x"', b'\xff\xfe']


@pytest.fixture
def draw():
  return np.random.default_rng(0)


@contextlib.contextmanager
def refusals():
  """Lets an InputError pass whose message is one line; anything else fails the test."""
  try:
    yield
  except InputError as error:
    assert len(str(error).splitlines()) == 1


def places(content, before=()):
  """The keys by which each value is found."""
  for key in content if isinstance(content, dict) else range(len(content)):
    yield (*before, key)
    if isinstance(content[key], dict | list):
      yield from places(content[key], (*before, key))


def changed(content):
  """The JSON of an object of which one value is gone, or another."""
  content = json.loads(json.dumps(content))
  for *outer, last in places(content):
    for value in [*ODD, KeyError]:
      made = copy.deepcopy(content)
      inside = functools.reduce(operator.getitem, outer, made)
      if value is KeyError:
        del inside[last]
      else:
        inside[last] = value
      yield json.dumps(made).encode()


def damaged(content, draw):
  """Bytes of which some are changed, gone or new."""
  content = bytearray(content)
  for _ in range(draw.integers(1, 4)):
    at, kind = int(draw.integers(len(content) or 1)), draw.integers(5)
    if kind == 0 and content:
      content[at] ^= 1 << int(draw.integers(8))
    elif kind == 1:
      del content[at:]
    elif kind == 2:
      del content[at : at + int(draw.integers(1, 4000))]
    elif kind == 3:
      content[at:at] = draw.bytes(20)
    else:
      content[at : at + 16] = bytes(16)
  return bytes(content)


def files(content, draw):
  """A JSON file as it might be: 200 with another value, 60 damaged ones, others."""
  made = list(changed(content))
  chosen = draw.choice(len(made), min(len(made), 200), replace=False)
  text = json.dumps(content).encode()
  return [made[i] for i in chosen] + [damaged(text, draw) for _ in range(60)] + [*TEXTS, text]


CLUSTER = {
  'cluster': {'chief': ['a:1'], 'worker': ['b:2', 'c:3'], 'ps': ['d:4'], 'evaluator': ['e:5']},
  'task': {'type': 'worker', 'index': 1},
  'model_dir': 'job',
}


def test_tf_config(draw):
  for text in files(CLUSTER, draw):
    with refusals():
      cluster = read_cluster(text.decode('utf-8', 'replace'), 'job')
      assert cluster.name in ('chief 0', 'worker 0', 'worker 1', 'ps 0', 'evaluator 0')


def test_manifest(tmp_path, draw):
  folder, counts = str(tmp_path), {'train': 3, 'validation': 1, 'eval': 2}
  for split, count in counts.items():
    planes = np.zeros([count, records.IMAGE_BYTES], np.uint8)
    records.write_records(manifest.record_path(folder, split), planes, [1] * count)
  subsets = {
    name: manifest.entry(manifest.record_path(folder, name), counts[name]) for name in counts
  }
  content = {'format': 2, 'source': 'synthetic', 'flags': '--synthetic 1', 'subsets': subsets}
  for text in files({**content, **info.CIFAR10.to_json()}, draw):
    (tmp_path / 'cifar10.json').write_bytes(text)
    with refusals():
      assert Cifar10DataSet(folder, 'train').num_examples_per_epoch() == 3
      assert info.describe(folder).num_classes >= 2
      manifest.digests(folder)


@pytest.mark.parametrize('network', ['resnet', 'fastnet', 'wrn', 'vgg'])
def test_config(tmp_path, draw, network):
  content = {
    **all_values(from_values({'network': network})),
    'data_set': info.CIFAR10.to_json(),
    'data': {'train': 'a', 'validation': 'b', 'eval': 'c'},
    'control': {'learning_rate': 0.1},
  }
  (tmp_path / 'checkpoint').touch()  # So that it has begun.
  path = str(tmp_path)
  for text in files(content, draw):
    (tmp_path / 'config.json').write_bytes(text)
    with refusals():
      config = job_config.read_config(path)
      for training in (True, False):
        hparams = job_config.adopt_config({}, config, path, training=training)
        assert hparams.family.describe()
      job_config.described_data(path, None)
      control_requests.read_rates(path)
      before, now = job_config.before_and_now(path, hparams, 'data', info.CIFAR10, None)
      job_config.changes(before, now)


def test_ended(tmp_path, draw):
  for text in files({'name': 'control', 'message': 'stop', 'value': 0.0, 'step': 8}, draw):
    (tmp_path / stop_record.NAME).write_bytes(text)
    with refusals():
      assert isinstance(stop_record.read(str(tmp_path))[1], int)


def test_best(tmp_path, draw):
  entry = {'accuracy': 0.5, 'global_step': 4, 'checkpoint': 'model.ckpt-4'}
  other = {'accuracy': 0.4, 'global_step': 2, 'checkpoint': 'model.ckpt-2'}
  (tmp_path / 'best').mkdir()
  for text in files({**entry, 'others': [other]}, draw):
    (tmp_path / 'best' / checkpoints.BEST_NAME).write_bytes(text)
    with refusals():
      assert checkpoints.best(str(tmp_path)).startswith(f'{tmp_path}/best')
      checkpoints.read_best(str(tmp_path))


def test_metrics(tmp_path, draw):
  path, event = str(tmp_path), {'time': 1.0, 'task': 'chief 0', 'step': 5}
  lines = [
    {**event, 'event': 'start', 'resumed': True, 'steps_lost': 3, 'options': {'num_layers': 8}},
    {**event, 'event': 'train', 'loss': 1.0, 'accuracy': 0.5, 'images_per_second': 3.0},
    {**event, 'event': 'evaluate', 'subset': 'eval', 'confusion_matrix': [[1, 0], [1, 2]]},
    {**event, 'event': 'end', 'reason': 'x', 'message': 'y'},
  ]
  kinds = [files(line, draw) for line in lines]
  for number in range(100):
    drawn = [texts[number] for texts in kinds]
    (tmp_path / metrics_log.NAME).write_bytes(b'\n'.join(drawn) + b'\n')
    assert all(isinstance(event['step'], int) for event in metrics_log.read(path))
    assert metrics_log.go_back(path, int(draw.integers(10))) >= 0
    metrics_log.append(path, metrics_log.event('save', 5, 'chief 0'))
    assert metrics_log.read(path)[-1]['event'] == 'save'


def check_records(folder):
  """They are refused, or TensorFlow reads as many images of the right size, of known classes."""
  path = manifest.record_path(folder, 'train')
  with refusals():
    count = records.num_examples(folder, 'train')
    found = list(tf.compat.v1.io.tf_record_iterator(path))
    assert len(found) == count > 0
    planes, labels = records.parse_examples(tf.constant(found))
    assert planes.shape == [count, records.IMAGE_BYTES]
    assert 0 <= int(tf.reduce_min(labels)) <= int(tf.reduce_max(labels)) < 10


def test_records(tmp_path, draw):
  """The bytes of the file are damaged; or those of an Example, whose checksum is right."""
  example = records.encode_example(np.zeros(records.IMAGE_BYTES, np.uint8), 3)
  for number in range(100):
    folder = tmp_path / str(number)
    folder.mkdir()
    path = manifest.record_path(str(folder), 'train')
    with tf.io.TFRecordWriter(path) as writer:
      for _ in range(3):
        writer.write(damaged(example, draw) if number % 2 else example)
    if number % 2 == 0:
      with open(path, 'rb') as file:
        content = file.read()
      with open(path, 'wb') as file:
        file.write(damaged(content, draw))
    check_records(str(folder))


def test_archives(tmp_path, draw):
  batches = archive.write_synthetic(str(tmp_path), 2, 0)
  path = tmp_path / 'cifar.tar.gz'
  with tarfile.open(path, 'w:gz') as tar:
    tar.add(batches, archive.CIFAR10.folder)
  digests = {}
  for name in archive.CIFAR10.digests:
    with open(f'{batches}/{name}', 'rb') as file:
      digests[name] = hashlib.sha256(file.read()).hexdigest()
  made = dataclasses.replace(archive.CIFAR10, digests=digests)
  packed = path.read_bytes()
  for number in range(60):
    path.write_bytes(damaged(packed if number % 2 else gzip.decompress(packed), draw))
    with refusals():
      folder = archive.download_and_extract(str(tmp_path), published=made, archive=str(path))
      assert len(list(archive.read_batches([f'{folder}/{name}' for name in made.digests]))) == 12


def test_batches(tmp_path):
  arrays = [np.zeros(shape, kind) for shape in ([], [2, 3072], [3072]) for kind in ('uint8', 'S3')]
  path = tmp_path / 'batch'
  for value in [*ODD, *arrays, [-1], list(range(12))]:
    image = np.zeros([1, 3072], np.uint8)
    for member in (value, {b'data': value, b'labels': [1]}, {b'data': image, b'labels': value}):
      path.write_bytes(pickle.dumps(member, protocol=2))
      with refusals():
        for image, _ in archive.read_batches([str(path)]):
          assert image.shape == (records.IMAGE_BYTES,)


@pytest.mark.parametrize('encode', [tf.io.encode_png, tf.io.encode_jpeg])
def test_images(tmp_path, draw, encode):
  whole = encode(draw.integers(0, 256, [9, 7, 3]).astype(np.uint8)).numpy()
  for _ in range(60):
    (tmp_path / 'image').write_bytes(damaged(whole, draw))
    with refusals():
      image, size = image_files.read_image(str(tmp_path / 'image'))
      assert image.shape == (32, 32, 3)
      assert min(size) > 0


def test_orders():
  for text in [*map(str, ODD), *(f'learning_rate={value}' for value in ODD)]:
    with refusals():
      assert str(control_requests.parse(text))
