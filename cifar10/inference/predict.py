"""Predicts image files with a trained network, as a stream with a few hundred in memory."""

import collections
import glob
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tqdm

from cifar10.core.errors import InputError, SomeFailedError
from cifar10.core.logs import IMAGES_BAR, log
from cifar10.data import image_files, input_pipeline, records
from cifar10.data.image_files import read_ahead
from cifar10.inference.predictions import IMAGES

_BATCH = 100
_MOST_NAMED = 20  # The log names this many resized images.
_SHAPE = (records.HEIGHT, records.WIDTH, records.DEPTH)


class _Read(NamedTuple):
  """An image file, or the error why it could not be read."""

  path: str
  image: np.ndarray  # uint8 [32, 32, 3]; black if there is an error.
  size: tuple[int, int] = _SHAPE[:2]  # Height and width before resizing.
  error: str = ''


def predict(
  estimator: Any, names: Sequence[str], checkpoint: str, classes: Sequence[str]
) -> Iterator[dict[str, Any]]:
  """Yields one result per file, in order, as they are computed.

  Args:
    estimator: the network's Estimator.
    names: files, folders, patterns.
    checkpoint: the checkpoint to restore.
    classes: the names, by label.

  Yields:
    The file, its predicted class and the probability of every class; or the file and an error.

  Raises:
    SomeFailedError: after the last file, if a file could not be read.
  """
  waiting: collections.deque[_Read] = collections.deque()  # Sent to the network, not answered yet.
  resized = itertools.count(1)

  def images() -> Iterator[dict[str, np.ndarray]]:  # Runs in a thread of tf.data.
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
  """Returns a progress bar; images are counted only if the bar is shown."""
  is_shown = sys.stderr.isatty()
  total = sum(1 for _ in each_file(names)) if is_shown else None
  return tqdm.tqdm(
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
  """Yields the files of each name in sorted order, with one folder's files at a time in memory.

  A folder stands for all files in and below it, without hidden ones. A name that exists is no
  pattern. A name of nothing at all is yielded as it is, and fails when it is read.
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
  """Yields the files in and below a folder; if it is no folder, or empty, the path itself."""
  is_empty = True
  for folder, folders, names in os.walk(path):
    folders[:] = sorted(name for name in folders if not name.startswith('.'))
    for name in sorted(name for name in names if not name.startswith('.')):
      is_empty = False
      yield os.path.join(folder, name)
  if is_empty:
    yield path
