"""Functions for --source, right and wrong, as users write them."""

import itertools
import json
import os
import struct
import time

import numpy as np

COUNT = 96  # Examples.
LABELS = np.arange(COUNT) % 10


_times = itertools.count()


def image(number):
  """Its number is in its first two pixels, its class in all others."""
  pixels = np.full([32, 32, 3], 20 * (number % 10), np.uint8)
  pixels[0, 0], pixels[0, 1] = number % 256, number // 256
  return pixels


def numbers(images):
  """The numbers of images that are not distorted."""
  return [int(each[0, 0, 0]) + 256 * int(each[0, 1, 0]) for each in images]


def ones():
  for number in range(COUNT):
    yield image(number), int(LABELS[number])


def batches():
  """Of 40, 40 and 16."""
  for start in range(0, COUNT, 40):
    some = range(start, min(start + 40, COUNT))
    yield np.stack([image(number) for number in some]), LABELS[some]


def listed():
  return list(ones())


def shuffled():
  """The examples in another order each time."""
  examples = listed()
  for each in np.random.default_rng(next(_times)).permutation(COUNT):
    yield examples[each]


def shards(shard, num_shards):
  for number in range(shard, COUNT, num_shards):
    yield image(number), LABELS[number]


def long_flow():
  """1,056 examples; one reader at a time, like a `Flow`."""
  return _LongFlow()


class Flow:
  """As tensorpack's DataFlow: to be reset once, one reader at a time, with a length."""

  def __init__(self, shard=0, num_shards=1):
    self._part = shard, num_shards
    self._resets = self._readers = 0

  def reset_state(self):
    self._resets += 1

  def __len__(self):
    return len(range(self._part[0], COUNT, self._part[1]))

  def __iter__(self):
    assert (self._resets, self._readers) == (1, 0)
    self._readers = 1
    try:
      yield from shards(*self._part)
    finally:
      self._readers = 0


exhausted = ones()
no_function = 7


class _LongFlow(Flow):
  def __len__(self):
    return 11 * COUNT

  def __iter__(self):
    assert self._readers == 0
    self._readers = 1
    try:
      for _ in range(11):
        yield from ones()
    finally:
      self._readers = 0


def used_up():
  """The same iterator each time."""
  return exhausted


def nothing():
  return []


def not_iterable():
  return 7


def other_parameters(folder):
  return ones()


def no_pair():
  yield {'image': image(0)}


def wrong_shape():
  yield from list(ones())[:6]
  yield np.zeros([28, 28], np.uint8), 1


def wrong_dtype():
  yield image(0).astype(np.float32), 1


def wrong_label_kind():
  yield image(0), 1.0


def wrong_labels():
  yield np.stack([image(0)] * 3), np.array([1, 2])


def late_label():
  """The second batch's 6th, which is the 46th."""
  for images, labels in batches():
    changed = labels.copy()
    if len(labels) == 40 and images[0, 0, 0, 0] == 40:
      changed[5] = 10
    yield images, changed


def mixed():
  """Numbers 0 to 4, two of them in a batch, with labels of different kinds."""
  yield image(0), 0
  yield np.stack([image(1), image(2)]), np.array([1, 2])
  yield image(3), np.int64(3)
  yield [image(4), np.array(4)]


def wrong_label_between():
  yield from list(ones())[:3]
  yield image(3), True
  yield from ones()


def wrong_and_raises():
  yield from list(ones())[:6]
  yield np.zeros([28, 28], np.uint8), 1
  raise KeyError('no such thing')


def raises_late():
  yield from ones()
  raise KeyError('no such thing')


def raises_first():
  raise KeyError('no such thing')


_calls = itertools.count()


def noted(shard, num_shards):
  """Shards whose images say which process yielded them, by which call; $GIVEN_LOG has them."""
  call = next(_calls)
  with open(os.environ['GIVEN_LOG'], 'a') as file:
    print(json.dumps([os.getpid(), call, shard]), file=file)
  for number in range(shard, COUNT, num_shards):
    pixels = image(number)
    pixels[0, :3] = np.frombuffer(struct.pack('<IIB', os.getpid(), call, number), np.uint8).reshape(
      3, 3
    )
    yield pixels, LABELS[number]


def calls(images):
  """(process, call, number) of images of `noted` that are not distorted."""
  return [struct.unpack('<IIB', each[0, :3].tobytes()) for each in images]


def only_in_shard_0(shard, num_shards):
  return [] if shard else shards(0, num_shards)


def fails_in_shard_1(shard, num_shards):
  for count, item in enumerate(shards(shard, num_shards)):
    if (shard, count) == (1, 3):
      raise RuntimeError('no more')
    yield item


def busy(shard, num_shards):
  time.sleep(600)
  yield from shards(shard, num_shards)
