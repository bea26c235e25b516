"""Predicts images with a trained network, as a stream with a few hundred in memory."""

import collections
import contextlib
import csv
import glob
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core import files, logs
from cifar10.core.errors import InputError, SomeFailedError, StorageError
from cifar10.core.logs import log
from cifar10.data import image_files, input_pipeline, records
from cifar10.job.run import Run
from cifar10.training import evaluator
from cifar10.training.estimator import inference_estimator, with_checkpoint
from cifar10.training.inference import CLASSES, IMAGES, PROBABILITIES

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
  classes, split = run.data.classes, run.options.subset
  if split:
    pixels, labels = evaluator.held_out(run, split).all_examples()
    count: int | None = len(labels)

    def read() -> Iterator[Image]:
      for index, label in enumerate(labels):
        yield Image({'index': index, 'label': classes[label]}, pixels[index])
  else:
    paths = list(each_file(names))
    count = None if any(path.endswith('.npy') for path in paths) else len(paths)

    def read() -> Iterator[Image]:
      return itertools.chain.from_iterable(image_files.read_ahead(images_of, paths))

  def begun(checkpoint: str) -> tuple[Any, list[Result]]:
    results = predict(inference_estimator(run), read, count, checkpoint, classes)
    return results, list(itertools.islice(results, 1))  # The first one reads the checkpoint.

  results, first = with_checkpoint(run, begun)
  return _answers(results, itertools.chain(first, results), out, classes)


def _answers(
  closed: Any, results: Iterable[Result], out: str, classes: Sequence[str]
) -> Iterator[Result]:
  """As `run`; whatever ends it, the graph of what is then `closed` is no longer the default."""
  failed: list[bool] = []
  right: list[bool] = []  # Of the labelled images.

  def counted() -> Iterator[Result]:
    for result in results:
      failed.append('error' in result)
      if 'label' in result:
        right.append(result['label'] == result['class'])
      yield result

  with contextlib.closing(closed):
    if not out:
      yield from counted()
    else:
      write(counted(), out, classes)
      accuracy = {'accuracy': round(float(np.mean(right)), 6)} if right else {}
      yield {'out': out, 'images': len(failed), 'unreadable': sum(failed), **accuracy}
  if any(failed):
    raise SomeFailedError(
      f'{sum(failed):,} of {len(failed):,} images could not be read; their lines of the result say '
      'why'
    )


def predict(
  estimator: Any,
  read: Callable[[], Iterator[Image]],
  count: int | None,
  checkpoint: str,
  classes: Sequence[str],
) -> Iterator[Result]:
  """Classifies the images that `read` yields, `count` if that is known, as they come."""
  waiting: collections.deque[Image] = collections.deque()  # Sent to the network, not answered yet.
  resized = 0

  def features() -> Iterator[dict[str, np.ndarray]]:  # In a thread of tf.data's.
    for image in read():
      waiting.append(image)
      yield {IMAGES: image.pixels}

  def input_fn() -> Any:
    signature = {IMAGES: tf.TensorSpec(_SHAPE, tf.uint8)}
    images = tf.data.Dataset.from_generator(features, output_signature=signature)
    return input_pipeline.without_autotune(images.batch(_BATCH))

  with logs.images_bar(count, 'predicting', disable=not sys.stderr.isatty()) as bar:
    for answer in estimator.predict(input_fn, checkpoint_path=checkpoint):
      image = waiting.popleft()
      resized += image.size != _SHAPE[:2]
      bar.update()
      if image.error:
        yield {**image.name, 'error': image.error}
      else:
        rounded = [round(float(each), 6) for each in answer[PROBABILITIES]]
        probabilities = dict(zip(classes, rounded))
        yield {**image.name, 'class': classes[answer[CLASSES]], 'probabilities': probabilities}
  if resized:
    log.info('%s images were resized to 32x32 pixels', f'{resized:,}')


def write(results: Iterable[Result], path: str, classes: Sequence[str]) -> None:
  """Writes results into a file, whole or not at all.

  Args:
    results: from `predict`.
    path: .jsonl has the results as they are printed; .csv the columns `file`, or `index` and
      `label`, `class`, `error` and one of probabilities for each class; .npz the arrays
      `predictions` int64 [n] (-1: not read), `probabilities` float32 [n, classes], `class_names`,
      and `files` or `labels` int64 [n].
    classes: their names, by label.

  Raises:
    StorageError: it cannot be written.
  """
  try:
    with files.writing(path) as file:
      if path.endswith('.npz'):
        _write_arrays(file, results, classes)
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
    name = ['index', 'label'] if 'label' in result else ['file']
    if number == 0:
      columns = [f'probability of {each}' for each in classes]
      table.writerow([*name, 'class', 'error', *columns])
    probabilities = result.get('probabilities', dict.fromkeys(classes)).values()
    given = [result.get(column) for column in (*name, 'class', 'error')]
    table.writerow([*given, *probabilities])
  text.detach()


def _write_arrays(file: IO[bytes], results: Iterable[Result], classes: Sequence[str]) -> None:
  label_of = {name: label for label, name in enumerate(classes)}
  unknown = dict.fromkeys(classes, np.nan)
  names, predictions, probabilities = [], [], []
  kind = 'files'
  for result in results:
    kind = 'labels' if 'label' in result else 'files'
    names.append(label_of[result['label']] if kind == 'labels' else result['file'])
    predictions.append(label_of.get(result.get('class', ''), -1))
    probabilities.append([*result.get('probabilities', unknown).values()])
  content = io.BytesIO()  # A failed writer of zip files would fail once more at its end.
  np.savez(
    content,
    predictions=np.array(predictions, np.int64),
    probabilities=np.array(probabilities, np.float32),
    class_names=np.array(classes),
    **{kind: np.array(names)},
  )
  file.write(content.getbuffer())


def images_of(path: str) -> Iterable[Image]:
  """The image of a file, or those of a .npy file's array uint8 [n, 32, 32, 3], one by one."""
  if path.endswith('.npy') and os.path.isfile(path):  # No pipe, which would never end.
    return _images_of_array(path)
  try:
    pixels, size = image_files.read_image(path)
  except (InputError, StorageError) as error:
    return [_unread(path, logs.one_line(str(error)))]
  return [Image({'file': path}, pixels, size)]


def _images_of_array(path: str) -> Iterator[Image]:
  try:
    images = np.load(path, mmap_mode='r', allow_pickle=False)
    if images.dtype != np.uint8 or images.shape[1:] != _SHAPE:
      raise ValueError(f'it is {images.dtype} {list(images.shape)}')
    for index, pixels in enumerate(images):
      yield Image({'file': f'{path}[{index}]'}, np.array(pixels))
  except Exception as error:  # numpy raises many kinds for a damaged file.
    fault = f'images {path} must be a .npy file of an array uint8 [n, 32, 32, 3] ({error})'
    yield _unread(path, fault)


def _unread(path: str, error: str) -> Image:
  return Image({'file': path}, np.zeros(_SHAPE, np.uint8), error=error)


def each_file(names: Iterable[str]) -> Iterator[str]:
  """Yields the files of each name in sorted order.

  A folder stands for all files in and below it, also behind links, without hidden ones. A name that
  exists is no pattern. A name of nothing at all is yielded as it is, and fails when it is read.
  """
  for name in names:
    found = [name] if os.path.lexists(name) else sorted(glob.glob(name, recursive=True))
    # A pattern may match a folder and files in it.
    yield from dict.fromkeys(itertools.chain.from_iterable(map(_files_in, found or [name])))


def _files_in(path: str) -> Iterator[str]:
  """Yields the files in and below a folder, then what cannot be listed; for no file the path."""
  is_empty = True
  seen: set[str] = set()  # Links may lead back.
  unlisted: list[str] = []  # The path itself, where it is no folder.
  walk = os.walk(path, onerror=lambda error: unlisted.append(error.filename), followlinks=True)
  for folder, folders, names in walk:
    real = os.path.realpath(folder)
    folders[:] = [] if real in seen else sorted(filter(_is_shown, folders))
    for name in [] if real in seen else sorted(filter(_is_shown, names)):
      is_empty = False
      yield os.path.join(folder, name)
    seen.add(real)
  yield from unlisted or ([path] if is_empty else [])


def _is_shown(name: str) -> bool:
  return not name.startswith('.')
