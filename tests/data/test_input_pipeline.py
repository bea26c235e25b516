"""The input pipeline: every example once, each image its own offsets, the same batches again."""

import numpy as np
import pytest
import tensorflow as tf
from graphs import run

from cifar10.core import user_code
from cifar10.core.errors import InputError
from cifar10.data import input_pipeline, manifest, records
from cifar10.options.hparams import Augmentation

pytestmark = pytest.mark.usefixtures('graph')

NUM_TRAIN = 23


@pytest.fixture(scope='module')
def numbered(tmp_path_factory):
  """Record files whose image i has every byte i; labels i mod 10; 23, 5 and 7 examples."""
  folder = tmp_path_factory.mktemp('numbered')
  for split, first, count in [('train', 0, NUM_TRAIN), ('validation', 100, 5), ('eval', 200, 7)]:
    numbers = np.arange(first, first + count, dtype=np.uint8)
    images = np.repeat(numbers[:, np.newaxis], records.IMAGE_BYTES, axis=1)
    records.write_records(manifest.record_path(str(folder), split), images, numbers % 10)
  return str(folder)


def take(batches, count):
  """The first `count` elements, or all where there are fewer, as NumPy."""
  batch = tf.compat.v1.data.make_one_shot_iterator(batches.take(count)).get_next()
  taken = []
  with tf.compat.v1.Session() as session:
    while True:
      try:
        taken.append(session.run(batch))
      except tf.errors.OutOfRangeError:
        return taken


def numbers_of(batches, count):
  return np.concatenate([images[:, 16, 16, 0] for images, _ in take(batches, count)])


def test_names_its_files_and_counts_their_examples(numbered):
  data_set = input_pipeline.Cifar10DataSet(numbered, 'train+validation')
  names = [f'{numbered}/{split}.tfrecords' for split in ('train', 'validation')]
  assert data_set.get_filenames() == names
  assert data_set.num_examples_per_epoch() == NUM_TRAIN + 5


def test_colour_planes_are_red_green_blue(tmp_path):
  planes = np.uint8(np.arange(records.IMAGE_BYTES) // 12)[np.newaxis]
  records.write_records(manifest.record_path(str(tmp_path), 'eval'), planes, [0])
  [(images, _)] = take(input_pipeline.Cifar10DataSet(str(tmp_path), 'eval').one_pass(1), 2)
  # Row 3, column 4: 3 x 32 + 4 = 100 in each plane of 1,024; twelfths of 100, 1,124 and 2,148.
  assert images[0, 3, 4].tolist() == [8, 93, 179]


@pytest.mark.parametrize('batch_size', [1, 3, 100])
def test_evaluation_sees_every_example_once(numbered, batch_size):
  batches = input_pipeline.Cifar10DataSet(numbered, 'eval').one_pass(batch_size)
  assert numbers_of(batches, 100).tolist() == list(range(200, 207))


def test_every_epoch_is_a_permutation_of_its_own(numbered):
  # 23 batches of 4 are 92 examples: 4 epochs of 23, though 4 does not divide 23.
  data_set = input_pipeline.Cifar10DataSet(numbered, 'train', use_distortion=False)
  batches = take(data_set.make_batch(4, seed=1), 23)
  epochs = np.reshape([images[:, 16, 16, 0] for images, _ in batches], [4, NUM_TRAIN])
  for epoch in epochs:
    assert sorted(epoch) == list(range(NUM_TRAIN))
  assert len({tuple(epoch) for epoch in epochs}) == 4
  # Labels stay with their images.
  assert np.array_equal(epochs.ravel() % 10, np.concatenate([labels for _, labels in batches]))


def test_seeds_and_workers_draw_different_orders(numbered):
  data_set = input_pipeline.Cifar10DataSet(numbered, 'train', use_distortion=False)
  orders = {
    tuple(numbers_of(data_set.make_batch(NUM_TRAIN, seed, worker), 1))
    for seed, worker in [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0)]
  }
  assert len(orders) == 4


@pytest.fixture(scope='module')
def sixteen(numbered):
  """Batches of 4."""
  with tf.Graph().as_default():
    return take(input_pipeline.Cifar10DataSet(numbered, 'train').make_batch(4, seed=7), 16)


@pytest.mark.parametrize(('skipped', 'kind'), [(1, int), (6, int), (13, tf.constant)])
def test_starting_at_an_example_continues_the_same_batches(numbered, sixteen, skipped, kind):
  data_set = input_pipeline.Cifar10DataSet(numbered, 'train')
  rest = take(data_set.make_batch(4, seed=7, first_example=kind(np.int64(4 * skipped))), 3)
  whole = sixteen[skipped : skipped + 3]
  for (images, labels), (other_images, other_labels) in zip(whole, rest, strict=True):
    np.testing.assert_array_equal(images, other_images)
    np.testing.assert_array_equal(labels, other_labels)


def test_alternating_flips_show_each_image_both_ways_in_any_two_epochs(tmp_path):
  """Image i is i in its left half and 100 + i in its right: its first byte tells which way."""
  count = 40
  planes = np.zeros([count, 3, 32, 32], np.uint8)
  planes[:, :, :, :16] = np.arange(count)[:, None, None, None]
  planes[:, :, :, 16:] = 100 + np.arange(count)[:, None, None, None]
  path = manifest.record_path(str(tmp_path), 'train')
  records.write_records(path, planes.reshape(count, -1), np.arange(count) % 10)
  augmentation = Augmentation(0, 'reflect', 'alternating')
  data_set = input_pipeline.Cifar10DataSet(str(tmp_path), 'train', augmentation=augmentation)

  def flips(first_example, batches):  # By epoch: which images are mirrored.
    taken = take(data_set.make_batch(8, seed=5, first_example=first_example), batches)
    seen = np.concatenate([images[:, 0, 0, 0] for images, _ in taken]).reshape(-1, count)
    assert all(sorted(epoch % 100) == list(range(count)) for epoch in seen)
    return [{value % 100 for value in epoch if value >= 100} for epoch in seen]

  everyone = set(range(count))
  epochs = flips(0, 20)
  assert 8 < len(epochs[0]) < 32  # 20 +- 4 standard deviations of 3.2.
  assert epochs == [epochs[0], everyone - epochs[0]] * 2
  assert flips(count, 10) == epochs[1:3]  # Resuming in the second epoch.


def test_an_augmentation_of_ones_own_comes_last(numbered):
  """Of training batches alone; its seed is of seed, worker and the batch's number."""

  def batches(own, subset='train', count=2, **more):
    options = {'augmentation': Augmentation(cutout=4, augmentation=own), **more}
    with tf.Graph().as_default():
      return take(input_pipeline.input_fn(numbered, subset, 1, 4, **options), count)

  turned = user_code.given(lambda images, labels, seed: (255 - images, 9 - labels))
  for ([images], [labels]), ([negatives], [nines]) in zip(batches(None), batches(turned)):
    np.testing.assert_array_equal(negatives, 255 - images)
    np.testing.assert_array_equal(nines, 9 - labels)
  for (given, _), (same, _) in zip(batches(None, 'eval'), batches(turned, 'eval'), strict=True):
    np.testing.assert_array_equal(given, same)
  seeds = user_code.given(lambda x, labels, seed: (x, tf.concat([seed, 0 * labels[2:]], 0)))

  def drawn(**more):
    return [tuple(labels) for _, [labels] in batches(seeds, **more)]

  third = drawn(count=3)[2]
  assert drawn(first_example=8, count=1) == drawn(first_example=np.int64(8), count=1) == [third]
  others = drawn(count=6) + drawn(seed=1) + drawn(worker=1) + drawn(seed=1, worker=1)
  assert len(set(others)) == 12


@pytest.mark.parametrize('augmentation', [None, Augmentation(cutout=4)])
def test_the_size_of_a_training_batch_is_known(numbered, augmentation):
  """To the graph: a proxy's half of it has a number of images, too."""
  options = {'augmentation': augmentation or Augmentation()}
  data_set = input_pipeline.Cifar10DataSet(numbered, 'train', augmentation is not None, **options)
  images, labels = data_set.make_batch(4).element_spec
  assert images.shape == [4, 32, 32, 3]
  assert labels.shape == [4]


def test_example_i_belongs_to_tower_i_mod_n(numbered):
  whole = input_pipeline.Cifar10DataSet(numbered, 'train', False).make_batch(6, seed=3)
  [(images, labels)] = take(whole, 1)
  shards = input_pipeline.input_fn(numbered, 'train', 3, 6, False, seed=3)
  for image_shards, label_shards in take(shards, 1):
    assert len(image_shards) == len(label_shards) == 3
    for tower in range(3):
      np.testing.assert_array_equal(image_shards[tower], images[[tower, tower + 3]])
      np.testing.assert_array_equal(label_shards[tower], labels[[tower, tower + 3]])


def test_by_default_only_a_training_split_is_shuffled_and_augmented(numbered):
  # Validation's images are 100 to 104, all bytes of an image alike: one pass, as they lie there.
  validation = take(input_pipeline.input_fn(numbered, 'validation', 1, 3), 3)
  numbers = [images[:, 0, 0, 0].tolist() for [images], _ in validation]
  assert numbers == [[100, 101, 102], [103, 104]]
  for [images], _ in validation:
    assert (images == images[:, :1, :1, :1]).all()
  # The training split is endless, and crops of its images show the padding's zeros.
  training = take(input_pipeline.input_fn(numbered, 'train', 1, 23), 2)
  assert len(training) == 2
  for [images], _ in training:
    assert not (images == images[:, :1, :1, :1]).all()
  both = input_pipeline.input_fn(numbered, 'train+validation', 1, NUM_TRAIN + 5)
  assert len(take(both, 2)) == 2


def test_training_goes_on_where_the_global_step_stands(numbered, sixteen):
  step = tf.compat.v1.train.create_global_step()
  batches = input_pipeline.input_fn(numbered, 'train', 0, 4, seed=7)
  iterator = tf.compat.v1.data.make_initializable_iterator(batches)
  [images], _ = iterator.get_next()
  with tf.compat.v1.Session() as session:
    for number in (0, 5):
      step.load(number, session)
      session.run(iterator.initializer)
      np.testing.assert_array_equal(session.run(images), sixteen[number][0])


@pytest.mark.filterwarnings('ignore:To make it possible to preserve tf.data options')
@pytest.mark.parametrize('subset', ['train', 'eval'])
def test_no_thread_tunes_it(numbered, subset):
  """An iterator that goes would wait for that thread, up to a minute."""
  assert input_pipeline.input_fn(numbered, subset, 2, 4).options().autotune.enabled is False


def test_refuses_a_batch_that_towers_cannot_share(numbered):
  with pytest.raises(InputError, match='batch-size 100 is not divisible by 3 towers'):
    input_pipeline.input_fn(numbered, 'train', 3, 100)


def test_the_graph_has_no_op_per_image(numbered):
  def num_nodes(batch_size):
    with tf.Graph().as_default() as graph:
      batches = input_pipeline.input_fn(numbered, 'train', 4, batch_size)
      tf.compat.v1.data.make_initializable_iterator(batches).get_next()
      definition = graph.as_graph_def()
    return len(definition.node) + sum(len(f.node_def) for f in definition.library.function)

  assert num_nodes(128) == num_nodes(4)


def test_normalised_values_by_hand():
  # 0 / 128 - 1 = -1; 128 / 128 - 1 = 0; 192 / 128 - 1 = 0.5; 255 / 128 - 1 = 0.9921875.
  normalised = input_pipeline.normalise(tf.constant([0, 128, 192, 255], tf.uint8), tf.float32)
  assert run(normalised).tolist() == [-1, 0, 0.5, 0.9921875]
