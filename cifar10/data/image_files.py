"""PNG and JPEG files -> images of 32x32 pixels, for predictions and for own data sets."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from cifar10.core import limits
from cifar10.core.errors import InputError
from cifar10.core.lazy_tf import tf
from cifar10.data.info import DEPTH, HEIGHT, WIDTH


def read_image(path: str) -> tuple[np.ndarray, tuple[int, int]]:
  """An image file of any size, as a network sees it.

  PNG and JPEG are what the program promises; TensorFlow also reads GIF (its first image) and BMP.
  Grey becomes red, green and blue alike; transparency is dropped.

  Returns:
    uint8 [32, 32, 3], and the height and width that it had.

  Raises:
    InputError: there is no such file, or it is no image.
  """
  if not os.path.lexists(path):
    raise InputError(f'image {path} does not exist')
  if not os.path.isfile(path):  # A folder, a link to nothing, a pipe, which would never end.
    raise InputError(f'image {path} is no file')
  try:
    content = tf.io.read_file(os.fsencode(path))  # Also a name that is no UTF-8.
    image = decode(content)
  except tf.errors.OpError:
    raise InputError(f'image {path} cannot be read as PNG or JPEG; convert it') from None
  height, width = image.shape[:2]
  return as_seen(image).numpy(), (height, width)


def decode(content: tf.Tensor) -> tf.Tensor:
  """A file's bytes, string scalar -> uint8 [height, width, 3]."""
  return tf.io.decode_image(content, channels=DEPTH, expand_animations=False)


def as_seen(image: tf.Tensor) -> tf.Tensor:
  """uint8 [height, width, 3] -> uint8 [32, 32, 3]; one of this size stays as it is."""
  # Area averaging keeps a large photograph from turning into noise.
  resized = tf.image.resize(image, [HEIGHT, WIDTH], tf.image.ResizeMethod.AREA)
  return tf.cast(tf.round(resized), tf.uint8)


_THREADS = min(4, limits.cores())  # Each holds a whole photograph while it is made small.

Content = TypeVar('Content')


def read_ahead(read: Callable[[str], Content], paths: Iterable[str]) -> Iterator[Content]:
  """Calls `read` on the paths in threads, a few ahead -> its results, in the paths' order."""
  pending: collections.deque[Future[Content]] = collections.deque()
  with ThreadPoolExecutor(_THREADS) as pool:
    for path in paths:
      pending.append(pool.submit(read, path))
      if len(pending) > 2 * _THREADS:
        yield pending.popleft().result()
    while pending:
      yield pending.popleft().result()
