"""Training batches from sources that can only be read in order: shuffled in blocks, augmented.

An epoch comes in splits. They are read one after the other, in an order that each epoch draws anew.
All examples are shuffled in blocks, and a batch is augmented as a whole, like those of record
files: no operation is of one example.

tf.data's `interleave` would mix splits better, but under a data service of TensorFlow 2.15 one with
an inner `repeat` restarts its splits again and again.
"""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core.errors import SourceError
from cifar10.data import input_pipeline
from cifar10.data.info import DEPTH, HEIGHT, WIDTH
from cifar10.data.python_source import NOTHING, Chunk

BLOCK = 10_000  # Examples, of 3 KB each.
_ENDLESS = 1 << 62
_NUMBER_BITS = 40  # Of an example's place: its number in its split; the split's is above.
_MIXER = 0x9E3779B97F4A7C15 - (1 << 64)  # Odd: 2^64 by the golden ratio (Knuth), as an int64.
# Each training that has ended leaves one behind. Time tells nothing: a paused one reads on later.
_READINGS = 64
_NEW = -1  # In place of a handle, to begin a split.

ANSWER = (tf.int64, tf.uint8, tf.int32, tf.int64)  # The types that a `Server` returns.
# Reads a split: a dataset of images, labels and the number of the first image.
ReadSplit = Callable[[tf.Tensor], tf.data.Dataset]


class PlacedExamples(NamedTuple):
  """Some examples, each identified by its epoch and its place in the epoch."""

  images: tf.Tensor  # uint8 [n, 32, 32, 3]
  labels: tf.Tensor  # int32 [n]
  epochs: tf.Tensor  # int64 [n]
  places: tf.Tensor  # int64 [n]


@contextlib.contextmanager
def naming_faults(fault: Callable[[str], str | None]) -> Iterator[None]:
  """Raises SourceError for an error in a source, or else with the message that `fault` returns."""
  try:
    yield
  except tf.errors.OpError as error:
    # TensorFlow passes errors of Python code on as text.
    match = re.search(r'SourceError: (.*)', error.message)
    message = match[1] if match else fault(error.message)
    if not message:
      raise
    raise SourceError(message) from None


@dataclasses.dataclass
class _Reading:
  chunks: Generator[Chunk, None, None]
  number: int = 0  # How many examples have been read.


class Server:
  """Serves the chunks of splits to a graph through `tf.numpy_function`; a handle for each split."""

  def __init__(
    self, read: Callable[[int, int], Generator[Chunk, None, None]], most: int = _READINGS
  ):
    """Args:
    read: read(split, num_splits) yields the chunks of a split.
    most: of so many splits that are read, beginning another ends the one not read for longest: its
      rest is lost. 1: a session that a lost parameter server has ended leaves its split half read.
    """
    self._read, self._most = read, most
    self._readings: dict[int, _Reading] = {}
    self._handles = itertools.count()

  def __call__(self, handle: int, split: int, num_splits: int) -> tuple[Any, ...]:
    """Begins a split (handle -1) or reads on; returns handle, images, labels, first number.

    There are no images when the split was only begun, or has ended.

    Raises:
      SourceError: raised by `read`.
    """
    first, chunk = 0, NOTHING
    if handle == _NEW:
      while len(self._readings) >= self._most:
        with contextlib.suppress(SourceError):
          self._readings.pop(next(iter(self._readings))).chunks.close()
      handle = next(self._handles)
      self._readings[handle] = _Reading(self._read(int(split), int(num_splits)))
    elif reading := self._readings.pop(int(handle), None):  # None: too many others were begun.
      first, chunk = reading.number, next(reading.chunks, NOTHING)
      reading.number += len(chunk.labels)
      if len(chunk.labels):
        self._readings[int(handle)] = reading  # The last of them now.
    return np.int64(handle), *chunk, np.int64(first)


def from_server(call: Callable[[tf.Tensor, tf.Tensor], Any]) -> ReadSplit:
  """Returns a reader of splits through a `Server`, which `call` calls: handle, split -> answer."""

  def read(split: tf.Tensor) -> tf.data.Dataset:
    handle = call(tf.constant(_NEW, tf.int64), split)[0]

    def draw(_: tf.Tensor) -> tuple[tf.Tensor, ...]:
      _, images, labels, first = call(handle, split)
      images = tf.ensure_shape(images, [None, HEIGHT, WIDTH, DEPTH])
      return images, tf.ensure_shape(labels, [None]), tf.ensure_shape(first, [])

    chunks = tf.data.Dataset.counter().map(draw)
    return chunks.take_while(lambda images, labels, first: tf.shape(labels)[0] > 0)

  return read


@input_pipeline.no_autograph
def examples(read: ReadSplit, num_splits: int, seed: int, first_split: Any = 0) -> tf.data.Dataset:
  """Returns endless epochs of `PlacedExamples`; each epoch has all splits in its own order.

  `first_split`, which may be a tensor, counts those of all epochs before.
  """
  key = tf.constant([seed, 0], tf.int32)

  def read_element(element: tf.Tensor) -> tf.data.Dataset:
    epoch = element // num_splits
    epoch_seed = tf.random.experimental.stateless_fold_in(key, epoch)
    order = tf.random.experimental.stateless_shuffle(
      tf.range(num_splits, dtype=tf.int64), epoch_seed
    )
    split = order[element % num_splits]

    def described(images: tf.Tensor, labels: tf.Tensor, first: tf.Tensor) -> PlacedExamples:
      count = tf.size(labels, tf.int64)
      places = split * (1 << _NUMBER_BITS) + first + tf.range(count)
      return PlacedExamples(images, labels, tf.fill([count], epoch), places)

    return read(split).map(described)

  # One range; a data service gives each of its numbers to one data worker.
  return tf.data.Dataset.range(first_split, _ENDLESS).flat_map(read_element)


@input_pipeline.no_autograph
def batches(
  some: tf.data.Dataset,
  data_set: input_pipeline.RecordDataset,
  *,
  batch_size: int,
  num_examples: int,
  seed: int,
  worker: int = 0,
) -> tf.data.Dataset:
  """Returns shuffled (and augmented) training batches.

  Args:
    some: returned by `examples`.
    data_set: has the options of augmentation.
    batch_size: examples in every batch.
    num_examples: of an epoch; a block has no more.
    seed: fixes the distortions, and the order if that of `some` is fixed.
    worker: each worker of a cluster draws an order of its own.

  Returns:
    A dataset of (images uint8 [batch_size, 32, 32, 3], labels int32 [batch_size]).
  """
  key = tf.constant([seed, worker], tf.int32)
  flip_key = tf.random.stateless_uniform([], key, None, None, tf.int64)

  def augmented(batch: PlacedExamples) -> tuple[tf.Tensor, tf.Tensor]:
    batch_seed = key
    for number in (batch.epochs[0], batch.places[0]):  # No other batch begins with these two.
      batch_seed = tf.random.experimental.stateless_fold_in(batch_seed, number)
    # Differs from the value of the epoch before. The first is as good as random. It is
    # mixed twice: after a sum alone, two seeds could mirror nearly the same images.
    mixed = batch.places * _MIXER + flip_key
    mixed = tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, np.int64(32)))
    first = tf.bitwise.right_shift(mixed * _MIXER, np.int64(62))
    is_mirrored = tf.math.floormod(first + batch.epochs, 2)
    images = data_set.distort_batch(batch.images, batch_seed, tf.cast(is_mirrored, tf.int32))
    return images, batch.labels

  def shuffled(block: PlacedExamples) -> PlacedExamples:
    block_seed = tf.random.experimental.stateless_fold_in(key, ~block.epochs[0])
    block_seed = tf.random.experimental.stateless_fold_in(block_seed, block.places[0])
    order = tf.random.experimental.stateless_shuffle(tf.range(tf.size(block.labels)), block_seed)
    return PlacedExamples(*(tf.gather(each, order) for each in block))

  blocks = some.rebatch(min(BLOCK, num_examples), drop_remainder=True)
  # The next block is read while batches are cut from this one.
  whole = blocks.map(shuffled).prefetch(1).rebatch(batch_size, drop_remainder=True)
  return whole.map(augmented, num_parallel_calls=tf.data.AUTOTUNE)
