"""One record's format, its writer and its reader side by side; the splits; the manifest.

A record is a `tf.train.Example` with `image` (bytes: 3,072, planes R, G, B, rows of 32) and `label`
(int64, 0..9): what the old program wrote, so old files still work and old readers read ours.
"""

import contextlib
import functools
import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np
import tensorflow as tf

from cifar10.errors import InputError

HEIGHT = WIDTH = 32
DEPTH = 3
IMAGE_BYTES = DEPTH * HEIGHT * WIDTH
NUM_CLASSES = 10
CLASS_NAMES = (
  'airplane',
  'automobile',
  'bird',
  'cat',
  'deer',
  'dog',
  'frog',
  'horse',
  'ship',
  'truck',
)
SUBSETS = ('train', 'validation', 'eval')
MANIFEST_NAME = 'cifar10.json'

# A TFRecord is: length (uint64), CRC of the length (4 bytes), data, CRC of the data (4 bytes).
_LENGTH = struct.Struct('<Q')
_HEADER_BYTES = 12
_FOOTER_BYTES = 4


def record_path(data_dir: str, subset: str) -> str:
  """DIR/train.tfrecords and so on."""
  return os.path.join(data_dir, f'{subset}.tfrecords')


def encode_example(image: np.ndarray, label: int) -> bytes:
  """Image uint8 [3072] (planes R, G, B) and label 0..9 -> a serialized Example."""
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
  with replacing(path) as temporary, tf.io.TFRecordWriter(temporary) as writer:
    for image, label in zip(images, labels):
      writer.write(encode_example(image, label))


def count_records(path: str) -> int:
  """How many records a file holds, from its framing; raises InputError for a truncated one."""
  size, position, count = os.path.getsize(path), 0, 0
  with open(path, 'rb') as file:
    while position < size:
      header = file.read(_HEADER_BYTES)
      if len(header) < _HEADER_BYTES:
        break
      position += _HEADER_BYTES + _LENGTH.unpack(header[:8])[0] + _FOOTER_BYTES
      file.seek(min(position, size))
      count += 1
  if position != size:
    raise InputError(f'{path} ends inside record {count}: it is damaged; {_remedy(path, True)}')
  return count


def file_digest(path: str) -> str:
  """The file's SHA-256 in hexadecimal."""
  digest = hashlib.sha256()
  with open(path, 'rb') as file:
    while chunk := file.read(1 << 20):
      digest.update(chunk)
  return digest.hexdigest()


def describe_subset(data_dir: str, subset: str, examples: int) -> dict[str, Any]:
  """A manifest's entry for one written split."""
  path = record_path(data_dir, subset)
  return {
    'file': os.path.basename(path),
    'examples': examples,
    'bytes': os.path.getsize(path),
    'sha256': file_digest(path),
  }


def read_manifest(data_dir: str) -> dict[str, Any] | None:
  """The manifest's content, or None where there is none; raises InputError for a damaged one."""
  path = os.path.join(data_dir, MANIFEST_NAME)
  try:
    with open(path, encoding='utf-8') as file:
      manifest = json.load(file)
    for subset in SUBSETS:
      entry = manifest['subsets'][subset]
      kinds = {'examples': int, 'bytes': int, 'sha256': str}
      if not all(isinstance(entry[key], kind) for key, kind in kinds.items()):
        raise ValueError(f'{subset} has no counts or no digest')
    return manifest
  except FileNotFoundError:
    return None
  except (ValueError, KeyError, TypeError) as error:
    raise InputError(f'{path} is no manifest ({error!r}); {_remedy(path, True)}') from error


def write_manifest(data_dir: str, manifest: dict[str, Any]) -> None:
  """Writes DIR/cifar10.json, whole or not at all."""
  path = os.path.join(data_dir, MANIFEST_NAME)
  with replacing(path) as temporary, open(temporary, 'w', encoding='utf-8') as file:
    json.dump(manifest, file, indent=2)
    file.write('\n')


def num_examples(data_dir: str, subset: str) -> int:
  """How many examples a split has: the manifest's count, or a scan where there is no manifest.

  Raises:
    InputError: the file is missing, truncated, or not, byte for byte, what the manifest describes.
  """
  path = record_path(data_dir, subset)
  if not os.path.isfile(path):
    raise InputError(f'{path} is missing; {_remedy(path)}')
  manifest = read_manifest(data_dir)
  if manifest is None:
    count = count_records(path)
  else:
    entry = manifest['subsets'][subset]
    count, size = entry['examples'], os.path.getsize(path)
    if size != entry['bytes']:
      raise InputError(
        f'{path} has {size} bytes and its manifest says {entry["bytes"]}: it is damaged; '
        f'{_remedy(path)}'
      )
    if _digest_once(path, os.stat(path).st_mtime_ns) != entry['sha256']:
      raise InputError(
        f'{path} is not what its manifest describes: SHA-256 differs; {_remedy(path, True)}'
      )
  if not count:
    raise InputError(f'{path} holds no records; {_remedy(path, True)}')
  return count


@functools.cache
def _digest_once(path: str, modified: int) -> str:
  """Of a file that was last written then: a tenth of a second, once in a process."""
  del modified
  return file_digest(path)


def _remedy(path: str, force: bool = False) -> str:
  data_dir = os.path.dirname(path) or '.'
  flags = ' --force' if force else ''
  return f'run: python generate_cifar10_tfrecords.py --data-dir {data_dir}{flags}'


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
  """A name to write to beside `path`: takes its place at the end, or goes when anything fails."""
  temporary = f'{path}.{os.getpid()}.tmp'
  try:
    yield temporary
    _flush_to_disk(temporary)
    os.replace(temporary, path)
  finally:
    with contextlib.suppress(FileNotFoundError):
      os.remove(temporary)


def _flush_to_disk(path: str) -> None:
  """Without it a power cut can leave the new name on empty content."""
  file: IO[bytes]
  with open(path, 'rb') as file:
    os.fsync(file.fileno())
