"""The format of a record, its writer and reader, and the check of a whole record file.

A record is a `tf.train.Example` with `image` (bytes: 3,072, planes R, G, B, rows of 32) and `label`
(int64, below the number of classes). The old program wrote the same, so that old files work here
and old readers read these files.

A file is checked before training: the generator's by the SHA-256 that it wrote into the manifest,
another program's record by record, which takes a second for 50,000.
"""

import functools
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.data import manifest
from cifar10.data.manifest import DEPTH, HEIGHT, IMAGE_BYTES, WIDTH


def encode_example(image: np.ndarray, label: int) -> bytes:
  """Serializes an image, uint8 [3072] (planes R, G, B), and its label as an Example."""
  feature = {
    'image': tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
    'label': tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)])),
  }
  example = tf.train.Example(features=tf.train.Features(feature=feature))
  # By default the order of features, and so the files' digests, depend on protobuf's release.
  return example.SerializeToString(deterministic=True)


def parse_examples(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Parses Examples: string [n] -> images uint8 [n, 32, 32, 3], labels int32 [n]."""
  features = tf.io.parse_example(
    serialized,
    {'image': tf.io.FixedLenFeature([], tf.string), 'label': tf.io.FixedLenFeature([], tf.int64)},
  )
  planes = tf.reshape(tf.io.decode_raw(features['image'], tf.uint8), [-1, DEPTH, HEIGHT, WIDTH])
  return tf.transpose(planes, [0, 2, 3, 1]), tf.cast(features['label'], tf.int32)


def write_records(path: str, images: np.ndarray, labels: Iterable[int]) -> None:
  """Writes images uint8 [n, 3072] and labels [n]; `path` appears when the file is complete.

  Raises InputError for other types or shapes, whose bytes would be read as other images or labels.
  """
  images, numbers = np.asarray(images), np.array(list(labels))
  is_right = (images.dtype, images.shape) == (np.uint8, (*numbers.shape, IMAGE_BYTES))
  if not is_right or numbers.dtype.kind not in 'iu':
    raise InputError(
      f'{path} cannot hold images {images.dtype} {list(images.shape)} and labels {numbers.dtype} '
      f'{list(numbers.shape)}: give uint8 [n, {IMAGE_BYTES}], the planes R, G, B of each, and n '
      'whole numbers'
    )
  with files.replacing(path) as temporary:
    write_examples(temporary, zip(images, numbers))


def write_examples(path: str, examples: Iterable[tuple[np.ndarray, int]]) -> int:
  """Writes pairs of image, uint8 [3072], and label one by one; returns how many."""
  count = 0
  with tf.io.TFRecordWriter(path) as writer:
    for image, label in examples:
      writer.write(encode_example(image, label))
      count += 1
  return count


def num_examples(data_dir: str, subset: str) -> int:
  """Returns how many examples a subset has; checks that all are readable, once in a process.

  Raises InputError where the file is missing or differs from its manifest; or a record is damaged,
  is no Example, or has an invalid image or label.
  """
  path = manifest.record_path(data_dir, subset)
  try:
    if not files.is_file(path):
      raise InputError(f'{path} is missing; {manifest.remedy(path)}')
    described = filter(files.is_file, (path, manifest.manifest_path(data_dir)))
    return _checked(data_dir, subset, tuple(map(files.signature, described)))
  except (OSError, tf.errors.OpError) as error:
    said = getattr(error, 'strerror', '') or str(error).partition('\n')[0]
    raise InputError(f'{path} cannot be read ({said}); name another --data-dir') from None


@functools.cache
def _checked(data_dir: str, subset: str, _versions: tuple[tuple[int, int], ...]) -> int:
  """Counts a subset's examples, as `num_examples` does, while its files stay the same."""
  path = manifest.record_path(data_dir, subset)
  content = manifest.read_manifest(data_dir) or {}
  entry = content.get('subsets', {}).get(subset)
  if entry and manifest.file_digest(path) != entry['sha256']:
    fault = 'is damaged: its SHA-256 is not what its manifest says'
    raise InputError(f'{path} {fault}; {manifest.remedy(path)}')
  if entry and 'source' in content:  # By the generator, which made and counted each record.
    return int(entry['examples'])
  count = _count_readable(path, manifest.describe(data_dir).num_classes)
  if not count or (entry and count != entry['examples']):
    expected = f'and its manifest says {entry["examples"]}' if entry else 'but needs some'
    raise InputError(f'{path} holds {count} records {expected}; {manifest.remedy(path)}')
  return count


def _count_readable(path: str, num_classes: int) -> int:
  """Returns how many records a file has; raises InputError at the first wrong one."""
  number = 0
  try:
    # TensorFlow calls it deprecated, in a log that is off. tf.data, the alternative, would start
    # the runtime before a training sets the number of threads.
    for record in tf.compat.v1.io.tf_record_iterator(path):
      number += 1
      if fault := _fault(record, num_classes):
        break
    else:
      return number
  except tf.errors.DataLossError:
    number, fault = number + 1, 'its bytes do not match its checksum, or are cut off'
  raise InputError(f'{path}: record {number} (counted from 1): {fault}; {manifest.remedy(path)}')


def _fault(record: bytes, num_classes: int) -> str:
  """Returns what is wrong with a serialized Example; '' if nothing is."""
  try:
    feature = tf.train.Example.FromString(record).features.feature
  except Exception:  # Protobuf's own error, whose module depends on the release.
    return 'it is no tf.train.Example'
  names = sorted(feature)  # First: looking a name up adds it.
  sizes = [len(image) for image in feature['image'].bytes_list.value]
  labels = [*feature['label'].int64_list.value]
  if sizes == [IMAGE_BYTES] and len(labels) == 1 and 0 <= labels[0] < num_classes:
    return ''
  return (
    f'its `image` is to be one string of {IMAGE_BYTES} bytes and is {sizes}, its `label` one whole '
    f'number from 0 to {num_classes - 1} and is {labels}; it has {names}'
  )
