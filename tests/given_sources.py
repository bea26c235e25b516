"""Functions for --source, right and wrong, as users write them."""

import itertools
import time

import numpy as np
import tensorflow as tf

COUNT = 96  # Examples.
LABELS = np.arange(COUNT) % 10
no_function = 7


def image(number):
  """Its number is in its first two pixels, its class in all others."""
  pixels = np.full([32, 32, 3], 20 * (number % 10), np.uint8)
  pixels[0, 0], pixels[0, 1] = number % 256, number // 256
  return pixels


def numbers(images):
  """The numbers of images that are not distorted."""
  return [int(each[0, 0, 0]) + 256 * int(each[0, 1, 0]) for each in images]


def shards(shard, num_shards):
  for number in range(shard, COUNT, num_shards):
    yield image(number), LABELS[number]


def ones():
  for number in range(COUNT):
    yield image(number), int(LABELS[number])


def probabilities():
  for number in range(COUNT):
    yield image(number), 0.9 * np.eye(10)[LABELS[number]] + 0.01


def listed():
  return list(ones())


def batches():
  """Of 40, 40 and 16."""
  for start in range(0, COUNT, 40):
    some = range(start, min(start + 40, COUNT))
    yield np.stack([image(number) for number in some]), LABELS[some]


def mixed():
  """Single examples and batches, with labels of different kinds."""
  yield image(0), 0
  yield np.stack([image(1), image(2)]), np.array([1, 2])
  yield image(3), np.int64(3)
  for number in range(4, COUNT):
    yield [image(number), np.array(number % 10)]


class OldFlow:
  """As tensorpack's older DataFlow: to be reset once, one reader at a time, with a size."""

  def __init__(self, shard=0, num_shards=1):
    self._part = shard, num_shards
    self._resets = self._readers = 0

  def reset_state(self):
    self._resets += 1

  def size(self):
    return len(range(self._part[0], COUNT, self._part[1]))

  def get_data(self):
    assert (self._resets, self._readers) == (1, 0)
    self._readers = 1
    try:
      yield from shards(*self._part)
    finally:
      self._readers = 0


class Flow(OldFlow):
  """As its newer one."""

  def __len__(self):
    return self.size()

  def __iter__(self):
    return self.get_data()


def long_flow():
  """1,056 examples; one reader at a time, like any `Flow`."""
  return _LongFlow()


class _LongFlow(Flow):
  def get_data(self):
    for _ in range(11):
      yield from super().get_data()


def into_one_array():
  """Each image, label and batch in the memory of the one before."""
  pixels, label = np.zeros([32, 32, 3], np.uint8), np.zeros([], np.int64)
  block, labels = np.zeros([2, 32, 32, 3], np.uint8), np.zeros([2], np.int64)
  for start in range(0, COUNT, 6):
    for number in (start, start + 1):
      pixels[...], label[...] = image(number), number % 10
      yield pixels, label
    for first in (start + 2, start + 4):
      block[...], labels[...] = [image(first), image(first + 1)], LABELS[first : first + 2]
      yield from [(block, labels)] if first % 4 else zip(block, labels)


_times = itertools.count()


def shuffled():
  """The examples in another order each time, which it reads eagerly."""
  examples = listed()
  order = np.random.default_rng(next(_times)).permutation(COUNT)
  for each in tf.data.Dataset.from_tensor_slices(order).as_numpy_iterator():
    yield examples[each]


def stuck():
  """Gives what some steps need, and then nothing."""
  for number in range(1024):
    yield image(number), number % 10
  time.sleep(600)


def nothing():
  return []


def only_in_shard_0(shard, num_shards):
  return [] if shard else shards(0, num_shards)


def not_iterable():
  return 7


def raises_first():
  raise KeyError('no such thing')


def raises_late():
  yield from ones()
  raise KeyError('no such thing')


def no_pair():
  yield {'image': image(0)}


def wrong_dtype():
  yield image(0).astype(np.float32), 1


def wrong_shape():
  yield from listed()[:6]
  yield np.zeros([28, 28], np.uint8), 1


def late_row():
  yield from itertools.islice(ones(), 7)
  yield image(7), np.eye(10)[7]


def bad_rows():
  """The second batch's 6th, which is the 46th, has no sum of 1."""
  for start in (0, 40):
    rows = np.eye(10)[LABELS[start : start + 40]]
    rows[5, 0] += start
    yield np.stack([image(start + number) for number in range(40)]), rows


def below_zero():
  yield image(0), [-0.5, 1.5] + 8 * [0.0]


def late_label():
  """The second batch's 6th, which is the 46th."""
  for images, labels in batches():
    changed = labels.copy()
    if len(labels) == 40 and images[0, 0, 0, 0] == 40:
      changed[5] = 10
    yield images, changed
