"""Reads PNG and JPEG files as images of 32x32 pixels, for predictions and data sets."""

from __future__ import annotations

import collections
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import tensorflow as tf

from cifar10.core import limits
from cifar10.core.errors import InputError, StorageError
from cifar10.data.info import DEPTH, HEIGHT, WIDTH

LARGEST_BYTES = 1 << 28  # Of a file, which is read and decoded as a whole.
_STARTS = (b'\x89PNG\r\n\x1a\n', b'\xff\xd8\xff', b'GIF8', b'BM')


def read_image(path: str) -> tuple[np.ndarray, tuple[int, int]]:
  """Reads an image file of any size, scaled to what a network takes.

  The program promises PNG and JPEG; TensorFlow also reads GIF (its first image) and BMP. Grey
  becomes equal red, green and blue; transparency is dropped.

  Returns:
    uint8 [32, 32, 3], and the original height and width.

  Raises:
    InputError: the file does not exist, is no image, or is too large.
    StorageError: it cannot be read.
  """
  try:
    content = _content(path)
  except OSError as error:
    raise StorageError(
      f'image {path} cannot be read ({error.strerror}); mend that, and run again'
    ) from None
  from tensorflow.python.eager import context  # noqa: PLC0415  (it loads TensorFlow)

  with context.eager_mode():  # Which a user's network or notebook may have switched off.
    try:
      image = decode(content).numpy()
    except tf.errors.OpError:
      raise _no_image(path) from None
    return as_seen(image).numpy(), image.shape[:2]


def _content(path: str) -> bytes:
  """Returns a file's bytes; raises InputError, as `read_image` does, and OSError."""
  try:
    kind = os.stat(path).st_mode
  except (OSError, ValueError) as error:  # The latter for a NUL.
    if getattr(error, 'errno', errno.ENOENT) not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
      raise
    if not os.path.islink(path):
      raise InputError(f'image {path} does not exist') from None
    kind = 0
  if not stat.S_ISREG(kind):  # A folder, a dangling link, or a pipe, which would block.
    of_folder = ', but a folder that is empty or may not be read' if stat.S_ISDIR(kind) else ''
    raise InputError(f'image {path} is no file{of_folder}')
  with open(path, 'rb') as file:
    if not file.peek(8).startswith(_STARTS):  # A video may have more bytes than the memory.
      raise _no_image(path)
    size = os.fstat(file.fileno()).st_size
    if size > LARGEST_BYTES:
      raise InputError(
        f'image {path} has {size:,} bytes, more than {LARGEST_BYTES:,}; make it smaller'
      )
    return file.read()


def _no_image(path: str) -> InputError:
  return InputError(f'image {path} cannot be read as PNG or JPEG; convert it')


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
