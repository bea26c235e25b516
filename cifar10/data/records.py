"""The format of a record, its writer and reader, and the check of a whole record file.

A record is a `tf.train.Example` with `image` (bytes: 3,072, planes R, G, B, rows of 32) and `label`
(int64, below the number of classes). The old program wrote the same, so that old files work here
and old readers read these files.

A file is checked before training. If its manifest's SHA-256 matches, only labels and sizes are
checked: a twentieth of a second for 50,000 records in the form that `encode_example` writes. All
other files are read record by record (foreign_records.py).
"""

import functools
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from cifar10.core import files
from cifar10.core.errors import DamagedError, InputError
from cifar10.data import foreign_records, manifest
from cifar10.data.foreign_records import FOOTER_BYTES, HEADER_BYTES
from cifar10.data.info import DEPTH, HEIGHT, IMAGE_BYTES, WIDTH, describe


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
  """Parses Examples: string [n] -> planes uint8 [n, 3072], labels int32 [n]."""
  features = tf.io.parse_example(
    serialized,
    {'image': tf.io.FixedLenFeature([], tf.string), 'label': tf.io.FixedLenFeature([], tf.int64)},
  )
  planes = tf.reshape(tf.io.decode_raw(features['image'], tf.uint8), [-1, IMAGE_BYTES])
  return planes, tf.cast(features['label'], tf.int32)


def planes_to_images(planes: tf.Tensor) -> tf.Tensor:
  """Transposes uint8 [n, 3072], planes R, G, B, to uint8 [n, 32, 32, 3]."""
  return tf.transpose(tf.reshape(planes, [-1, DEPTH, HEIGHT, WIDTH]), [0, 2, 3, 1])


def write_records(path: str, images: np.ndarray, labels: Iterable[int]) -> None:
  """Writes images uint8 [n, 3072] and labels [n]; `path` appears when the file is complete.

  Raises:
    InputError: they are something else, which would make other images or labels of them.
  """
  images, numbers = np.asarray(images), np.array(list(labels))
  if images.dtype != np.uint8 or images.shape[1:] != (IMAGE_BYTES,):
    raise InputError(
      f'the images of {path} are {images.dtype} {list(images.shape)}: they must be uint8 '
      f'[n, {IMAGE_BYTES}], the planes R, G, B of each'
    )
  if numbers.shape != (len(images),) or (numbers.size and numbers.dtype.kind not in 'iu'):
    raise InputError(
      f'the labels of {path} are {numbers.dtype} {list(numbers.shape)}: they must be whole '
      f'numbers, one for each of the {len(images)} images'
    )
  with files.replacing(path) as temporary:
    write_examples(temporary, zip(images, numbers, strict=True))


def write_examples(path: str, examples: Iterable[tuple[np.ndarray, int]]) -> int:
  """Writes pairs of image, uint8 [3072], and label one by one; returns how many."""
  count = 0
  with tf.io.TFRecordWriter(path) as writer:
    for image, label in examples:
      writer.write(encode_example(image, label))
      count += 1
  return count


def num_examples(data_dir: str, split: str) -> int:
  """Returns how many examples a split has; checks that all are readable, once in a process.

  Raises:
    InputError: the file is missing, or differs from what its manifest describes.
    DamagedError: a record is damaged, is no Example, or has an invalid image or label.
  """
  path = manifest.record_path(data_dir, split)
  num_classes = describe(data_dir).num_classes
  try:
    if not files.is_file(path):
      raise InputError(f'{path} is missing; {manifest.remedy(path)}')
    entry = (manifest.read_manifest(data_dir) or {}).get('subsets', {}).get(split)
    described = (entry['bytes'], entry['sha256']) if entry else None
    count = _checked_once(path, num_classes, described, files.signature(path))
  except OSError as error:
    raise InputError(f'{path} cannot be read ({error.strerror}); name another --data-dir') from None
  if not count:
    raise DamagedError(f'{path} holds no records; {manifest.remedy(path, force=True)}')
  if entry and count != entry['examples']:
    raise DamagedError(
      f'{path} holds {count} records and its manifest says {entry["examples"]}; '
      f'{manifest.remedy(path, force=True)}'
    )
  return count


@functools.cache
def _checked_once(
  path: str, num_classes: int, described: tuple[int, str] | None, signature: tuple[int, int]
) -> int:
  """Returns a file's record count; checks it, and what describes it (bytes, SHA-256), once."""
  del signature
  if described:
    manifest.check_file(path, *described)
  count = _count_own(path, num_classes) if described else 0
  if count:
    return count
  return foreign_records.count(path, num_classes)


def _count_own(path: str, num_classes: int) -> int:
  """Returns how many records a file has if all are in this program's form, else 0.

  Then all have the same bytes, except for the image's and one of the label's.
  """
  blank, fixed, label = _own_form()
  stride = HEADER_BYTES + len(blank) + FOOTER_BYTES
  size = files.size(path)
  if not size or size % stride or num_classes > 128:  # From 128 on a label takes two bytes.
    return 0
  # 'c': a private mapping, as some file systems that are programs (FUSE) refuse a shared one.
  is_url = files.is_url(path)
  content = np.frombuffer(files.read(path), np.uint8) if is_url else np.memmap(path, np.uint8, 'c')
  frames = content.reshape(-1, stride)
  examples = frames[:, HEADER_BYTES:-FOOTER_BYTES]
  is_own = (examples[:, fixed] == blank[fixed]).all() and (examples[:, label] < num_classes).all()
  return len(frames) if is_own else 0


@functools.cache
def _own_form() -> tuple[np.ndarray, np.ndarray, int]:
  """Returns an Example's bytes uint8 [n]; which are constant, bool [n]; the label's position."""
  images = np.zeros(IMAGE_BYTES, np.uint8), np.full(IMAGE_BYTES, 255, np.uint8)
  one, other = (
    np.frombuffer(encode_example(image, label), np.uint8) for label, image in enumerate(images)
  )
  differs = one != other
  return one, ~differs, int(np.flatnonzero(differs)[-1])
