"""Predicts images with a trained network, as a stream with a few hundred in memory."""

import collections
import contextlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cifar10.core import files, logs
from cifar10.core.errors import InputError, SomeFailedError, StorageError
from cifar10.core.logs import log
from cifar10.data import image_files, records
from cifar10.job.run import Run
from cifar10.training import evaluator
from cifar10.training.estimator import Predictor, with_checkpoint

_BATCH = 100
_SHAPE = (records.HEIGHT, records.WIDTH, records.DEPTH)

Result = dict[str, Any]  # As it is printed: `file`, or `index` and `label`; `class`; ...


class Image(NamedTuple):
  """An image to classify, or why it could not be read."""

  name: Result  # What its result begins with: {'file': path}, or index and label.
  pixels: np.ndarray  # uint8 [32, 32, 3]; black where there is an error.
  size: tuple[int, int] = _SHAPE[:2]  # Height and width, before it was resized.
  error: str = ''


def run(run: Run, names: Sequence[str], out: str) -> Iterator[Result]:
  """Classifies the images of files and folders, or a split, with a process's checkpoint.

  Yields:
    The name of an image, the name of its class and the probability of every class; or its name and
    an error. With `out` these go into that file, and one object says how many there are.

  Raises:
    SomeFailedError: at the end, where an image could not be read.
    StorageError: `out` cannot be written.
  """
  split, classes = run.options.subset, run.data.classes
  if split:
    pixels, labels = evaluator.held_out(run, split).all_examples()
    named = ({'index': i, 'label': classes[label]} for i, label in enumerate(labels))
    images: Iterator[Image] = map(Image, named, pixels)
    count = len(labels)
  else:
    paths = [path for name in names for path in files_of(name)]
    images, count = image_files.read_ahead(read, paths), len(paths)
  predictor = Predictor(run)
  with_checkpoint(run, predictor.restore)
  counts = collections.Counter[str]()

  def counted() -> Iterator[Result]:
    for result in predict(predictor, images, count, classes):
      counts['images'] += 1
      counts['unreadable'] += 'error' in result
      counts['labelled'] += 'label' in result
      counts['right'] += 'label' in result and result['label'] == result['class']
      yield result

  if out:
    write(counted(), out)
    labelled = counts['labelled']
    accuracy = {'accuracy': round(counts['right'] / labelled, 6)} if labelled else {}
    yield {'out': out, 'images': counts['images'], 'unreadable': counts['unreadable'], **accuracy}
  else:
    yield from counted()
  if failed := counts['unreadable']:
    share = f'{failed:,} of {counts["images"]:,} images'
    raise SomeFailedError(f'{share} could not be read; their lines of the result say why')


def predict(
  predictor: Predictor, images: Iterator[Image], count: int, classes: Sequence[str]
) -> Iterator[Result]:
  """Classifies so many images, batch after batch; closes the predictor."""
  resized = 0
  bar = logs.images_bar(count, 'predicting', disable=not sys.stderr.isatty())
  with contextlib.closing(predictor), bar:
    while batch := list(itertools.islice(images, _BATCH)):
      answers = predictor(np.stack([image.pixels for image in batch]))
      for image, label, row in zip(batch, *answers):
        bar.update()
        resized += image.size != _SHAPE[:2]
        if image.error:
          yield {**image.name, 'error': image.error}
        else:
          probabilities = dict(zip(classes, [round(float(each), 6) for each in row]))
          yield {**image.name, 'class': classes[label], 'probabilities': probabilities}
  if resized:
    log.info('%s images were resized to 32x32 pixels', f'{resized:,}')


def write(results: Iterable[Result], path: str) -> None:
  """Writes results into a file, a line each, whole or not at all; raises StorageError."""
  try:
    with files.writing(path) as file:
      file.writelines(files.json_text(result).encode() + b'\n' for result in results)
  except OSError as error:
    raise StorageError(f'--out {path} cannot be written ({error.strerror}); name another') from None


def read(path: str) -> Image:
  """Returns the image of a file, or a black one with the error."""
  try:
    return Image({'file': path}, *image_files.read_image(path))
  except (InputError, StorageError) as error:
    black = np.zeros(_SHAPE, np.uint8)
    return Image({'file': path}, black, error=logs.one_line(str(error)))


def files_of(path: str) -> list[str]:
  """Returns the sorted files in and below a folder, without hidden ones; else the name itself.

  A name of nothing fails when it is read. Folders behind links are not followed.
  """
  found = []
  for folder, folders, names in os.walk(path):
    folders[:] = sorted(each for each in folders if not each.startswith('.'))
    found += [os.path.join(folder, each) for each in sorted(names) if not each.startswith('.')]
  return found or [path]
