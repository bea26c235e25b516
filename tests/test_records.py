"""The record format against bytes worked out by hand; counts, manifests, interrupted writes."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from cifar10 import records
from cifar10.errors import InputError


def make_records(path, count=4):
  images = np.arange(count * records.IMAGE_BYTES).reshape(count, -1).astype(np.uint8)
  records.write_records(str(path), images, range(count))
  return images


def test_an_example_has_the_old_programs_features():
  image = np.arange(records.IMAGE_BYTES).astype(np.uint8)
  example = tf.train.Example.FromString(records.encode_example(image, 7))
  assert set(example.features.feature) == {'image', 'label'}
  assert example.features.feature['image'].bytes_list.value[:] == [bytes(range(256)) * 12]
  assert example.features.feature['label'].int64_list.value[:] == [7]


def test_reads_what_it_writes(tmp_path):
  images = make_records(tmp_path / 'train.tfrecords')
  serialized = list(tf.data.TFRecordDataset(str(tmp_path / 'train.tfrecords')))
  planes, labels = records.parse_examples(tf.stack(serialized))
  np.testing.assert_array_equal(planes, images)
  assert labels.numpy().tolist() == [0, 1, 2, 3]
  assert planes.dtype == tf.uint8
  assert labels.dtype == tf.int32


def test_planes_to_images_by_hand():
  planes = tf.range(records.IMAGE_BYTES)[tf.newaxis]
  pixel = records.planes_to_images(planes)[0, 3, 4]
  # Row 3, column 4: 3 x 32 + 4 = 100 in each plane of 1,024.
  assert pixel.numpy().tolist() == [100, 1124, 2148]


def test_counts_records_by_their_framing(tmp_path):
  make_records(tmp_path / 'eval.tfrecords', count=9)
  assert records.count_records(str(tmp_path / 'eval.tfrecords')) == 9


@pytest.mark.parametrize('lost', [1, 4, 3000, 3100, 3120])
def test_refuses_a_truncated_file(tmp_path, lost):
  path = tmp_path / 'eval.tfrecords'
  make_records(path)
  path.write_bytes(path.read_bytes()[:-lost])
  with pytest.raises(InputError, match='ends inside record'):
    records.count_records(str(path))


def test_an_interrupted_write_keeps_the_good_file(tmp_path):
  path = tmp_path / 'train.tfrecords'
  make_records(path)
  before = path.read_bytes()

  def labels():
    yield 1
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    records.write_records(str(path), np.zeros([3, records.IMAGE_BYTES], np.uint8), labels())
  assert path.read_bytes() == before
  assert os.listdir(tmp_path) == ['train.tfrecords']


def test_num_examples_by_scan_and_by_manifest(tmp_path):
  folder = str(tmp_path)
  for subset in records.SUBSETS:
    make_records(records.record_path(folder, subset))
  assert records.num_examples(folder, 'eval') == 4
  entries = {subset: records.describe_subset(folder, subset, 4) for subset in records.SUBSETS}
  records.write_manifest(folder, {'subsets': entries})
  assert records.num_examples(folder, 'eval') == 4
  with open(records.record_path(folder, 'eval'), 'ab') as file:
    file.write(b'x')
  with pytest.raises(InputError, match='is damaged'):
    records.num_examples(folder, 'eval')


def test_one_changed_byte_is_found(tmp_path):
  folder = str(tmp_path)
  for subset in records.SUBSETS:
    make_records(records.record_path(folder, subset))
  entries = {subset: records.describe_subset(folder, subset, 4) for subset in records.SUBSETS}
  records.write_manifest(folder, {'subsets': entries})
  path = tmp_path / 'eval.tfrecords'
  content = bytearray(path.read_bytes())
  content[1000] ^= 1
  path.write_bytes(content)
  with pytest.raises(
    InputError, match=r'eval\.tfrecords is not what its manifest describes.*--force'
  ):
    records.num_examples(folder, 'eval')
  assert records.num_examples(folder, 'train') == 4


def test_a_missing_file_names_the_command(tmp_path):
  with pytest.raises(InputError, match=r'eval\.tfrecords is missing; run: python generate_'):
    records.num_examples(str(tmp_path), 'eval')


def test_an_empty_file_is_refused(tmp_path):
  (tmp_path / 'eval.tfrecords').touch()
  with pytest.raises(InputError, match='holds no records'):
    records.num_examples(str(tmp_path), 'eval')


@pytest.mark.parametrize('content', ['{', '[]', '{"subsets": {}}', '{"subsets": {"train": 3}}'])
def test_refuses_a_damaged_manifest(tmp_path, content):
  (tmp_path / records.MANIFEST_NAME).write_text(content)
  with pytest.raises(InputError, match=r'cifar10\.json is no manifest'):
    records.read_manifest(str(tmp_path))


def test_a_manifest_is_readable_json(tmp_path):
  entry = {'examples': 1, 'bytes': 2, 'file': 'f', 'sha256': 's'}
  manifest = {'format': 1, 'subsets': {subset: entry for subset in records.SUBSETS}}
  records.write_manifest(str(tmp_path), manifest)
  assert json.loads((tmp_path / 'cifar10.json').read_text()) == manifest
  assert records.read_manifest(str(tmp_path)) == manifest
