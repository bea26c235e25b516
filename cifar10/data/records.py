"""The format of a record, its writer and its reader, and the check of a whole record file.

A record is a `tf.train.Example` with `image` (bytes: 3,072, planes R, G, B, rows of 32) and `label`
(int64, 0 to one less than there are classes): what the old program wrote, so old files still work
and old readers read ours.

A file is checked before anything is trained on it. Of a file that its manifest's SHA-256 vouches
for, only labels and sizes are looked at: a twentieth of a second for 50,000 records of the form
that `encode_example` writes. All others are read one by one (foreign_records.py).
"""

import functools
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from cifar10.core import files, parts
from cifar10.core.errors import DamagedError, InputError
from cifar10.data import manifest
from cifar10.data.info import DEPTH, HEIGHT, IMAGE_BYTES, WIDTH, describe

_FRAME_BYTES = manifest.HEADER_BYTES + manifest.FOOTER_BYTES


def encode_example(image: np.ndarray, label: int) -> bytes:
  """Image uint8 [3072] (planes R, G, B) and label -> a serialized Example."""
  feature = {
    'image': tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
    'label': tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)])),
  }
  example = tf.train.Example(features=tf.train.Features(feature=feature))
  # By default the features' order depends on protobuf's release, and so would the files' digests.
  return example.SerializeToString(deterministic=True)


def parse_examples(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Serialized Examples [n] -> planes uint8 [n, 3072], labels int32 [n]."""
  features = tf.io.parse_example(
    serialized,
    {'image': tf.io.FixedLenFeature([], tf.string), 'label': tf.io.FixedLenFeature([], tf.int64)},
  )
  planes = tf.reshape(tf.io.decode_raw(features['image'], tf.uint8), [-1, IMAGE_BYTES])
  return planes, tf.cast(features['label'], tf.int32)


def planes_to_images(planes: tf.Tensor) -> tf.Tensor:
  """uint8 [n, 3072], planes R, G, B -> uint8 [n, 32, 32, 3]."""
  return tf.transpose(tf.reshape(planes, [-1, DEPTH, HEIGHT, WIDTH]), [0, 2, 3, 1])


def write_records(path: str, images: np.ndarray, labels: Iterable[int]) -> None:
  """Writes images uint8 [n, 3072] and labels [n]; the file appears under `path` when complete."""
  with files.replacing(path) as temporary:
    write_examples(temporary, zip(images, labels))


def write_examples(path: str, examples: Iterable[tuple[np.ndarray, int]]) -> int:
  """Writes each image uint8 [3072] and label as it comes -> how many there were."""
  count = 0
  with tf.io.TFRecordWriter(path) as writer:
    for image, label in examples:
      writer.write(encode_example(image, label))
      count += 1
  return count


def num_examples(data_dir: str, split: str) -> int:
  """How many examples a split has, all of which can be read: looked at once in a process.

  Raises:
    InputError: the file is missing, or another than its manifest describes.
    DamagedError: a record that is damaged, no Example, or of an image or label that cannot be.
  """
  path = manifest.record_path(data_dir, split)
  num_classes = describe(data_dir).num_classes
  is_verified = manifest.has_counts(data_dir)
  try:
    if is_verified:
      manifest.num_examples(data_dir, split)
    else:
      manifest.require_file(path)
    count = _checked_once(path, num_classes, is_verified, files.signature(path))
  except OSError as error:
    raise InputError(f'{path} cannot be read ({error.strerror}); name another --data-dir') from None
  if not count:
    raise DamagedError(f'{path} holds no records; {manifest.remedy(path, force=True)}')
  return count


@functools.cache
def _checked_once(
  path: str, num_classes: int, is_verified: bool, signature: tuple[int, int]
) -> int:
  """The records of a file, looked at again when its signature is another."""
  del signature
  count = _count_own(path, num_classes) if is_verified else 0
  return count or parts.load('foreign_records').count(path, num_classes)


def _count_own(path: str, num_classes: int) -> int:
  """How many records a file has, if all are as this program writes them, else 0.

  All have the same bytes then, but for those of the image and one of the label.
  """
  blank, fixed, label = _own_form()
  stride = len(blank) + _FRAME_BYTES
  size = files.size(path)
  if not size or size % stride or num_classes > 128:  # From there on a label has two bytes.
    return 0
  is_url = files.is_url(path)
  content = np.frombuffer(files.read(path), np.uint8) if is_url else np.memmap(path, np.uint8, 'r')
  frames = content.reshape(-1, stride)
  examples = frames[:, manifest.HEADER_BYTES : -manifest.FOOTER_BYTES]
  is_own = (examples[:, fixed] == blank[fixed]).all() and (examples[:, label] < num_classes).all()
  return len(frames) if is_own else 0


@functools.cache
def _own_form() -> tuple[np.ndarray, np.ndarray, int]:
  """An Example as bytes, uint8 [n]; which of them are in every one, bool [n]; the label's place."""
  images = np.zeros(IMAGE_BYTES, np.uint8), np.full(IMAGE_BYTES, 255, np.uint8)
  one, other = (
    np.frombuffer(encode_example(image, label), np.uint8) for label, image in enumerate(images)
  )
  differs = one != other
  return one, ~differs, int(np.flatnonzero(differs)[-1])
