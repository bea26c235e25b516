"""From image files and archives to records and a manifest, and back."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from cifar10.data import image_files, manifest, records
from cifar10.data.build import archive, writer
from cifar10.data.build.archive import archive_source
from cifar10.data.build.image_folder import image_folder


def write_image(path, image):
  path.parent.mkdir(parents=True, exist_ok=True)
  encode = tf.io.encode_jpeg if path.suffix == '.jpg' else tf.io.encode_png
  path.write_bytes(encode(np.asarray(image, np.uint8)).numpy())


@pytest.fixture
def photos(tmp_path):
  """Three classes; image i of class c is grey 100 c + i: 10 PNG, 10 JPEG (two grey), 10 RGBA."""
  folder = tmp_path / 'photos'
  for number in range(10):
    write_image(folder / '<b>&' / f'{number}.png', np.full([40, 30, 3], number))
    shape = [32, 32, 1 if number < 2 else 3]
    write_image(folder / 'big cat' / f'{number}.jpg', np.full(shape, 100 + number))
    rgba = np.full([32, 32, 4], 200 + number)
    rgba[..., 3] = 7
    write_image(folder / 'dog' / f'{number}.png', rgba)
  return folder


def read(data_dir, split):
  """A split's images, uint8 [n, 3072], and labels, as they lie in its file."""
  path = manifest.record_path(str(data_dir), split)
  serialized = list(tf.data.TFRecordDataset(path))
  planes, labels = records.parse_examples(tf.stack(serialized))
  return planes.numpy(), labels.numpy().tolist()


def convert(photos, data_dir, **keywords):
  data_dir.mkdir(exist_ok=True)
  writer.convert(str(data_dir), image_folder(str(photos), **keywords))
  return json.loads((data_dir / 'cifar10.json').read_text())


def test_images_become_records(photos, tmp_path):
  content = convert(photos, tmp_path / 'data')
  assert content['classes'] == ['<b>&', 'big cat', 'dog']
  assert {s: entry['examples'] for s, entry in content['subsets'].items()} == {
    'train': 24,
    'validation': 3,
    'eval': 3,
  }
  seen = []
  for split in manifest.SUBSETS:
    for image, label in zip(*read(tmp_path / 'data', split)):
      assert np.ptp(image.astype(int)) <= 1  # JPEG may be off by one.
      assert 0 <= round(image.mean()) - 100 * label < 10
      seen.append(round(image.mean()))
  assert sorted(seen) == [100 * label + number for label in range(3) for number in range(10)]


def test_images_are_those_that_predictions_see(photos, tmp_path):
  noise = np.random.default_rng(0).integers(0, 256, [75, 50, 3])
  for number in range(10):
    write_image(photos / 'dog' / f'{number}.png', noise)
  convert(photos, tmp_path / 'data')
  images, labels = read(tmp_path / 'data', 'eval')
  seen, _ = image_files.read_image(str(photos / 'dog' / '0.png'))  # [32, 32, 3]
  planes = images[labels.index(2)].reshape(3, 32, 32)
  np.testing.assert_array_equal(planes.transpose(1, 2, 0), seen)


def test_all_or_nothing_is_written(tmp_path, monkeypatch):
  def fail(*arguments):
    raise OSError('no space left')

  monkeypatch.setattr(manifest, 'write_manifest', fail)
  with pytest.raises(OSError, match='no space left'):
    writer.convert(str(tmp_path), archive_source(synthetic_images=2))
  assert os.listdir(tmp_path) == ['cifar-10-synthetic']


def test_a_data_dir_of_format_1_is_kept_and_mended(tmp_path):
  source = archive_source(synthetic_images=2)
  writer.convert(str(tmp_path), source)
  assert manifest.describe(str(tmp_path)) == manifest.CIFAR10
  content = manifest.read_manifest(str(tmp_path))
  format_1 = ('source', 'images_per_batch', 'seed', 'classes', 'subsets')
  manifest.write_manifest(str(tmp_path), {'format': 1, **{key: content[key] for key in format_1}})
  assert writer.lacking(str(tmp_path), source) == []
  whole = (tmp_path / 'train.tfrecords').read_bytes()
  for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-1]):
    (tmp_path / 'train.tfrecords').write_bytes(damaged)
    assert writer.lacking(str(tmp_path), source) == [f'{tmp_path}/train.tfrecords']
  writer.convert(str(tmp_path), source)
  assert manifest.read_manifest(str(tmp_path)) == content


def test_cifar_100_is_described_by_its_archive(tmp_path):
  source = archive_source(archive.CIFAR100, 'coarse', synthetic_images=4)
  writer.convert(str(tmp_path), source)
  described = manifest.describe(str(tmp_path))
  assert (described.name, described.num_classes) == ('cifar100-coarse', 20)
  pixels = read(tmp_path, 'train')[0].reshape(-1, 3, 1024) / 255
  assert len(pixels) == 16  # Four fifths of 5 x 4.
  np.testing.assert_allclose(described.means, pixels.mean((0, 2)), atol=1e-6)


def test_means_and_deviations_by_hand():
  def image(red, green, blue):
    return np.repeat(np.array([red, green, blue], np.uint8), 1024)

  examples = [(image(0, 51, 255), 0), (image(255, 102, 255), 1)]
  # Red 0 and 1: mean 0.5, deviation 0.5. Green 0.2 and 0.4: mean 0.3, deviation 0.1. Blue has one
  # value: its deviation is 0, for which one level of 255 stands, 0.003922.
  assert writer.means_and_deviations(examples) == ((0.5, 0.3, 1.0), (0.5, 0.1, 0.003922))
