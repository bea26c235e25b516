"""A trained network on images from outside: a stream, of which a few hundred are in memory."""

import collections
import glob
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core import logs
from cifar10.core.errors import InputError, SomeFailedError
from cifar10.core.logs import IMAGES_BAR, log
from cifar10.data import image_files, input_pipeline, records
from cifar10.data.image_files import read_ahead
from cifar10.inference.predictions import IMAGES

_BATCH = 100
_MOST_NAMED = 20  # Resized images that are named in the log.
_SHAPE = (records.HEIGHT, records.WIDTH, records.DEPTH)


class _Read(NamedTuple):
  """An image file, or why it could not be read."""

  path: str
  image: np.ndarray  # uint8 [32, 32, 3]; black where there is an error.
  size: tuple[int, int] = _SHAPE[:2]  # Height and width, before it was resized.
  error: str = ''


def predict(
  estimator: Any, names: Sequence[str], checkpoint: str, classes: Sequence[str]
) -> Iterator[dict[str, Any]]:
  """One result a file, in order, as they come.

  Args:
    estimator: the network's.
    names: files, folders, patterns.
    checkpoint: its variables.
    classes: their names, by label.

  Yields:
    A file's name, its class's name and the probability of every class; or its name and an error.

  Raises:
    SomeFailedError: at the end, where a file could not be read.
  """
  waiting: collections.deque[_Read] = collections.deque()  # Handed to the network, not answered.
  resized = itertools.count(1)

  def images() -> Iterator[dict[str, np.ndarray]]:  # In a thread of tf.data's.
    for read in read_ahead(_read, each_file(names)):
      waiting.append(read)
      if read.size != _SHAPE[:2]:
        _log_resized(read, next(resized))
      yield {IMAGES: read.image}

  def input_fn() -> Any:
    signature = {IMAGES: tf.TensorSpec(_SHAPE, tf.uint8)}
    read = tf.data.Dataset.from_generator(images, output_signature=signature)
    return input_pipeline.without_autotune(read.batch(_BATCH))

  answered = failed = 0
  answers = estimator.predict(input_fn, checkpoint_path=checkpoint)
  with _bar(names) as bar:
    for answer in answers:
      read = waiting.popleft()
      answered += 1
      failed += bool(read.error)
      bar.update()
      yield _result(read, answer, classes)
  if failed:
    raise SomeFailedError(
      f'{failed:,} of {answered:,} images could not be read; their lines on standard output say why'
    )


def _read(path: str) -> _Read:
  try:
    image, size = image_files.read_image(path)
    return _Read(path, image, size)
  except InputError as error:
    return _Read(path, np.zeros(_SHAPE, np.uint8), error=str(error))


def _log_resized(read: _Read, number: int) -> None:
  height, width = read.size
  if number <= _MOST_NAMED:
    log.info('%s: resized from %sx%s to 32x32 pixels', read.path, width, height)
  elif number == _MOST_NAMED + 1:
    log.info('more images are resized; they are not named')


def _bar(names: Iterable[str]) -> Any:
  """How many images there are is only counted for who sees it."""
  is_shown = sys.stderr.isatty()
  total = sum(1 for _ in each_file(names)) if is_shown else None
  return logs.bar(
    total=total,
    desc='predicting',
    bar_format=IMAGES_BAR,
    dynamic_ncols=True,
    leave=False,
    disable=not is_shown,
  )


def _result(read: _Read, answer: Any, classes: Sequence[str]) -> dict[str, Any]:
  if read.error:
    return {'file': read.path, 'error': read.error}
  return {
    'file': read.path,
    'class': classes[int(answer['classes'])],
    'probabilities': {
      name: round(float(probability), 6)
      for name, probability in zip(classes, answer['probabilities'])
    },
  }


def each_file(names: Iterable[str]) -> Iterator[str]:
  """The files that are meant, of each name in sorted order; one folder's at a time in memory.

  Of a folder these are all in it and below, but hidden ones. What is there by its own name is no
  pattern. What is nothing of all that comes as it is: reading it says what is wrong.
  """
  for name in names:
    if os.path.lexists(name):
      yield from _files_in(name)
      continue
    matches = sorted(glob.glob(name, recursive=True))
    for path in matches:
      yield from _files_in(path)
    if not matches:
      yield name


def _files_in(path: str) -> Iterator[str]:
  """The files in a folder and below; of what is no folder, or of an empty one, the path itself."""
  is_empty = True
  for folder, folders, names in os.walk(path):
    folders[:] = sorted(name for name in folders if not name.startswith('.'))
    for name in sorted(name for name in names if not name.startswith('.')):
      is_empty = False
      yield os.path.join(folder, name)
  if is_empty:
    yield path
