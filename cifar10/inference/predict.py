"""Predicts image files with a trained network, as a stream with a few hundred in memory."""

import collections
import contextlib
import csv
import glob
import io
import itertools
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core import files, logs, storage_errors
from cifar10.core.errors import InputError, SomeFailedError, StorageError
from cifar10.core.logs import log
from cifar10.data import image_files, input_pipeline, records
from cifar10.data.image_files import read_ahead
from cifar10.inference.predictions import IMAGES

_BATCH = 100
_MOST_NAMED = 20  # The log names this many resized images.
_SHAPE = (records.HEIGHT, records.WIDTH, records.DEPTH)


class _Read(NamedTuple):
  """An image, or why it could not be read."""

  name: dict[str, Any]  # What its result begins with: {'file': path}, or index and label.
  image: np.ndarray  # uint8 [32, 32, 3]; black where there is an error.
  size: tuple[int, int] = _SHAPE[:2]  # Height and width, before it was resized.
  error: str = ''


class Images(NamedTuple):
  """Images to classify."""

  read: Callable[[], Iterator[_Read]]
  num_images: Callable[[], int]


def run(process: Any, names: Sequence[str], out: str) -> Iterator[dict[str, Any]]:
  """Classifies the named images, or a split, with a process's checkpoint; into a file if named."""
  classes, split = process.data.classes, process.options.subset
  images = split_images(process.held_out(split), classes) if split else named_images(names)

  def begun(checkpoint: str) -> tuple[Any, list[dict[str, Any]]]:
    results = predict(process.estimator(), images, checkpoint, classes)
    return results, list(itertools.islice(results, 1))  # The first one reads the checkpoint.

  results, first = process.with_checkpoint(begun)
  answers = itertools.chain(first, results)
  return _closing(results, written(answers, out, classes) if out else answers)


def _closing(results: Any, answers: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
  """Yields the answers; whatever ends that, the graph of the results is no longer the default."""
  with contextlib.closing(results):
    yield from answers


def named_images(names: Sequence[str]) -> Images:
  """The images of files, folders and patterns; of a .npy file each image of its array."""
  return Images(
    lambda: itertools.chain.from_iterable(read_ahead(_images_of, each_file(names))),
    lambda: sum(map(_num_images, each_file(names))),
  )


def split_images(data_set: Any, classes: Sequence[str]) -> Images:
  """The images of a `RecordDataset`, in its order, with their labels: all in memory.

  Raises:
    InputError: as `RecordDataset.num_examples_per_epoch`.
  """
  images, labels = data_set.all_examples()

  def read() -> Iterator[_Read]:
    for index, (image, label) in enumerate(zip(images, labels)):
      yield _Read({'index': index, 'label': classes[label]}, image)

  return Images(read, lambda: len(labels))


def predict(
  estimator: Any, images: Images, checkpoint: str, classes: Sequence[str]
) -> Iterator[dict[str, Any]]:
  """Classifies images, in their order, as they come.

  Args:
    estimator: the network's.
    images: from `named_images` or `split_images`.
    checkpoint: its variables.
    classes: their names, by label.

  Yields:
    The name of an image, the name of its class and the probability of every class; or its name and
    an error.

  Raises:
    SomeFailedError: at the end, where an image could not be read.
  """
  waiting: collections.deque[_Read] = collections.deque()  # Sent to the network, not answered yet.
  resized = itertools.count(1)

  def features() -> Iterator[dict[str, np.ndarray]]:  # In a thread of tf.data's.
    for read in images.read():
      waiting.append(read)
      if read.size != _SHAPE[:2]:
        _log_resized(read, next(resized))
      yield {IMAGES: read.image}

  def input_fn() -> Any:
    signature = {IMAGES: tf.TensorSpec(_SHAPE, tf.uint8)}
    read = tf.data.Dataset.from_generator(features, output_signature=signature)
    return input_pipeline.without_autotune(read.batch(_BATCH))

  answered = failed = 0
  answers = estimator.predict(input_fn, checkpoint_path=checkpoint)
  is_shown = sys.stderr.isatty()
  total = images.num_images() if is_shown else None  # Without a terminal they are not counted.
  with logs.images_bar(total, 'predicting', disable=not is_shown) as bar:
    for answer in answers:
      read = waiting.popleft()
      answered += 1
      failed += bool(read.error)
      bar.update()
      yield _result(read, answer, classes)
  if failed:
    raise SomeFailedError(
      f'{failed:,} of {answered:,} images could not be read; their lines of the result say why'
    )


def written(
  results: Iterator[dict[str, Any]], path: str, classes: Sequence[str]
) -> Iterator[dict[str, Any]]:
  """Writes results into a file, whole or not at all -> their numbers, and labelled ones' accuracy.

  Args:
    results: from `predict`.
    path: .jsonl has the results as they are printed; .csv the columns `file`, or `index` and
      `label`, `class`, `error` and one of probabilities for each class; .npz the arrays
      `predictions` int64 [n] (-1: not read), `probabilities` float32 [n, classes], `class_names`,
      and `files` or `labels` int64 [n].
    classes: their names, by label.

  Raises:
    SomeFailedError: as `predict`, after the file is written.
    InputError: the file cannot be opened.
    StorageError: the disk is full, or fails.
  """
  write = {'npz': _write_arrays, 'csv': _write_table}.get(path.rpartition('.')[2], _write_lines)
  counted = _Counted(results)
  try:
    with contextlib.ExitStack() as stack:
      with storage_errors.refusing('--out', path):
        file = stack.enter_context(files.writing(path))
      write(file, counted, classes)
  except OSError as error:
    raise StorageError(f'--out {path} cannot be written ({error.strerror}); name another') from None
  counts: dict[str, float] = {'images': counted.images, 'unreadable': counted.unreadable}
  if counted.right:
    counts['accuracy'] = float(np.mean(counted.right).round(6))
  yield {'out': path, **counts}
  if counted.failure:
    raise counted.failure


class _Counted:
  """Results as they come; counts them, and keeps the failure that ends them."""

  def __init__(self, results: Iterator[dict[str, Any]]):
    self._results = results
    self.right: list[bool] = []  # Of the labelled images.
    self.images = self.unreadable = 0
    self.failure: SomeFailedError | None = None

  def __iter__(self) -> Iterator[dict[str, Any]]:
    try:
      for result in self._results:
        self.images += 1
        self.unreadable += 'error' in result
        if 'label' in result:
          self.right.append(result['label'] == result['class'])
        yield result
    except SomeFailedError as error:
      self.failure = error


def _write_lines(file: IO[bytes], results: Iterable[Any], classes: Sequence[str]) -> None:
  del classes
  file.writelines(files.json_text(result).encode() + b'\n' for result in results)


def _write_table(file: IO[bytes], results: Iterable[Any], classes: Sequence[str]) -> None:
  text = io.TextIOWrapper(file, 'utf-8', 'backslashreplace', newline='', write_through=True)
  columns = [f'probability of {name}' for name in classes]
  rows = iter(results)
  first = list(itertools.islice(rows, 1))
  names = ['index', 'label'] if first and 'label' in first[0] else ['file']
  table = csv.DictWriter(text, [*names, 'class', 'error', *columns])
  table.writeheader()
  for result in itertools.chain(first, rows):
    probabilities = zip(columns, result.pop('probabilities', {}).values())
    table.writerow({**result, **dict(probabilities)})
  text.detach()


def _write_arrays(file: IO[bytes], results: Iterable[Any], classes: Sequence[str]) -> None:
  label_of = {name: label for label, name in enumerate(classes)}
  unknown = dict.fromkeys(classes, np.nan)
  names, predictions, probabilities = [], [], []
  kind = 'files'
  for result in results:
    kind = 'labels' if 'label' in result else 'files'
    names.append(label_of[result['label']] if kind == 'labels' else result['file'])
    predictions.append(label_of.get(result.get('class'), -1))
    probabilities.append(np.array([*result.get('probabilities', unknown).values()], np.float32))
  content = io.BytesIO()  # A failed writer of zip files would fail once more at its end.
  np.savez(
    content,
    predictions=np.array(predictions, np.int64),
    probabilities=np.array(probabilities, np.float32).reshape([-1, len(classes)]),
    class_names=np.array(classes),
    **{kind: np.array(names)},
  )
  file.write(content.getbuffer())


def _images_of(path: str) -> Iterable[_Read]:
  """The image of a file, read at once; of a .npy file its images, each read when it is taken."""
  if path.endswith('.npy'):
    return _read_array(path)
  try:
    image, size = image_files.read_image(path)
    return [_Read({'file': path}, image, size)]
  except (InputError, StorageError) as error:
    return [_unread(path, logs.one_line(str(error)))]


def _read_array(path: str) -> Iterator[_Read]:
  """Each image of a .npy file's array uint8 [n, 32, 32, 3]."""
  if not os.path.isfile(path):  # A folder, a link to nothing, or a pipe, which would never end.
    yield _unread(path, f'image {path} is no file')
    return
  try:
    images = np.load(path, mmap_mode='r', allow_pickle=False)
    if images.dtype != np.uint8 or images.shape[1:] != _SHAPE:
      raise ValueError(f'it is {images.dtype} {list(images.shape)}')
    for index, image in enumerate(images):
      yield _Read({'file': f'{path}[{index}]'}, np.array(image))
  except Exception as error:  # numpy raises many kinds for a damaged file.
    fault = f'images {path} must be a .npy file of an array uint8 [n, 32, 32, 3] ({error})'
    yield _unread(path, fault)


def _num_images(path: str) -> int:
  if path.endswith('.npy') and os.path.isfile(path):
    with contextlib.suppress(Exception):  # It counts as one, whose result says what is wrong.
      return len(np.load(path, mmap_mode='r', allow_pickle=False))
  return 1


def _unread(path: str, error: str) -> _Read:
  return _Read({'file': path}, np.zeros(_SHAPE, np.uint8), error=error)


def _log_resized(read: _Read, number: int) -> None:
  height, width = read.size
  if number <= _MOST_NAMED:
    log.info('%s: resized from %sx%s to 32x32 pixels', read.name['file'], width, height)
  elif number == _MOST_NAMED + 1:
    log.info('more images are resized; they are not named')


def _result(read: _Read, answer: Any, classes: Sequence[str]) -> dict[str, Any]:
  if read.error:
    return {**read.name, 'error': read.error}
  return {
    **read.name,
    'class': classes[int(answer['classes'])],
    'probabilities': {
      name: round(float(probability), 6)
      for name, probability in zip(classes, answer['probabilities'])
    },
  }


def each_file(names: Iterable[str]) -> Iterator[str]:
  """Yields the files of each name in sorted order, with one folder's files at a time in memory.

  A folder stands for all files in and below it, also behind links, without hidden ones. A name that
  exists is no pattern. A name of nothing at all is yielded as it is, and fails when it is read.
  """
  for name in names:
    if os.path.lexists(name):
      yield from _files_in(name)
      continue
    matches = sorted(glob.glob(name, recursive=True))
    found = set(map(pathlib.Path, matches))
    for path in matches:
      if found.isdisjoint(pathlib.Path(path).parents):  # Else a folder that matches has brought it.
        yield from _files_in(path)
    if not matches:
      yield name


def _files_in(path: str) -> Iterator[str]:
  """Yields the files in and below a folder, then what cannot be listed; for no file the path."""
  is_empty = True
  unlisted: list[str] = []  # The path itself, where it is no folder.
  walk = os.walk(path, onerror=lambda error: unlisted.append(error.filename), followlinks=True)
  for folder, folders, names in walk:
    folders[:] = sorted(
      name for name in folders if not name.startswith('.') and not _is_above(folder, name)
    )
    for name in sorted(name for name in names if not name.startswith('.')):
      is_empty = False
      yield os.path.join(folder, name)
  yield from unlisted or ([path] if is_empty else [])


def _is_above(folder: str, name: str) -> bool:
  """Tells whether a name in a folder is a link to a folder on the way there: a loop."""
  link = pathlib.Path(os.path.abspath(folder), name)
  return link.is_symlink() and os.path.realpath(link) in map(os.path.realpath, link.parents)
