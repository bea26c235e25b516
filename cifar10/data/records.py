"""One record's format, its writer and its reader side by side.

A record is a `tf.train.Example` with `image` (bytes: 3,072, planes R, G, B, rows of 32) and `label`
(int64, 0 to one less than there are classes): what the old program wrote, so old files still work
and old readers read ours.
"""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from cifar10.core import files
from cifar10.data.info import DEPTH, HEIGHT, IMAGE_BYTES, WIDTH


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
