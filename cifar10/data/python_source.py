"""Examples of a Python function in place of record files: --source and --validation-source.

The function's items are checked and copied one by one, and TensorFlow gets some hundred at a time:
they are shuffled in blocks, from which batches are cut, and a batch is augmented as a whole, like
those of record files. No operation of the graph is of one example.
"""

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core.errors import InputError, SourceError
from cifar10.core.logs import log
from cifar10.core.user_code import imported, others_code
from cifar10.data.augmentation import Augmentation, as_strings, augment, pad
from cifar10.data.info import DEPTH, HEIGHT, WIDTH
from cifar10.data.input_pipeline import no_autograph

BLOCK = 10_000  # Examples that are shuffled together, of 3 KB each.
_CHUNK = 512
_SHAPE = (HEIGHT, WIDTH, DEPTH)
_MIXER = 0x9E3779B97F4A7C15 - (1 << 64)  # Odd: 2^64 by the golden ratio (Knuth), as an int64.
_fold_in = tf.random.experimental.stateless_fold_in
_TOLD_AT = 100_000  # Examples of an evaluation; later at twice as many, and so on.


Chunk = tuple[np.ndarray, np.ndarray]  # Images uint8 [n, 32, 32, 3], labels int32 [n].


class Examples(NamedTuple):
  """Some examples, each known again by its epoch and its place in the epoch."""

  images: tf.Tensor  # uint8 [n, 32, 32, 3]
  labels: tf.Tensor  # int32 [n]
  epochs: tf.Tensor  # int64 [n]
  places: tf.Tensor  # int64 [n]


_SIGNATURE = Examples(
  tf.TensorSpec([None, *_SHAPE], tf.uint8),
  tf.TensorSpec([None], tf.int32),
  tf.TensorSpec([None], tf.int64),
  tf.TensorSpec([None], tf.int64),
)


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
    """Imports the function.

    Args:
      flag: the option that names it.
      name: 'package.module:function', or a `user_code.Given`.
      num_classes: labels are below it.
      num_workers: who share an epoch, if the function takes shards; else each reads all of it.
      examples_per_epoch: None: the function's result has a `len`; 0: it need not have one.
      augmentation: of training batches; None: none.

    Raises:
      InputError: it cannot be imported, does not exist, or has other parameters.
    """
    self._said = f'{flag} {name}'
    self._function = imported(flag, name)
    self._takes_shards = callable(self._function) and _takes_shards(self._said, self._function)
    self._num_shards = num_workers if self._takes_shards else 1
    self._num_classes = num_classes
    self._examples_per_epoch = examples_per_epoch
    self._augmentation = augmentation
    self._made: dict[tuple[int, int], Iterable[Any]] = {}  # By shard and number of shards.
    self._reading: Generator[Examples, None, None] | None = None
    self._fault: SourceError | None = None
    self._has_told_length = False

  def num_examples_per_epoch(self) -> int:
    """How many examples an epoch has, 0 if that need not be known; checks the first of them.

    Raises:
      InputError: there is no example, the first one is wrong, or their number is unknown.
    """
    return self._count

  @functools.cached_property
  def _count(self) -> int:
    try:
      _, labels = next(self.chunks(most=1))
    except SourceError as error:
      raise InputError(str(error)) from None
    made = self._made.get((0, 1))
    size = getattr(made, '__len__', None) or getattr(made, 'size', None)  # An older DataFlow's.
    count = self._examples_per_epoch
    with (
      others_code(lambda said: InputError(f'{self._said}: {said}'), self._function),
      contextlib.suppress(NotImplementedError),  # As a DataFlow says that it does not know.
    ):
      count = count or (size() * len(labels) if size else 0)
    if not count and self._examples_per_epoch is None:
      raise InputError(
        f'{self._said} does not say how many examples an epoch has (what it returns has no '
        'len); add --examples-per-epoch'
      )
    return count or 0

  def first_images(self, count: int) -> np.ndarray:
    """The first images in the function's order: uint8 [count or fewer, 32, 32, 3]."""
    images = itertools.chain.from_iterable(images for images, _ in self.chunks())
    return np.stack(list(itertools.islice(images, count)))

  def all_examples(self) -> tuple[np.ndarray, np.ndarray]:
    """One epoch: images uint8 [n, 32, 32, 3] and labels int32 [n], in the function's order."""
    images, labels = zip(*self._whole_epoch())
    return np.concatenate(images), np.concatenate(labels)

  @no_autograph
  def one_pass(self, batch_size: int) -> tf.data.Dataset:
    """One epoch's batches in the function's order; the last one may be smaller."""
    chunks = tf.data.Dataset.from_generator(self._whole_epoch, output_signature=_SIGNATURE[:2])
    return chunks.rebatch(batch_size)

  @no_autograph
  def make_batch(
    self, batch_size: int, seed: int = 0, worker: int = 0, first_example: int | tf.Tensor = 0
  ) -> tf.data.Dataset:
    """Endless shuffled (and augmented) training batches, from the beginning of an epoch on.

    Args:
      batch_size: examples in every batch; blocks and batches run on across the end of an epoch.
      seed: determines augmentation, and the order if the function's is always the same.
      worker: reads its shard, if there are any, and has its own order.
      first_example: how many this worker has used before (a tensor: int64).

    Returns:
      A dataset of (images uint8 [batch_size, 32, 32, 3], labels int32 [batch_size]).
    """
    share = -(-self.num_examples_per_epoch() // self._num_shards)
    key = tf.constant([seed, worker], tf.int32)
    flip_key = tf.random.stateless_uniform([], key, None, None, tf.int64)

    def shuffled(block: Examples) -> Examples:
      block_seed = _fold_in(_fold_in(key, ~block.epochs[0]), block.places[0])
      order = tf.random.experimental.stateless_shuffle(tf.range(tf.size(block.labels)), block_seed)
      return Examples(*(tf.gather(each, order) for each in block))

    def augmented(examples: Examples) -> tuple[tf.Tensor, tf.Tensor]:
      if not self._augmentation:
        return examples.images, examples.labels
      # No other batch begins with these two.
      batch_seed = _fold_in(_fold_in(key, examples.epochs[0]), examples.places[0])
      # Differs from the value of the epoch before. The first is as good as random. It is
      # mixed twice: after a sum alone, two seeds could mirror nearly the same images.
      mixed = examples.places * _MIXER + flip_key
      mixed = tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, np.int64(32)))
      first = tf.bitwise.right_shift(mixed * _MIXER, np.int64(62))
      mirrored = tf.cast(tf.math.floormod(first + examples.epochs, 2), tf.int32)
      padded = as_strings(pad(examples.images, self._augmentation))
      return augment(padded, batch_seed, self._augmentation, mirrored), examples.labels

    chunks = tf.data.Dataset.from_generator(
      functools.partial(self._training, worker),
      output_signature=_SIGNATURE,
      args=[-(-first_example // share)],
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

  def _training(self, worker: int, first_epoch: int) -> Iterator[Examples]:
    """The examples of a worker's epochs, without an end."""
    if self._reading:  # A session that a lost parameter server has ended leaves one half read,
      with contextlib.suppress(ValueError):  # or is reading it this moment;
        self._reading.close()  # and a DataFlow takes one reader at a time.
    self._fault = None
    self._reading = self._epochs(worker % self._num_shards, int(first_epoch))
    return self._reading

  def _epochs(self, shard: int, first_epoch: int) -> Generator[Examples, None, None]:
    for epoch in itertools.count(first_epoch):
      count = 0
      for images, labels in self.chunks(shard, self._num_shards):
        places = count + np.arange(len(labels))
        yield Examples(images, labels, np.full(len(labels), epoch), places)
        count += len(labels)
      if not count:  # Or the next epoch would be asked for, without an end.
        raise self._error(
          f': shard {shard} of {self._num_shards} yields no examples; give each shard some, or '
          'start fewer workers'
        )
      if self._num_shards == 1 and count != self._count and not self._has_told_length:
        self._has_told_length = True
        log.info(
          f'{self._said}: an epoch has {count:,} examples, and training counts {self._count:,} '
          'as one'
        )

  def _whole_epoch(self) -> Iterator[Chunk]:
    """One epoch; tells how many examples there were, by which an endless one shows."""
    count, told_at = 0, _TOLD_AT
    for images, labels in self.chunks():
      count += len(labels)
      if count >= told_at:
        told_at *= 2
        log.info(f'{self._said}: {count:,} examples so far; the evaluation waits for its end')
      yield images, labels

  def chunks(self, shard: int = 0, num_shards: int = 1, most: int = _CHUNK) -> Iterator[Chunk]:
    """Yields images and labels of one epoch of a shard; the function's batches stay whole.

    `most`: how many single examples come together.

    Raises:
      SourceError: the function failed, or an example is wrong; the message has its number.
    """
    part = f', shard {shard} of {num_shards}' if num_shards > 1 else ''
    before = 0
    labels: list[int] = []

    def error(fault: str, place: int = 0) -> SourceError:
      number = before + len(labels) + place + 1
      return self._error(f'{part}: example {number} (counted from 1): {fault}')

    with others_code(error, self._function):
      items = self._items(shard, num_shards)
    while True:
      images, labels = [], []
      with others_code(error, self._function):
        for item in items:
          rows, numbers = _checked(item, self._num_classes, error)
          images.append(rows)
          labels += numbers
          if len(labels) >= most:
            break
      if not labels:
        break
      yield np.concatenate(images).reshape([-1, *_SHAPE]), np.array(labels, np.int32)
      before += len(labels)
    if not before and num_shards == 1:
      raise self._error(
        ' yields no examples; one that returns an iterator must make it anew each time'
      )

  def _items(self, shard: int, num_shards: int) -> Iterator[Any]:
    """An epoch's; the function is called again for each epoch if it returns an iterator."""
    made = self._made.get((shard, num_shards))
    if made is None:
      made = self._function
      if callable(made):
        made = made(shard, num_shards) if self._takes_shards else made()
      if hasattr(made, 'reset_state'):  # tensorpack's DataFlow, which wants it once in a process.
        made.reset_state()
    if hasattr(made, '__iter__'):
      items = iter(made)
    elif hasattr(made, 'get_data'):  # An older DataFlow.
      items = iter(made.get_data())
    else:
      raise self._error(f' returns {made!r:.60}, which cannot be iterated over')
    if items is not made:
      self._made[shard, num_shards] = made
    elif made is self._function:
      raise self._error(' is an iterator, which can be read once; give a function that makes it')
    return items

  def _error(self, said: str) -> SourceError:
    self._fault = SourceError(self._said + said)
    return self._fault


def _takes_shards(said: str, function: Callable[..., Any]) -> bool:
  """Whether a function has the parameters (shard, num_shards); raises InputError for others."""
  try:
    signature = inspect.signature(function)
  except ValueError:  # A function written in C has no signature.
    return False
  parameters = signature.parameters.values()
  stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
  needed = [each for each in parameters if each.default is each.empty and each.kind not in stars]
  if len(needed) == 2 or (not needed and [*signature.parameters][:2] == ['shard', 'num_shards']):
    return True
  if needed:
    raise InputError(
      f'{said} has the parameters {signature}; it must have none, or (shard, num_shards)'
    )
  return False


def _checked(
  item: Any, num_classes: int, error: Callable[..., SourceError]
) -> tuple[np.ndarray, list[int]]:
  """An example, or a batch: uint8 [32 or 32 n, 32, 3], and its labels.

  The image is a copy, because the function may write the next one in its place.
  """
  try:
    image, label = item
  except (TypeError, ValueError):
    parts = f' of {len(item)}' if isinstance(item, (tuple, list)) else ''
    raise error(f'it is a {type(item).__name__}{parts}, not (image, label)') from None
  image, label = np.array(image), np.asarray(label)
  if image.dtype != np.uint8 or image.ndim not in (3, 4) or image.shape[-3:] != _SHAPE:
    raise error(
      f'its image is {image.dtype} {list(image.shape)}, not uint8 {list(_SHAPE)} or a batch of it'
    )
  if label.dtype.kind not in 'iu':
    raise error(f'its label is {label!r:.40}, not a whole number')
  if label.shape != image.shape[:-3]:
    raise error(f'its labels have the shape {list(label.shape)} and its images {list(image.shape)}')
  labels = label.tolist() if label.ndim else [int(label)]
  for place, number in enumerate(labels):
    if not 0 <= number < num_classes:
      raise error(f'its label is {number}, not 0 to {num_classes - 1}', place)
  return (image.reshape(-1, WIDTH, DEPTH) if label.ndim else image), labels
