"""The record format against bytes worked out by hand; interrupted writes."""

import os

import numpy as np
import pytest
import tensorflow as tf

from cifar10.core.errors import InputError
from cifar10.data import records


def test_an_example_has_the_old_programs_features():
  image = np.arange(records.IMAGE_BYTES).astype(np.uint8)
  example = tf.train.Example.FromString(records.encode_example(image, 7))
  assert set(example.features.feature) == {'image', 'label'}
  assert example.features.feature['image'].bytes_list.value[:] == [bytes(range(256)) * 12]
  assert example.features.feature['label'].int64_list.value[:] == [7]


def test_reads_what_it_writes(tmp_path):
  images = np.arange(4 * records.IMAGE_BYTES).reshape(4, -1).astype(np.uint8)
  records.write_records(str(tmp_path / 'a'), images, range(4))
  planes, labels = records.parse_examples(tf.stack(list(tf.data.TFRecordDataset(f'{tmp_path}/a'))))
  np.testing.assert_array_equal(planes, images)
  assert labels.numpy().tolist() == [0, 1, 2, 3]
  assert (planes.dtype, labels.dtype) == (tf.uint8, tf.int32)


def test_planes_to_images_by_hand():
  planes = tf.range(records.IMAGE_BYTES)[tf.newaxis]
  pixel = records.planes_to_images(planes)[0, 3, 4]
  # Row 3, column 4: 3 x 32 + 4 = 100 in each plane of 1,024.
  assert pixel.numpy().tolist() == [100, 1124, 2148]


def test_an_interrupted_write_keeps_the_good_file(tmp_path):
  path = tmp_path / 'train.tfrecords'
  path.write_bytes(b'good')

  def labels():
    yield 1
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    records.write_records(str(path), np.zeros([3, records.IMAGE_BYTES], np.uint8), labels())
  assert path.read_bytes() == b'good'
  assert os.listdir(tmp_path) == ['train.tfrecords']


@pytest.mark.parametrize(
  ('images', 'labels'),
  [
    (np.zeros([2, 32, 32, 3], np.uint8), [0, 1]),
    (np.zeros([2, 3072]), [0, 1]),
    (np.zeros([3, 3072], np.uint8), [0, 1]),
    (np.zeros([2, 3072], np.uint8), [0, 1, 2]),
    (np.zeros([2, 3072], np.uint8), [0, 0.7]),
    (np.zeros([2, 3072], np.uint8), [[0], [1]]),
  ],
)
def test_what_records_cannot_hold_is_not_written(tmp_path, images, labels):
  with pytest.raises(
    InputError, match=r'cannot hold images .* and labels .*: give uint8 \[n, 3072'
  ):
    records.write_records(str(tmp_path / 'train.tfrecords'), images, labels)
  assert os.listdir(tmp_path) == []
