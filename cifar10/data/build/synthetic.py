"""Writes archives like the published ones with generated images, for tests and demonstrations."""

import gzip
import io
import math
import os
import pickle
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import six

from cifar10.core import files, limits
from cifar10.core.errors import InputError
from cifar10.data import info
from cifar10.data.build import archive
from cifar10.data.info import DEPTH, HEIGHT, IMAGE_BYTES, WIDTH

_TEXTURES = 5
_PERIODS = (5.0, 11.0)  # pixels, of a data set whose classes are single textures
_LAYERED_PERIODS = (3.5, 7.0, 14.0)  # pixels, of the three textures of an image; an octave apart
MOST_CLASSES = _TEXTURES ** len(_LAYERED_PERIODS)
_FINE_CLASSES = 100  # CIFAR-100's. Each coarse class has as many fine ones as there are textures.
# Bytes of memory for one image of a batch while it is made, measured with 500 and 1,500 images; and
# bytes on disk for its six batches, in the archive and in the record files.
_MEMORY_BYTES = 130_000
_DISK_BYTES = 38_000
_MEMBER_BYTES = IMAGE_BYTES + 78  # An image in a batch with its label and file name.
# How many times --synthetic's number of images CIFAR-100's members hold: train and validation have
# the ratio of CIFAR-10's batches, four to one.
_CIFAR100_MEMBERS = {'test': 1, 'train': 5}


def check_size(images_per_batch: int, data_dir: str, published: archive.Published) -> None:
  """Raises InputError if memory, disk or the members have no room for that many images."""
  batches = max(_CIFAR100_MEMBERS.values()) if published is archive.CIFAR100 else 1
  memory, disk = limits.memory(), free_disk(data_dir)
  largest, reason = min(
    (memory // _MEMORY_BYTES, f'{memory / 1e9:.3g} GB of memory are there'),
    (disk // _DISK_BYTES, f'{disk / 1e9:.3g} GB of disk are free for --data-dir {data_dir}'),
    (archive.LARGEST_MEMBER // batches // _MEMBER_BYTES, "an archive's members hold no more"),
  )
  if images_per_batch > largest:
    raise InputError(
      f'--synthetic is {images_per_batch}: it must be {largest} or less, as {reason}'
    )


def free_disk(folder: str) -> int:
  """Returns the free bytes on the disk of a folder, which need not exist yet.

  For a URL it is the disk of the folder for temporary files, where files for a URL are made (the
  filesystem of a URL does not tell its free space).
  """
  there = os.path.abspath(tempfile.gettempdir() if files.is_url(folder) else folder)
  while not os.path.exists(there):
    there = os.path.dirname(there)
  return shutil.disk_usage(there).free


def write_synthetic(
  path: str, images_per_batch: int, seed: int, published: archive.Published = archive.CIFAR10
) -> dict[str, str]:
  """Writes an archive in a published format with generated images.

  Args:
    path: the archive; appears when complete.
    images_per_batch: in each of CIFAR-10's six batches; CIFAR-100's two members have as many
      together.
    seed: determines every byte.
    published: the format.

  Returns:
    The digest of each member.
  """
  rng = np.random.default_rng(seed)
  make = {archive.CIFAR10: _cifar10_members, archive.CIFAR100: _cifar100_members}
  members = {
    name: _pickle_as_python_2(content)
    for name, content in make[published](images_per_batch, rng).items()
  }
  _write_tar(path, published.folder, members)
  return {name: published.digest(content) for name, content in members.items()}


def _cifar10_members(images_per_batch: int, rng: np.random.Generator) -> dict[str, Any]:
  """Returns the batches and the names as objects to pickle, in the order of the tar."""
  names = info.CIFAR10.classes
  members: dict[str, Any] = {
    'batches.meta': {
      b'num_cases_per_batch': images_per_batch,
      b'label_names': [six.ensure_binary(name) for name in names],
      b'num_vis': IMAGE_BYTES,
    }
  }
  for name in archive.CIFAR10.digests:
    labels = rng.permutation(np.arange(images_per_batch) % len(names))
    members[name] = _batch(name, {b'labels': labels}, synthetic_images(labels, rng))
  return members


def _cifar100_members(images_per_batch: int, rng: np.random.Generator) -> dict[str, Any]:
  """Like `_cifar10_members`. Fine classes with two equal longer textures share a coarse class."""
  coarse = _FINE_CLASSES // _TEXTURES
  members: dict[str, Any] = {
    'meta': {
      b'fine_label_names': [b'texture_%02d' % number for number in range(_FINE_CLASSES)],
      b'coarse_label_names': [b'group_%02d' % number for number in range(coarse)],
    }
  }
  for name, batches in _CIFAR100_MEMBERS.items():
    labels = rng.permutation(np.arange(batches * images_per_batch) % _FINE_CLASSES)
    # Batch by batch, because making one image takes more than 100 KB.
    parts = [synthetic_images(part, rng, _FINE_CLASSES) for part in np.split(labels, batches)]
    both = {b'fine_labels': labels, b'coarse_labels': labels // _TEXTURES}
    members[name] = _batch(name, both, np.concatenate(parts))
  return members


def _batch(name: str, labels: Mapping[bytes, np.ndarray], images: np.ndarray) -> dict[bytes, Any]:
  """Returns a member with images as an object to pickle."""
  return {
    b'batch_label': b'synthetic ' + name.encode(),
    **{key: values.tolist() for key, values in labels.items()},
    b'data': images,
    b'filenames': [f'synthetic_{index}.png'.encode() for index in range(len(images))],
  }


def synthetic_images(
  labels: np.ndarray, rng: np.random.Generator, num_classes: int = info.CIFAR10.num_classes
) -> np.ndarray:
  """Generates textures that a small convolutional network learns and a linear model does not.

  The five textures are horizontal and vertical stripes, checks, diagonal stripes and rings. Of up
  to ten classes, class 2t + f is texture t of period f (5 or 11 pixels). Of more, each image is the
  sum of three textures, of 14, 7 and 3.5 pixels, named by the class's digits to the base 5.

  Phase, colours and noise are random, so that all classes have the same mean image; mirrored or
  shifted images stay in their class.

  Args:
    labels: [n], 0 to num_classes - 1.
    rng: the source of random numbers.
    num_classes: at most 125.

  Returns:
    uint8 [n, 3072], planes R, G, B.
  """
  assert num_classes <= MOST_CLASSES
  if num_classes <= _TEXTURES * len(_PERIODS):
    pattern = _texture(labels // 2, np.choose(labels % 2, _PERIODS), rng)
  else:
    digits = [labels // _TEXTURES**place % _TEXTURES for place in range(len(_LAYERED_PERIODS))]
    layers = [
      _texture(digit, np.full(len(labels), period), rng)
      for digit, period in zip(digits, _LAYERED_PERIODS)
    ]
    pattern = np.sum(layers, 0) / math.sqrt(len(layers))  # The deviation of one layer.
  return _coloured(pattern, rng)


def _texture(texture: np.ndarray, period: np.ndarray, rng: np.random.Generator) -> np.ndarray:
  """Returns textures (0..4, [n]) of these periods (pixels, [n]) with random phases.

  They are float64 [n, 32, 32], about -1..1.
  """
  n, period = len(texture), period[:, np.newaxis, np.newaxis]
  y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)

  def draw(low, high):
    return rng.uniform(low, high, [n, 1, 1])

  def wave(distance):
    return np.sin(2 * np.pi * (distance / period + draw(0, 1)))

  direction = np.where(draw(0, 1) < 0.5, -1, 1)
  rings = np.hypot(y - draw(8, 24), x - draw(8, 24))
  textures = np.stack(
    [
      wave(y + 0 * period),
      wave(x + 0 * period),
      wave(y + 0 * period) * wave(x + 0 * period) * 1.5,
      wave((x + direction * y) / np.sqrt(2)),
      wave(rings),
    ]
  )  # [5, n, 32, 32]
  return textures[texture, np.arange(n)]


def _coloured(pattern: np.ndarray, rng: np.random.Generator) -> np.ndarray:
  """Returns patterns [n, 32, 32] with random colours and noise: uint8 [n, 3072], planes R, G, B."""
  n = len(pattern)
  base = rng.uniform(90, 165, [n, DEPTH, 1, 1])
  # Contrast has a random size and sign in every colour: no colour identifies a class.
  contrast = rng.uniform(25, 75, [n, 1, 1, 1]) * rng.uniform(-1, 1, [n, DEPTH, 1, 1])
  noise = rng.normal(0, 8, [n, DEPTH, HEIGHT, WIDTH])
  images = np.clip(base + contrast * pattern[:, np.newaxis] + noise, 0, 255)
  return images.astype(np.uint8).reshape(n, IMAGE_BYTES)


def _pickle_as_python_2(value: Any) -> bytes:
  """Pickles like Python 2 (protocol 2), with the name that NumPy's module had then."""
  # NumPy 2 writes the name of a module that NumPy 1 lacks.
  return pickle.dumps(value, protocol=2).replace(
    b'cnumpy._core.multiarray\n', b'cnumpy.core.multiarray\n'
  )


def _write_tar(path: str, folder: str, members: Mapping[str, bytes]) -> None:
  """Writes a .tar.gz whose bytes depend on the members alone: without times and user names."""
  # gzip writes file name and time into its header: they are empty and 0.
  with (
    files.writing(path) as file,
    gzip.GzipFile(filename='', mode='wb', compresslevel=1, fileobj=file, mtime=0) as zipped,
    tarfile.open(fileobj=zipped, mode='w') as tar,
  ):
    for name, content in members.items():
      member = tarfile.TarInfo(f'{folder}/{name}')
      member.size = len(content)
      tar.addfile(member, io.BytesIO(content))
