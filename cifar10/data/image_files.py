"""Reads PNG and JPEG files as images of 32x32 pixels, for predictions and data sets."""

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
  """Reads an image file of any size, scaled to what a network takes.

  The program promises PNG and JPEG; TensorFlow also reads GIF (its first image) and BMP. Grey
  becomes equal red, green and blue; transparency is dropped.

  Returns:
    uint8 [32, 32, 3], and the original height and width.

  Raises:
    InputError: the file does not exist or is no image.
  """
  if not os.path.lexists(path):
    raise InputError(f'image {path} does not exist')
  if not os.path.isfile(path):  # A folder, a dangling link, or a pipe, which would block.
    of_folder = ', but a folder that is empty or may not be read' if os.path.isdir(path) else ''
    raise InputError(f'image {path} is no file{of_folder}')
  from tensorflow.python.eager import context  # noqa: PLC0415  (it loads TensorFlow)

  with context.eager_mode():  # Which a user's network or notebook may have switched off.
    try:
      content = tf.io.read_file(os.fsencode(path))  # The name may be other than UTF-8.
      image = decode(content).numpy()
    except tf.errors.OpError:
      raise InputError(f'image {path} cannot be read as PNG or JPEG; convert it') from None
    return as_seen(image).numpy(), image.shape[:2]


def decode(content: tf.Tensor) -> tf.Tensor:
  """Decodes a file's bytes, a string scalar, to uint8 [height, width, 3]."""
  return tf.io.decode_image(content, channels=DEPTH, expand_animations=False)


def as_seen(image: tf.Tensor) -> tf.Tensor:
  """Scales uint8 [height, width, 3] to uint8 [32, 32, 3]; that size stays unchanged."""
  # Area averaging, or a large photograph would become noise.
  resized = tf.image.resize(image, [HEIGHT, WIDTH], tf.image.ResizeMethod.AREA)
  return tf.cast(tf.round(resized), tf.uint8)


_THREADS = min(4, limits.cores())  # Each holds a whole photograph while scaling it.

Content = TypeVar('Content')


def read_ahead(read: Callable[[str], Content], paths: Iterable[str]) -> Iterator[Content]:
  """Calls `read` on the paths in threads, a few ahead; yields results in the paths' order."""
  pending: collections.deque[Future[Content]] = collections.deque()
  with ThreadPoolExecutor(_THREADS) as pool:
    for path in paths:
      pending.append(pool.submit(read, path))
      if len(pending) > 2 * _THREADS:
        yield pending.popleft().result()
    while pending:
      yield pending.popleft().result()
