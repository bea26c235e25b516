"""Predicts images with a trained network: files as a stream, a split from memory."""

import collections
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cifar10.callbacks import progress
from cifar10.core import files, logs
from cifar10.core.errors import InputError, SomeFailedError, StorageError
from cifar10.data import image_files
from cifar10.job.run import Run
from cifar10.training import estimator, evaluator
from cifar10.training.estimator import Predictor

_BATCH = 100

Result = dict[str, Any]  # As it is printed: `file`, or `index` and `label`; `class`; ...
# What its result begins with: `file`, and `error` if it could not be read, or `index` and `label`.
# And its pixels: uint8 [32, 32, 3], black where there is an error.
Image = tuple[Result, np.ndarray]


def run(run: Run, names: Sequence[str], out: str) -> Iterator[Result]:
  """Classifies the images of files and folders, or a split, with a process's checkpoint.

  Yields an image's name, its class and the probability of every class; or its name and an error.
  With `out` these go into that file, and one object says how many there are. Raises InputError for
  a file that cannot be written, StorageError for a full disk; SomeFailedError at the end, where an
  image could not be read.
  """
  if split := run.options.subset:
    pixels, labels = evaluator.held_out(run, split).all_examples()
    named = ({'index': i, 'label': run.data.classes[label]} for i, label in enumerate(labels))
    images: Iterator[Image] = zip(named, pixels)
    count = len(labels)
  else:
    paths = [path for name in names for path in files_of(name)]
    images, count = image_files.read_ahead(read, paths), len(paths)
  counts = collections.Counter[str]()
  results = predict(estimator.load(run), images, count, counts)
  if out:
    with files.naming_errors('--out', out, is_first=True), files.writing(out) as file:
      file.writelines(files.json_text(result).encode() + b'\n' for result in results)
    accuracy = {'accuracy': round(counts['right'] / count, 6)} if split else {}
    yield {'out': out, 'images': count, 'unreadable': counts['unreadable'], **accuracy}
  else:
    yield from results
  if failed := counts['unreadable']:
    raise SomeFailedError(
      f'{failed:,} of {count:,} images could not be read; their lines of the result say why'
    )


def predict(
  network: Predictor, images: Iterator[Image], count: int, counts: collections.Counter[str]
) -> Iterator[Result]:
  """Classifies images in batches; counts unreadable and right ones; closes the network."""
  bar = logs.images_bar(total=count, desc='predicting', disable=not progress.shows_bars())
  classes = network.classes
  with network, bar:
    while batch := list(itertools.islice(images, _BATCH)):
      answers = network(np.stack([pixels for _, pixels in batch]))
      for (name, _), label, row in zip(batch, *answers):
        bar.update()
        counts['right'] += name.get('label') == classes[label]
        if 'error' in name:
          counts['unreadable'] += 1
          yield name
        else:
          probabilities = dict(zip(classes, [round(float(each), 6) for each in row]))
          yield {**name, 'class': classes[label], 'probabilities': probabilities}


def read(path: str) -> Image:
  """Returns the image of a file, or a black one with the error."""
  try:
    return {'file': path}, image_files.read_image(path)
  except (InputError, StorageError) as error:
    said = logs.one_line(str(error))
    return {'file': path, 'error': said}, np.zeros([32, 32, 3], np.uint8)


def files_of(path: str) -> list[str]:
  """Returns the sorted files in and below a folder, without hidden ones; else the name itself."""
  found = []
  for folder, folders, names in os.walk(path):
    folders[:] = sorted(each for each in folders if not each.startswith('.'))
    found += [os.path.join(folder, each) for each in sorted(names) if not each.startswith('.')]
  return found or [path]
