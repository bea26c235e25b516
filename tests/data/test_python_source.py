"""Examples from a Python function: found, checked, counted, and made batches of."""

import collections
import itertools

import given_sources
import numpy as np
import pytest
import tensorflow as tf
from graphs import first_batches

from cifar10.core import user_code
from cifar10.core.errors import InputError, SourceError
from cifar10.data.augmentation import Augmentation
from cifar10.data.python_source import PythonSource


def source(name, count=None, **more):
  return PythonSource('--source', f'given_sources:{name}', 10, examples_per_epoch=count, **more)


def read(chunks):
  """All numbers of an epoch, whose labels are theirs, and the chunks' sizes."""
  images, labels = zip(*chunks)
  found = given_sources.numbers(np.concatenate(images))
  assert np.concatenate(labels).tolist() == [number % 10 for number in found]
  assert {(each.dtype, *each.shape[1:]) for each in images} == {(np.dtype(np.uint8), 32, 32, 3)}
  assert {each.dtype for each in labels} == {np.dtype(np.int32)}
  return found, [len(each) for each in labels]


@pytest.mark.parametrize(
  'name', ['ones', 'listed', 'batches', 'mixed', 'shards', 'Flow', 'OldFlow', 'into_one_array']
)
def test_each_iteration_is_an_epoch_in_the_functions_order(name):
  """A Flow holds that it is reset once, and read by one at a time."""
  assert source(name, 50).num_examples_per_epoch() == 50
  found = source(name, 96)
  assert found.num_examples_per_epoch() == 96
  for _ in range(2):
    assert read(found.chunks()) == (list(range(96)), [96])


def test_chunks_are_of_512_and_batches_stay_whole():
  """11 x 96 = 1,056. Of batches of 40, 40 and 16 two reach 41; a chunk ends with its epoch."""
  assert read(source('long_flow').chunks())[1] == [512, 512, 32]
  assert read(itertools.islice(source('batches').chunks(most=41), 2))[1] == [80, 16]


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('missing', "has no attribute 'missing'"),
    ('no_function', 'is 7, not a function; name another'),
    ('nothing', 'yields no examples'),
    ('not_iterable', "TypeError: 'int' object is not iterable"),
    ('raises_first', r"example 1 .*: KeyError: 'no such thing' \(.*given_sources.py, line \d+\)"),
    ('no_pair', 'example 1 .*: it is a dict, not .image, label.'),
    ('wrong_dtype', r'example 1 .*: it is float32 \[32, 32, 3\] .*, not uint8 \[32, 32, 3\]'),
    ('below_zero', r'example 1 .*: its label is \[-0\.5  1\.5.*, not probabilities whose sum is 1'),
    ('ones', 'does not say how many examples .* add --examples-per-epoch'),
  ],
)
def test_what_is_refused_at_once(name, message):
  with pytest.raises(InputError, match=f'^--source given_sources:{name}.*{message}'):
    source(name).num_examples_per_epoch()


def test_what_shows_later():
  for name, message in [
    ('wrong_shape', r': example 7 .counted from 1.: it is uint8 \[28, 28\]'),
    ('late_label', r': example 46 .*: its label is 10, not 0 to 9'),
    ('late_row', r': example 8 .* a label float64 \[10\], not .*; to train, all labels may be 10'),
    ('bad_rows', r': example 46 .*: its label is \[40\..*, not probabilities whose sum is 1'),
    ('raises_late', ": example 97 .*: KeyError: 'no such thing' "),
  ]:
    with pytest.raises(SourceError, match=f'^--source given_sources:{name}{message}'):
      list(source(name, 96).chunks())


def test_objects_that_a_python_call_was_given():
  """A function of a module by its place, by which config.json names it; others as they stand."""
  assert user_code.given(given_sources.Flow) == 'given_sources:Flow'
  assert source('OldFlow').num_examples_per_epoch() == 96
  slices = tf.data.Dataset.from_tensor_slices(tuple(map(np.array, zip(*given_sources.ones()))))
  for made in given_sources.Flow(), given_sources.listed(), lambda: [*given_sources.ones()], slices:
    found = PythonSource('--source', user_code.given(made), 10)
    assert repr(found.num_examples_per_epoch()) == '96'  # No tensor, which JSON cannot hold.
    for _ in range(2):
      assert read(found.chunks())[0] == list(range(96))
  with pytest.raises(InputError, match='given:generator is an iterator, which can be read once'):
    PythonSource('--source', user_code.given(given_sources.ones()), 10).num_examples_per_epoch()


def drawn(name, count, batch_size=16, num_examples=96, *, seed=0, worker=0, first=0, **more):
  """So many batches: images and labels."""
  found = source(name, num_examples, **more)

  def batches():
    return found.make_batch(batch_size, seed, worker, tf.constant(first, tf.int64))

  with found.reading():
    return first_batches(batches, count)


def test_batches_are_shuffled_epochs():
  """A block is an epoch: three of 96 are 18 batches of 16."""
  found, sizes = read(drawn('ones', 18))
  assert sizes == [16] * 18
  epochs = [found[start : start + 96] for start in (0, 96, 192)]
  assert [sorted(each) for each in epochs] == [list(range(96))] * 3
  assert len({tuple(each) for each in [*epochs, list(range(96))]}) == 4
  assert found == read(drawn('batches', 18))[0]  # The same again,
  assert found != read(drawn('ones', 18, seed=1))[0]
  assert found != read(drawn('ones', 18, worker=1))[0]
  # and from the next epoch's beginning on, where 1 to 96 examples were used before.
  for first in (16, 96):
    assert read(drawn('ones', 12, first=first))[0] == found[96:]


@pytest.mark.timeout(60)
def test_a_worker_reads_its_shard_or_everything_and_says_if_it_is_empty():
  assert set(read(drawn('shards', 12, worker=1, num_workers=3))[0]) == set(range(1, 96, 3))
  assert set(read(drawn('ones', 18, worker=1, num_workers=3))[0]) == set(range(96))
  # It would look for an example epoch after epoch, and the others would wait for it.
  with pytest.raises(SourceError, match='only_in_shard_0, shard 1 of 2 yields no examples'):
    drawn('only_in_shard_0', 1, worker=1, num_workers=2)


def test_who_begins_anew_leaves_no_reading_behind():
  """As after the loss of a parameter server; a `Flow` takes one reader at a time."""
  found = source('long_flow', 600)
  with tf.Graph().as_default(), found.reading():
    iterator = tf.compat.v1.data.make_initializable_iterator(found.make_batch(8))
    element = iterator.get_next()
    for _ in range(3):
      session = tf.compat.v1.Session()
      for _ in range(2):
        session.run(iterator.initializer)
        for _ in range(5):
          session.run(element)


def test_distortions_are_those_of_the_options():
  """Cut-outs of 8 x 8 in grey, 128, which no class is."""
  batches = drawn('ones', 12, augmentation=Augmentation(crop_padding=0, cutout=8))
  grey = np.concatenate([(images == 128).all(-1) for images, _ in batches])
  assert (grey.sum((1, 2)) == 64).all()
  assert len({each.tobytes() for each in grey}) > 50


def test_alternating_flips():
  """What is mirrored in one epoch is not in the next."""

  def flips(**more):
    found = collections.defaultdict(list)
    augmentation = Augmentation(crop_padding=0, flip='alternating')
    for images, labels in drawn('ones', 18, augmentation=augmentation, **more):
      # The second pixel is 0, and the last but one only of a mirrored image, or of class 0.
      for image in images[labels > 0]:
        is_mirrored = bool(image[0, 30, 0] == 0)
        found[int(image[0, 31 if is_mirrored else 0, 0])].append(is_mirrored)
    return found

  mirrored = flips()
  assert set(map(tuple, mirrored.values())) == {(True, False, True), (False, True, False)}
  for other in (flips(seed=1), flips(worker=1)):
    assert 20 < sum(first for first, *_ in other.values()) < 66  # Of 86.
    assert 20 < sum(mirrored[each] != other[each] for each in mirrored) < 66


def test_labels_may_be_probabilities():
  """Of single examples and of batches; not of an evaluation."""
  for (images, rows), (same, labels) in zip(drawn('probabilities', 6), drawn('ones', 6)):
    np.testing.assert_array_equal(images, same)
    np.testing.assert_allclose(rows, 0.9 * np.eye(10)[labels] + 0.01, rtol=1e-6)
  with pytest.raises(InputError, match=r'label float64 .10., not .* with a whole number'):
    PythonSource('--validation-source', 'given_sources:probabilities', 10).num_examples_per_epoch()


def test_an_evaluation_reads_it_once():
  """Its 11 x 96 = 1,056 examples come in batches of 100; 56 are left."""
  found = source('long_flow', 0)
  assert source('ones', 0).num_examples_per_epoch() == 0  # Which need not be known.
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    batch = tf.compat.v1.data.make_one_shot_iterator(found.one_pass(100)).get_next()
    batches = [session.run(batch) for _ in range(11)]
  images, labels = found.all_examples()
  np.testing.assert_array_equal(found.first_images(600), images[:600])
  assert read(batches) == (given_sources.numbers(images), [100] * 10 + [56])
  assert len(labels) == 1056
