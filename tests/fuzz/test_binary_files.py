"""Record files, archives and images whose bytes are damaged, or made to mislead."""

import dataclasses
import gzip
import hashlib
import pickle
import tarfile

import numpy as np
import pytest
import tensorflow as tf
from hostile import damaged, refusals, values
from hypothesis import given
from hypothesis import strategies as st

from cifar10.data import image_files, manifest, records
from cifar10.data.build import archive, synthetic

COUNT = 3


def serialized(features):
  return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def make_feature(kind, content):
  return tf.train.Feature(
    **{
      'bytes': lambda: {'bytes_list': tf.train.BytesList(value=content)},
      'ints': lambda: {'int64_list': tf.train.Int64List(value=content)},
      'floats': lambda: {'float_list': tf.train.FloatList(value=content)},
    }[kind]()
  )


SIZES = st.one_of(st.just(3072), st.integers(0, 4000))
FEATURES = st.one_of(
  st.lists(SIZES.map(bytes), max_size=2).map(lambda content: make_feature('bytes', content)),
  st.lists(st.one_of(st.integers(0, 12), st.integers(-(2**63), 2**63 - 1)), max_size=2).map(
    lambda content: make_feature('ints', content)
  ),
  st.lists(st.floats(width=32), max_size=2).map(lambda content: make_feature('floats', content)),
)
NAMES = st.one_of(st.sampled_from(['image', 'label']), st.text(max_size=5))
EXAMPLES = st.one_of(
  st.dictionaries(NAMES.filter(lambda name: name.isprintable()), FEATURES, max_size=3).map(
    serialized
  ),
  damaged(records.encode_example(np.zeros(records.IMAGE_BYTES, np.uint8), 3)),
  st.binary(max_size=40),
)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp('records')


@pytest.fixture(scope='module')
def whole(folder):
  path = manifest.record_path(str(folder), 'train')
  images = np.random.default_rng(0).integers(0, 256, [COUNT, records.IMAGE_BYTES])
  records.write_records(path, images.astype(np.uint8), range(COUNT))
  with open(path, 'rb') as file:
    return file.read()


def check(folder):
  """It is refused, or TensorFlow reads as many images of the right size, of known classes."""
  path = manifest.record_path(str(folder), 'train')
  records._checked_once.cache_clear()  # The clock of a file system may stand for a while.
  with refusals():
    count = records.num_examples(str(folder), 'train')
    found = list(tf.compat.v1.io.tf_record_iterator(path))
    assert len(found) == count > 0
    planes, labels = records.parse_examples(tf.constant(found))
    assert planes.shape == [count, records.IMAGE_BYTES]
    assert 0 <= int(tf.reduce_min(labels)) <= int(tf.reduce_max(labels)) < 10


@given(st.data())
def test_record_files_with_damaged_bytes(folder, whole, drawn):
  content = drawn.draw(damaged(whole))
  with open(manifest.record_path(str(folder), 'train'), 'wb') as file:
    file.write(content)
  check(folder)


@given(st.lists(EXAMPLES, max_size=3))
def test_record_files_with_records_of_anything(folder, examples):
  with tf.io.TFRecordWriter(manifest.record_path(str(folder), 'train')) as writer:
    for example in examples:
      writer.write(example)
  check(folder)


@pytest.fixture(scope='module')
def published(tmp_path_factory):
  """A synthetic archive, with its digests, and its bytes before they were packed."""
  folder = tmp_path_factory.mktemp('archive')
  batches = synthetic.write_synthetic(str(folder), 2, 0)
  path = folder / 'cifar.tar.gz'
  with tarfile.open(path, 'w:gz') as tar:
    tar.add(batches, archive.CIFAR10.folder)
  digests = {}
  for name in archive.CIFAR10.digests:
    with open(f'{batches}/{name}', 'rb') as file:
      digests[name] = hashlib.sha256(file.read()).hexdigest()
  made = dataclasses.replace(archive.CIFAR10, digests=digests)
  return path, made, path.read_bytes(), gzip.decompress(path.read_bytes())


@given(st.data(), st.booleans())
def test_archives_with_damaged_bytes(published, drawn, inside):
  path, made, packed, unpacked = published
  path.write_bytes(drawn.draw(damaged(unpacked if inside else packed)))
  with refusals():
    folder = archive.download_and_extract(str(path.parent), published=made, archive=str(path))
    assert len(list(archive.read_batches([f'{folder}/{name}' for name in made.digests]))) == 12


KEYS = st.sampled_from([b'data', b'labels', b'fine_labels', b'label_names', 'data', 'labels'])
ARRAYS = st.builds(
  np.zeros,
  # Not 3,072 squared: five members of 75 MB of zeros tell no more.
  st.lists(st.sampled_from([0, 1, 2, 3072]), max_size=2).filter(lambda shape: np.prod(shape) < 1e4),
  st.sampled_from(['uint8', 'int64', 'float32', 'bool', 'S3']),
)
MEMBERS = st.one_of(
  values, st.dictionaries(KEYS, st.one_of(values, ARRAYS, st.lists(st.integers(-1, 11))))
)


@given(MEMBERS, st.integers(0, 2))
def test_batches_of_anything(tmp_path_factory, member, protocol):
  path = tmp_path_factory.getbasetemp() / 'batch'
  path.write_bytes(pickle.dumps(member, protocol=protocol))
  with refusals():
    for image, _ in archive.read_batches([str(path)]):
      assert image.shape == (records.IMAGE_BYTES,)


IMAGE = np.random.default_rng(0).integers(0, 256, [9, 7, 3]).astype(np.uint8)


@given(st.data(), st.sampled_from(['png', 'jpeg']))
def test_images(tmp_path_factory, drawn, kind):
  encode = {'png': tf.io.encode_png, 'jpeg': tf.io.encode_jpeg}[kind]
  path = tmp_path_factory.getbasetemp() / 'image'
  path.write_bytes(drawn.draw(damaged(encode(IMAGE).numpy())))
  with refusals():
    image, size = image_files.read_image(str(path))
    assert image.shape == (32, 32, 3)
    assert min(size) > 0
