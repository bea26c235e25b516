"""Training batches from sources that can only be read in order: shuffled in blocks, augmented.

An epoch comes in splits. They are read one after the other, in an order that each epoch draws anew.
All examples are shuffled in blocks, and a batch is augmented as a whole, like those of record
files: no operation is of one example.

tf.data's `interleave` would mix splits better, but under a data service of TensorFlow 2.15 one with
an inner `repeat` begins its splits again and again.
"""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core.errors import SourceError
from cifar10.data import input_pipeline
from cifar10.data.info import DEPTH, HEIGHT, WIDTH
from cifar10.data.python_source import NOTHING, Chunk

BLOCK = 10_000  # Examples, of 3 KB each.
_ENDLESS = 1 << 62
_NUMBER_BITS = 40  # Of an example's place: its number in its split; above them is the split's.
_MIXER = 0x9E3779B97F4A7C15 - (1 << 64)  # Odd: 2^64 by the golden ratio (Knuth), as an int64.
_NEW = -1  # In place of the handle of a split that is to be begun.

ANSWER = (tf.int64, tf.uint8, tf.int32, tf.int64)  # The types that a `Server` returns.
# Reads a split: a dataset of images, labels and the number of the first of them.
ReadSplit = Callable[[tf.Tensor], tf.data.Dataset]

# As in input_pipeline.py: there is no Python loop or branch here for AutoGraph to convert.
_no_autograph = tf.autograph.experimental.do_not_convert


class PlacedExamples(NamedTuple):
  """Some examples, each with the epoch and the place in it that tell it from all others."""

  images: tf.Tensor  # uint8 [n, 32, 32, 3]
  labels: tf.Tensor  # int32 [n]
  epochs: tf.Tensor  # int64 [n]
  places: tf.Tensor  # int64 [n]


@contextlib.contextmanager
def naming_faults(fault: Callable[[str], str | None]) -> Iterator[None]:
  """Raises SourceError for what went wrong in a source, or else for what `fault` says of it."""
  try:
    yield
  except tf.errors.OpError as error:
    # What Python code raises inside TensorFlow comes out as text.
    found = re.search(r'SourceError: (.*)', error.message)
    said = found[1] if found else fault(error.message)
    if not said:
      raise
    raise SourceError(said) from None


@dataclasses.dataclass
class _Reading:
  chunks: Iterator[Chunk]
  number: int = 0  # How many examples were read.


class Server:
  """Gives a graph the chunks of splits, each split by a handle: for `tf.numpy_function`."""

  def __init__(self, read: Callable[[int, int], Iterator[Chunk]]):
    """`read(split, num_splits)` yields one split."""
    self._read = read
    self._readings: dict[int, _Reading] = {}
    self._handles = itertools.count()

  def __call__(self, handle: int, split: int, num_splits: int) -> tuple[Any, ...]:
    """Begins a split where the handle is -1, or reads on -> handle, images, labels, first number.

    There are no images where the split was only begun, or is over.

    Raises:
      SourceError: as `read` does.
    """
    if handle == _NEW:
      handle = next(self._handles)
      self._readings[handle] = _Reading(self._read(int(split), int(num_splits)))
      return np.int64(handle), *NOTHING, np.int64(0)
    reading = self._readings[int(handle)]
    first, chunk = reading.number, next(reading.chunks, NOTHING)
    reading.number += len(chunk.labels)
    if not len(chunk.labels):
      del self._readings[int(handle)]
    return np.int64(handle), *chunk, np.int64(first)


def from_server(call: Callable[[tf.Tensor, tf.Tensor], Any]) -> ReadSplit:
  """Reads splits by a `Server`, which `call` asks: handle, split -> its answer."""

  def read(split: tf.Tensor) -> tf.data.Dataset:
    handle = call(tf.constant(_NEW, tf.int64), split)[0]

    def draw(_: tf.Tensor) -> tuple[tf.Tensor, ...]:
      _, images, labels, first = call(handle, split)
      images = tf.ensure_shape(images, [None, HEIGHT, WIDTH, DEPTH])
      return images, tf.ensure_shape(labels, [None]), tf.ensure_shape(first, [])

    chunks = tf.data.Dataset.counter().map(draw)
    return chunks.take_while(lambda images, labels, first: tf.shape(labels)[0] > 0)

  return read


@_no_autograph
def examples(read: ReadSplit, num_splits: int, seed: int, first_epoch: Any = 0) -> tf.data.Dataset:
  """Endless epochs, each all splits in an order of its own: elements are `PlacedExamples`."""
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

  # One range, of which a data service gives each number to one data worker.
  return tf.data.Dataset.range(first_epoch * num_splits, _ENDLESS).flat_map(read_element)


@_no_autograph
def batches(
  some: tf.data.Dataset,
  data_set: input_pipeline.RecordDataset,
  *,
  batch_size: int,
  num_examples: int,
  seed: int,
  worker: int = 0,
) -> tf.data.Dataset:
  """Shuffled (and distorted) training batches.

  Args:
    some: from `examples`.
    data_set: says whether and how they are distorted.
    batch_size: examples in every batch.
    num_examples: of an epoch; a block has no more.
    seed: fixes the distortions, and the order if that of `some` is fixed.
    worker: each worker of a cluster draws an order of its own.

  Returns:
    A dataset of (images uint8 [batch_size, 32, 32, 3], labels int32 [batch_size]).
  """
  key = tf.constant([seed, worker], tf.int32)

  def augmented(batch: PlacedExamples) -> tuple[tf.Tensor, tf.Tensor]:
    batch_seed = key
    for number in (batch.epochs[0], batch.places[0]):  # Which no other batch begins with.
      batch_seed = tf.random.experimental.stateless_fold_in(batch_seed, number)
    # Another value in each epoch than in the one before; the first is as good as random.
    first = tf.bitwise.right_shift(batch.places * _MIXER, tf.constant(62, tf.int64))
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
