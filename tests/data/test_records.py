"""The record format against bytes worked out by hand; interrupted writes, others' records."""

import os

import numpy as np
import pytest
import tensorflow as tf

from cifar10.data import records
from cifar10.platform.errors import InputError


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


def example(**features):
  return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def numbers(*values):
  return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def strings(*values):
  return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


IMAGE = strings(bytes(records.IMAGE_BYTES))


@pytest.mark.parametrize(
  ('record', 'fault'),
  [
    (example(image=IMAGE, label=numbers(2)), r'`label` \[2\], not one number from 0 to 1'),
    (example(image=IMAGE, label=numbers(-1)), r'`label` \[-1\]'),
    (example(image=IMAGE, label=numbers(0, 1)), r'`label` \[0, 1\]'),
    (example(image=IMAGE, label=strings(b'cat')), r'`label` \[\]'),
    (example(image=IMAGE), r'`label` \[\]'),
    (example(image=strings(b'short'), label=numbers(1)), r'`image` \[5\], not one string of 3072'),
    (example(label=numbers(1)), r'`image` \[\]'),
    (b'\xff\xff', 'no tf.train.Example'),
  ],
)
def test_checks_records_of_other_programs(tmp_path, record, fault):
  path = str(tmp_path / 'train.tfrecords')
  with tf.io.TFRecordWriter(path) as writer:
    writer.write(example(image=IMAGE, label=numbers(1)))
  records.check_records(path, 2, 0)
  with tf.io.TFRecordWriter(path) as writer:
    writer.write(example(image=IMAGE, label=numbers(1)))
    writer.write(record)
  with pytest.raises(InputError, match=rf'train\.tfrecords: record 2 has {fault}'):
    records.check_records(path, 2, 1)
