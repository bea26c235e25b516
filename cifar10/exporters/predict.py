"""Predicts images with a trained network, as a stream with a few hundred in memory."""

import contextlib
import csv
import glob
import io
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

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
  """Classifies the named images, or a split, with a process's checkpoint.

  Yields:
    The name of an image, the name of its class and the probability of every class; or its name and
    an error. With `out` these go into that file, and one object says how many there are.

  Raises:
    SomeFailedError: at the end, where an image could not be read.
    StorageError: `out` cannot be written.
  """
  split = run.options.subset
  images, count = _of_split(run, split) if split else _of_files(names)
  predictor = Predictor(run)
  with_checkpoint(run, predictor.restore)
  return _answers(predict(predictor, images, count, run.data.classes), out, run.data.classes)


def _of_split(run: Run, split: str) -> tuple[Iterator[Image], int]:
  pixels, labels = evaluator.held_out(run, split).all_examples()
  names = ({'index': i, 'label': run.data.classes[label]} for i, label in enumerate(labels))
  return map(Image, names, pixels), len(labels)


def _of_files(names: Sequence[str]) -> tuple[Iterator[Image], int | None]:
  paths = list(each_file(names))
  is_known = not any(path.endswith('.npy') for path in paths)
  images = itertools.chain.from_iterable(image_files.read_ahead(images_of, paths))
  return images, len(paths) if is_known else None


def _answers(results: Iterator[Result], out: str, classes: Sequence[str]) -> Iterator[Result]:
  """As `run`."""
  failed: list[bool] = []
  right: list[bool] = []  # Of the labelled images.

  def counted() -> Iterator[Result]:
    for result in results:
      failed.append('error' in result)
      if 'label' in result:
        right.append(result['label'] == result['class'])
      yield result

  if out:
    write(counted(), out, classes)
    accuracy = {'accuracy': round(float(np.mean(right)), 6)} if right else {}
    yield {'out': out, 'images': len(failed), 'unreadable': sum(failed), **accuracy}
  else:
    yield from counted()
  if any(failed):
    share = f'{sum(failed):,} of {len(failed):,} images'
    raise SomeFailedError(f'{share} could not be read; their lines of the result say why')


def predict(
  predictor: Predictor, images: Iterator[Image], count: int | None, classes: Sequence[str]
) -> Iterator[Result]:
  """Classifies images, `count` if that is known, batch after batch; closes the predictor."""
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


def write(results: Iterable[Result], path: str, classes: Sequence[str]) -> None:
  """Writes results into a file, whole or not at all; raises StorageError.

  A .jsonl file has them as they are printed; a .csv the columns `file`, or `index` and `label`,
  `class`, `error` and one of probabilities for each class; a .npz the arrays `predictions` int64
  [n] (-1: not read), `probabilities` float32 [n, classes], `class_names`, and `files` or `labels`.
  """
  try:
    with files.writing(path) as file:
      if path.endswith('.npz'):
        _write_arrays(file, list(results), classes)
      elif path.endswith('.csv'):
        _write_table(file, results, classes)
      else:
        file.writelines(files.json_text(result).encode() + b'\n' for result in results)
  except OSError as error:
    raise StorageError(f'--out {path} cannot be written ({error.strerror}); name another') from None


def _write_table(file: IO[bytes], results: Iterable[Result], classes: Sequence[str]) -> None:
  text = io.TextIOWrapper(file, 'utf-8', 'backslashreplace', newline='', write_through=True)
  table = csv.writer(text)
  for number, result in enumerate(results):
    columns = [*(['index', 'label'] if 'label' in result else ['file']), 'class', 'error']
    if number == 0:
      table.writerow([*columns, *(f'probability of {each}' for each in classes)])
    probabilities = result.get('probabilities', dict.fromkeys(classes)).values()
    table.writerow([*map(result.get, columns), *probabilities])
  text.detach()


def _write_arrays(file: IO[bytes], results: Sequence[Result], classes: Sequence[str]) -> None:
  label_of = {name: label for label, name in enumerate(classes)}
  unknown = dict.fromkeys(classes, np.nan)
  names: dict[str, Any] = {'files': [result.get('file') for result in results]}
  if results and 'label' in results[0]:
    names = {'labels': [label_of[result['label']] for result in results]}
  predictions = [label_of.get(result.get('class', ''), -1) for result in results]
  rows = [[*result.get('probabilities', unknown).values()] for result in results]
  names |= {'predictions': np.array(predictions, np.int64), 'class_names': np.array(classes)}
  content = io.BytesIO()  # A failed writer of zip files would fail once more at its end.
  np.savez(content, probabilities=np.array(rows, np.float32), **names)
  file.write(content.getbuffer())


def images_of(path: str) -> list[Image]:
  """The image of a file, or those of a .npy file's array uint8 [n, 32, 32, 3]."""
  try:
    if path.endswith('.npy') and os.path.isfile(path):  # No pipe, which would never end.
      rows = enumerate(_array(path))
      return [Image({'file': f'{path}[{number}]'}, pixels) for number, pixels in rows]
    return [Image({'file': path}, *image_files.read_image(path))]
  except (InputError, StorageError) as error:
    black = np.zeros(_SHAPE, np.uint8)
    return [Image({'file': path}, black, error=logs.one_line(str(error)))]


def _array(path: str) -> np.ndarray:
  try:
    images = np.load(path, mmap_mode='r', allow_pickle=False)
    if images.dtype != np.uint8 or images.shape[1:] != _SHAPE:
      raise ValueError(f'it is {images.dtype} {list(images.shape)}')
  except Exception as error:  # numpy raises many kinds for a damaged file.
    raise InputError(
      f'images {path} must be a .npy file of an array uint8 [n, 32, 32, 3] ({error})'
    ) from None
  return images


def each_file(names: Iterable[str]) -> Iterator[str]:
  """Yields the files of each name in sorted order.

  A folder stands for all files in and below it, without hidden ones and folders behind links. A
  name that exists is no pattern. A name of nothing is yielded, too, and fails when it is read.
  """
  for name in names:
    found = [name] if os.path.lexists(name) else sorted(glob.glob(name, recursive=True))
    # A pattern may match a folder and files in it.
    yield from dict.fromkeys(itertools.chain.from_iterable(map(_files_in, found or [name])))


def _files_in(path: str) -> list[str]:
  found = []
  for folder, folders, names in os.walk(path):
    folders[:] = sorted(each for each in folders if not each.startswith('.'))
    found += [os.path.join(folder, each) for each in sorted(names) if not each.startswith('.')]
  return found or [path]
