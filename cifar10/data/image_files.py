"""Reads PNG, JPEG and WebP files as images of 32x32 pixels, for predictions and data sets."""

import io
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import tensorflow as tf
from PIL import Image
from tensorflow.python.eager import context

from cifar10.core import files, limits
from cifar10.core.errors import InputError, StorageError
from cifar10.data.manifest import DEPTH, HEIGHT, WIDTH

_THREADS = min(4, limits.cores())  # Each holds a whole photograph while scaling it.

Content = TypeVar('Content')


def read_image(path: str) -> np.ndarray:
  """Returns a PNG, JPEG or WebP file of any size, scaled to what a network takes: [32, 32, 3].

  Grey becomes equal red, green and blue; transparency is dropped.

  Raises InputError if the file does not exist or is no image, StorageError if it cannot be read.
  """
  try:
    if os.path.exists(path) and not os.path.isfile(path):  # A folder, or a pipe, which blocks.
      raise InputError(f'image {path} is no file')
    content = files.read(path)
  except (FileNotFoundError, NotADirectoryError):
    raise InputError(f'image {path} does not exist') from None
  except OSError as error:
    raise StorageError(f'image {path} cannot be read ({error.strerror}); mend that') from None
  with context.eager_mode():  # Which a user's network or notebook may have switched off.
    try:
      if content[8:12] == b'WEBP':
        image = np.asarray(Image.open(io.BytesIO(content), formats=['WEBP']).convert('RGB'))
      else:
        image = decode(content).numpy()
    except (tf.errors.OpError, OSError, ValueError, Image.DecompressionBombError):
      raise InputError(f'image {path} cannot be read as PNG, JPEG or WebP; convert it') from None
    return as_seen(image).numpy()


def decode(content: tf.Tensor) -> tf.Tensor:
  """Decodes a PNG's or JPEG's bytes, a string scalar, to uint8 [height, width, 3]."""
  image = tf.io.decode_image(content, channels=DEPTH, expand_animations=False)
  return tf.ensure_shape(image, [None, None, DEPTH])


def as_seen(image: tf.Tensor) -> tf.Tensor:
  """Scales uint8 [height, width, 3] to uint8 [32, 32, 3]; that size stays unchanged."""
  # Area averaging, or a large photograph would become noise.
  resized = tf.image.resize(image, [HEIGHT, WIDTH], tf.image.ResizeMethod.AREA)
  return tf.cast(tf.round(resized), tf.uint8)


def read_ahead(read: Callable[[str], Content], paths: Iterable[str]) -> Iterator[Content]:
  """Calls `read` on the paths in threads, some at a time; yields results in the paths' order."""
  left = iter(paths)
  with ThreadPoolExecutor(_THREADS) as pool:
    while some := list(itertools.islice(left, 8 * _THREADS)):
      yield from pool.map(read, some)
