"""Examples of a Python function in place of record files: --source and --validation-source.

The function's items are checked and copied one by one, and TensorFlow gets some hundred at a time:
they are shuffled in blocks, from which batches are cut, and a batch is augmented as a whole, like
those of record files. No operation of the graph is of one example.
"""

import contextlib
import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.core.errors import InputError, SourceError
from cifar10.core.user_code import imported, others_code
from cifar10.data.augmentation import Augmentation, as_strings, augment, fold_in, pad
from cifar10.data.input_pipeline import no_autograph
from cifar10.data.manifest import DEPTH, HEIGHT, WIDTH

BLOCK = 10_000  # Examples that are shuffled together, of 3 KB each.
_CHUNK = 512
_SHAPE = (HEIGHT, WIDTH, DEPTH)

# Images uint8 [n, 32, 32, 3], labels int32 [n] or probabilities float32 [n, classes].
Chunk = tuple[np.ndarray, np.ndarray]


class PythonSource:
  """What a function yields, with the methods that `Cifar10DataSet` has for a split of records."""

  def __init__(
    self,
    flag: str,
    name: str,
    num_classes: int,
    *,
    num_workers: int = 1,
    examples_per_epoch: int | None = None,
    augmentation: Augmentation | None = None,
  ):
    """Imports the function that a flag names; raises InputError where that fails.

    Args:
      flag, name: '--source' and 'package.module:function', or a `user_code.Given`.
      num_classes: labels are below it.
      num_workers: who share an epoch, if the function takes shards; else each reads all of it.
      examples_per_epoch: None: the function's result has a `len`; 0: it need not have one.
      augmentation: of training batches; None: none.
    """
    self._said = f'{flag} {name}'
    self._function = imported(flag, name)
    self._takes_shards = False
    with contextlib.suppress(TypeError, ValueError):  # An object, or written in C: no signature.
      names = [*inspect.signature(self._function).parameters]
      self._takes_shards = names[:2] == ['shard', 'num_shards']
    self._num_shards = num_workers if self._takes_shards else 1
    self._num_classes = num_classes
    self._examples_per_epoch = examples_per_epoch
    self._augmentation = augmentation
    # Kinds of dtype that labels may have: whole numbers or, to train on, floats (probabilities).
    # The first label settles which.
    self._kinds = 'iuf' if flag == '--source' else 'iu'
    self.num_examples_per_epoch = functools.cache(self._counted)
    self._made: dict[tuple[int, int], Any] = {}  # By shard and number of shards.
    self._reading: Generator[tuple[np.ndarray, ...], None, None] | None = None
    self._fault: SourceError | None = None

  def _counted(self) -> int:
    """How many examples an epoch has; 0 if that need not be known. Checks the first one."""
    try:
      _, labels = next(self.chunks(most=1))
    except SourceError as error:
      raise InputError(str(error)) from None
    count = self._examples_per_epoch
    failed = others_code(lambda said: InputError(f'{self._said}: {said}'), self._function)
    made = self._made.get((0, 1))
    # An older DataFlow has size(); int() is 0, for what has neither.
    size = getattr(made, '__len__', getattr(made, 'size', int))
    # So say a DataLoader and a DataFlow that they do not know.
    with failed, contextlib.suppress(TypeError, NotImplementedError):
      count = count or int(size() * len(labels))  # A tf.data.Dataset's is a tensor.
    if not count and self._examples_per_epoch is None:
      raise InputError(
        f'{self._said} does not say how many examples an epoch has (what it returns has no '
        'len); add --examples-per-epoch'
      )
    return count or 0

  def first_images(self, count: int) -> np.ndarray:
    """The first images in the function's order: uint8 [count or fewer, 32, 32, 3]."""
    return next(self.chunks(most=count))[0][:count]

  def all_examples(self) -> Chunk:
    """One epoch: images and labels, in the function's order."""
    return next(self.chunks(most=sys.maxsize))

  @no_autograph
  def one_pass(self, batch_size: int) -> tf.data.Dataset:
    """One epoch's batches in the function's order; the last one may be smaller."""
    chunks = tf.data.Dataset.from_generator(self.chunks, output_signature=self._signature()[:2])
    return chunks.rebatch(batch_size)

  def _signature(self) -> tuple[tf.TensorSpec, ...]:
    """A chunk's, of n examples, and of each example's epoch and place in it."""
    row, dtype = ([self._num_classes], tf.float32) if self._kinds == 'f' else ([], tf.int32)
    images, places = tf.TensorSpec([None, *_SHAPE], tf.uint8), tf.TensorSpec([None], tf.int64)
    return images, tf.TensorSpec([None, *row], dtype), places, places

  @no_autograph
  def make_batch(
    self, batch_size: int, seed: int = 0, worker: int = 0, first_example: int | tf.Tensor = 0
  ) -> tf.data.Dataset:
    """As `Cifar10DataSet.make_batch`, but from the beginning of an epoch of the source on.

    A block of 10,000 examples, or an epoch of fewer, is shuffled at a time. Blocks and batches run
    on across the end of an epoch. A worker reads its shard, if there are any.
    """
    share = -(-self.num_examples_per_epoch() // self._num_shards)
    key = tf.constant([seed, worker], tf.int32)
    mirrored_first = tf.random.stateless_uniform([share], key, 0, 2, tf.int32)

    def shuffled(*block: tf.Tensor) -> tuple[tf.Tensor, ...]:
      *_, epochs, places = block
      block_seed = fold_in(fold_in(key, ~epochs[0]), places[0])
      order = tf.random.experimental.stateless_shuffle(tf.range(tf.size(places)), block_seed)
      return tuple(tf.gather(each, order) for each in block)

    def augmented(
      images: tf.Tensor, labels: tf.Tensor, epochs: tf.Tensor, places: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
      if not self._augmentation:
        return images, labels
      batch_seed = fold_in(fold_in(key, epochs[0]), places[0])  # No other batch begins with them.
      alternating = (tf.gather(mirrored_first, places % share) + tf.cast(epochs, tf.int32)) % 2
      padded = as_strings(pad(images, self._augmentation))
      return augment(padded, batch_seed, self._augmentation, alternating), labels

    def training(first_epoch: np.int64) -> Iterator[tuple[np.ndarray, ...]]:
      if self._reading:  # A session that a lost parameter server has ended leaves one half read,
        with contextlib.suppress(ValueError):  # or is reading it this moment;
          self._reading.close()  # and a DataFlow takes one reader at a time.
      self._fault = None
      self._reading = self._epochs(worker % self._num_shards, int(first_epoch))
      return self._reading

    chunks = tf.data.Dataset.from_generator(
      training, output_signature=self._signature(), args=[-(-first_example // share)]
    )
    blocks = chunks.rebatch(min(BLOCK, share), drop_remainder=True)
    # The next block is read while batches are cut from this one.
    batches = blocks.map(shuffled).prefetch(1).rebatch(batch_size, drop_remainder=True)
    return batches.map(augmented, num_parallel_calls=tf.data.AUTOTUNE)

  @contextlib.contextmanager
  def reading(self) -> Iterator[None]:
    """A context in which datasets are read; raises SourceError where the function fails."""
    try:
      yield
    except tf.errors.OpError:  # TensorFlow passes an error of Python's on as a text.
      if not self._fault:
        raise
      raise self._fault from None

  def _epochs(self, shard: int, first_epoch: int) -> Generator[tuple[np.ndarray, ...], None, None]:
    """Yields the examples of a shard's epochs, without an end."""
    for epoch in itertools.count(first_epoch):
      count = 0
      for images, labels in self.chunks(shard, self._num_shards):
        places = count + np.arange(len(labels))
        yield images, labels, np.full(len(labels), epoch), places
        count += len(labels)

  def chunks(self, shard: int = 0, num_shards: int = 1, most: int = _CHUNK) -> Iterator[Chunk]:
    """Yields images and labels of one epoch of a shard; the function's batches stay whole.

    `most`: how many single examples come together. Raises SourceError, with the number of the
    example, where the function failed or an example is wrong.
    """
    part = f', shard {shard} of {num_shards}' if num_shards > 1 else ''
    images: list[np.ndarray] = []
    labels: list[int | np.ndarray] = []
    before = 0

    def error(fault: str) -> SourceError:
      number = before + len(labels) + 1
      return self._error(f'{part}: example {number} (counted from 1): {fault}')

    def chunk() -> Chunk:
      dtype = np.float32 if self._kinds == 'f' else np.int32
      return np.concatenate(images), np.array(labels, dtype)

    with others_code(error, self._function):
      for item in self._items(shard, num_shards):
        pixels, found = self._checked(item, error)
        for label in found:
          if isinstance(label, int):
            if not 0 <= label < self._num_classes:
              raise error(f'its label is {label}, not 0 to {self._num_classes - 1}')
          elif not (label.min() >= 0 and abs(label.sum() - 1) < 0.01):
            raise error(f'its label is {label!s:.70}, not probabilities whose sum is 1')
          labels.append(label)
        images.append(pixels)
        if len(labels) >= most:
          yield chunk()
          before += len(labels)
          images, labels = [], []
    if labels:
      yield chunk()
    elif not before:  # Or a training would ask for the next epoch, without an end.
      raise self._error(
        f'{part} yields no examples; an iterator must be made anew each time, and with fewer '
        'workers each shard has more'
      )

  def _items(self, shard: int, num_shards: int) -> Iterator[object]:
    """An epoch's; the function is called again for each epoch if it returns an iterator."""
    made = self._made.get((shard, num_shards))
    if made is None:
      arguments = (shard, num_shards) if self._takes_shards else ()
      made = self._function(*arguments) if callable(self._function) else self._function
      if hasattr(made, 'reset_state'):  # tensorpack's DataFlow, which wants it once in a process.
        made.reset_state()
    is_older = hasattr(made, 'get_data') and not hasattr(made, '__iter__')  # An older DataFlow.
    items: Iterator[object] = iter(made.get_data() if is_older else made)
    if items is self._function:
      raise self._error(' is an iterator, which can be read once; give a function that makes it')
    if items is not made:
      self._made[shard, num_shards] = made
    return items

  def _checked(
    self, item: object, error: Callable[[str], SourceError]
  ) -> tuple[np.ndarray, Iterable[int | np.ndarray]]:
    """An example, or a batch: a copy, uint8 [n, 32, 32, 3], and its labels, numbers or rows."""
    if not isinstance(item, (tuple, list)) or len(item) != 2:
      raise error(f'it is a {type(item).__name__}, not (image, label)')
    # A copy, because the function may write the next image in its place.
    image, label = np.array(item[0]), np.asarray(item[1])
    is_image = image.dtype == np.uint8 and image.ndim in (3, 4) and image.shape[-3:] == _SHAPE
    kind = label.dtype.kind
    row = [self._num_classes] if kind == 'f' else []
    if not is_image or kind not in self._kinds or label.shape != (*image.shape[:-3], *row):
      raise error(
        f'it is {image.dtype} {list(image.shape)} with a label {label.dtype} {list(label.shape)}, '
        f'not uint8 {list(_SHAPE)} with a whole number, or a batch of such; to train, all labels '
        f'may be {self._num_classes} probabilities each'
      )
    self._kinds = 'f' if row else 'iu'
    labels = label.astype(np.float32).reshape(-1, *row) if row else label.ravel().tolist()
    return image.reshape(-1, *_SHAPE), labels

  def _error(self, said: str) -> SourceError:
    self._fault = SourceError(self._said + said)
    return self._fault
