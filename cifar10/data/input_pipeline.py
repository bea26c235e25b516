"""The input pipeline: record files -> shuffled, augmented batches -> one shard for each tower.

A subset is read once into memory; then each batch is one gather of a few hundred images by a
shuffled index, and a handful of ops of augmentation (augmentation.py). Whole batches make it fast:
tf.data has a cost for each element, and here an element is a batch.

Shuffling and augmentation are stateless functions of (seed, epoch) and (seed, batch number), so a
run that restarts at example k continues with exactly the batches it would have seen.
"""

import contextlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from cifar10.core import devices, limits
from cifar10.core.errors import InputError
from cifar10.data import manifest, records
from cifar10.data.augmentation import as_strings, augment, crop, fold_in, own_augmentation, pad
from cifar10.options.hparams import Augmentation

TRAIN_AND_VALIDATION = 'train+validation'
_TRAINING = ('train', TRAIN_AND_VALIDATION)
_PARTS = {subset: subset.split('+') for subset in (*manifest.SUBSETS, TRAIN_AND_VALIDATION)}
_IN_CIFAR10 = {'train': 40_000, 'validation': 10_000, 'eval': 10_000}  # Examples.

_CHUNK = 1000  # Examples parsed at a time: limits the strings held beside the decoded images.
# Not AUTOTUNE, whose tuning `without_autotune` switches off. Each takes about 15 MB.
_CHUNKS_AT_A_TIME = min(4, limits.cores())
# Least bytes of an image in a batch: as read, cropped and mirrored (uint8), and as float32.
_BATCH_BYTES = 7 * manifest.IMAGE_BYTES

# AutoGraph has nothing to convert here: no loop or branch is of tensors. Its search takes half a
# second, and its files stay in the temporary folder when the process is killed.
no_autograph = tf.autograph.experimental.do_not_convert


class _NumExamples:
  """`num_examples_per_epoch`: of an instance it counts, of the class it answers for CIFAR-10."""

  def __get__(self, data_set: 'Cifar10DataSet | None', owner: type) -> Callable[..., int]:
    return data_set.count if data_set else _num_in_cifar10


def _num_in_cifar10(subset: str = 'train') -> int:
  return sum(_IN_CIFAR10[part] for part in _parts(subset))


def _parts(subset: str) -> list[str]:
  """Returns the subsets in record files of their own; raises InputError for an unknown one."""
  if subset not in _PARTS:
    raise InputError(f'subset {subset!r} is not one of {", ".join(_PARTS)}')
  return _PARTS[subset]


class Cifar10DataSet:
  """A subset of CIFAR-10, or of another data set in such record files."""

  def __init__(
    self,
    data_dir: str,
    subset: str = 'train',
    use_distortion: bool = True,
    *,
    augmentation: Augmentation = Augmentation(),  # noqa: B008 - it is immutable
  ):
    """Selects 'train', 'validation', 'eval' or 'train+validation'; reads nothing.

    `use_distortion` augments the batches of a training subset; those of others never are.
    """
    self._parts = _parts(subset)
    self._data_dir = data_dir
    self._is_training = subset in _TRAINING
    self._use_distortion = use_distortion and self._is_training
    self._augmentation = augmentation

  num_examples_per_epoch = _NumExamples()

  def count(self) -> int:
    """Returns how many examples the files hold; checks them as `records.num_examples` does."""
    return sum(records.num_examples(self._data_dir, part) for part in self._parts)

  def get_filenames(self) -> list[str]:
    """Returns the record files to read, in order."""
    return [manifest.record_path(self._data_dir, part) for part in self._parts]

  def parser(self, serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Parses Examples: string [n] -> images uint8 [n, 32, 32, 3], labels int32 [n]."""
    return records.parse_examples(serialized)

  def preprocess(self, padded: tf.Tensor, seed: tf.Tensor, alternating: tf.Tensor) -> tf.Tensor:
    """Augments a training batch if that is selected: string [n] -> uint8 [n, 32, 32, 3]."""
    if not self._use_distortion:
      centre = tf.fill(tf.shape(padded), self._augmentation.crop_padding)
      return crop(padded, centre, centre, self._augmentation.crop_padding)
    return augment(padded, seed, self._augmentation, alternating)

  @no_autograph
  def make_batch(
    self, batch_size: int, seed: int = 0, worker: int = 0, first_example: int | tf.Tensor = 0
  ) -> tf.data.Dataset:
    """Returns endless shuffled (and augmented) training batches; for other subsets `one_pass`.

    They are (images uint8 [batch_size, 32, 32, 3], labels int32 [batch_size]), and may span the end
    of an epoch.

    Args:
      batch_size: examples in every batch.
      seed, worker: determine order and augmentation; each worker of a cluster has its own.
      first_example: where in the endless sequence to start (a tensor: int64): a multiple of
        `batch_size`.
    """
    if not self._is_training:
      return self.one_pass(batch_size)
    num_examples = self.count()
    key = tf.constant([seed, worker], tf.int32)
    order_key, distortion_key, flip_key = (fold_in(key, i) for i in range(3))
    mirrored_first = tf.random.stateless_uniform([num_examples], flip_key, 0, 2, tf.int32)

    def batches(padded: tf.Tensor, labels: tf.Tensor) -> tf.data.Dataset:
      # This inner dataset keeps the whole subset in memory.
      def gather(number: tf.Tensor, drawn: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
        indices, epochs = drawn
        batch_seed = fold_in(distortion_key, number)
        alternating = (tf.gather(mirrored_first, indices) + epochs) % 2
        images = self.preprocess(tf.gather(padded, indices), batch_seed, alternating)
        return images, tf.gather(labels, indices)

      order = _shuffled_indices(num_examples, batch_size, order_key, first_example)
      return order.enumerate(first_example // batch_size).map(gather, tf.data.AUTOTUNE)

    options = tf.data.Options()
    # Reads the subset when the iterator is created, while hooks prepare the first step.
    options.experimental_warm_start = True
    endless = self._whole(num_examples).flat_map(batches)
    return endless.prefetch(tf.data.AUTOTUNE).with_options(options)

  @no_autograph
  def one_pass(self, batch_size: int) -> tf.data.Dataset:
    """Returns every example once, in the files' order; the last batch may be smaller."""
    self.count()  # Checks the files before TensorFlow reads them.
    serialized = tf.data.TFRecordDataset(self.get_filenames()).batch(batch_size)
    return serialized.map(self.parser).prefetch(tf.data.AUTOTUNE)

  # A context in which examples are read; a `PythonSource` names its faults there.
  reading = contextlib.nullcontext

  def first_images(self, count: int) -> np.ndarray:
    """Returns the first images in the files' order: uint8 [count or fewer, 32, 32, 3]."""
    return self.all_examples(count)[0]

  def all_examples(self, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Returns images uint8 [n, 32, 32, 3] and labels int32 [n] in the files' order."""
    count = most or self.count()
    config = devices.session_config()
    with devices.side_graph(), tf.compat.v1.Session(config=config) as session:
      serialized = without_autotune(tf.data.TFRecordDataset(self.get_filenames()).batch(count))
      parsed = self.parser(tf.compat.v1.data.make_one_shot_iterator(serialized).get_next())
      return session.run(parsed)

  def _whole(self, num_examples: int) -> tf.data.Dataset:
    """Returns one element: padded images, string [n or more], and labels, int32 [n or more]."""
    # Chunks of one size are what tf.data puts together without a copy: black images fill the last.

    def parse_and_pad(serialized: tf.Tensor) -> tuple[tf.Tensor, ...]:
      images, labels = self.parser(serialized)
      rest = _CHUNK - tf.shape(labels)[0]
      images = tf.pad(images, [[0, rest], [0, 0], [0, 0], [0, 0]])
      chunk = as_strings(pad(images, self._augmentation)), tf.pad(labels, [[0, rest]])
      return tuple(tf.ensure_shape(each, [_CHUNK]) for each in chunk)

    serialized = tf.data.TFRecordDataset(self.get_filenames()).batch(_CHUNK)
    chunks = serialized.map(parse_and_pad, num_parallel_calls=_CHUNKS_AT_A_TIME)
    whole = chunks.batch(-(-num_examples // _CHUNK), drop_remainder=True)
    return whole.map(lambda strings, labels: (tf.reshape(strings, [-1]), tf.reshape(labels, [-1])))


def check_shards(batch_size: int, num_shards: int) -> None:
  """Raises InputError if the towers cannot share a training batch evenly."""
  if batch_size % num_shards:
    raise InputError(f'--train-batch-size {batch_size} is not divisible by {num_shards} towers')


def check_memory(batch_size: int, flag: str) -> None:
  """Raises InputError if a batch's images alone, augmented and as floats, exceed the memory."""
  memory = limits.memory()
  if batch_size * _BATCH_BYTES > memory:
    raise InputError(
      f'{flag} {batch_size}: its images alone take {batch_size * _BATCH_BYTES / 1e9:.3g} GB, and '
      f'{memory / 1e9:.3g} GB of memory are there; lower it, to {memory // _BATCH_BYTES} or less'
    )


@no_autograph
def input_fn(
  data_dir: str,
  subset: str,
  num_shards: int,
  batch_size: int,
  use_distortion_for_training: bool = True,
  *,
  augmentation: Augmentation = Augmentation(),  # noqa: B008 - it is immutable
  seed: int = 0,
  worker: int = 0,
  first_example: int | tf.Tensor | None = None,
) -> tf.data.Dataset:
  """Returns batches cut into one shard for each tower, for an Estimator of your own.

  Args:
    data_dir, subset, use_distortion_for_training, augmentation: as of a `Cifar10DataSet`.
    num_shards, batch_size: towers (0 is one), and examples of all of them together.
    seed, worker, first_example: as in `Cifar10DataSet.make_batch`; without a first example training
      goes on where the graph's global step stands, a batch a step.

  Returns:
    A dataset of (tuple of uint8 [shard, 32, 32, 3], tuple of int32 [shard]), one shard per tower.
    Labels of an `augmentation` of one's own may be float32 [shard, classes].

  Raises:
    InputError: files missing or damaged, or a training batch that the towers cannot share evenly.
  """
  num_shards = num_shards or 1  # The old program gave its number of GPUs.
  if subset in _TRAINING:
    check_shards(batch_size, num_shards)
  data_set = Cifar10DataSet(
    data_dir, subset, use_distortion_for_training, augmentation=augmentation
  )
  if first_example is None:
    first_example = global_step() * batch_size
  batches = data_set.make_batch(batch_size, seed, worker, first_example)
  if (own := augmentation.augmentation) and subset in _TRAINING:
    batches = own_augmentation(batches, own, seed, worker, first_example // batch_size)
  return cut(batches, num_shards)


def global_step() -> int | tf.Tensor:
  """Returns the graph's global step, int64, as it is when an iterator begins; 0 without one."""
  # A tensor: a worker may not see the checkpoints, and a lost server's session is created again.
  step = tf.compat.v1.train.get_global_step()
  return 0 if step is None else tf.cast(step.read_value(), tf.int64)


@no_autograph
def cut(batches: tf.data.Dataset, num_shards: int) -> tf.data.Dataset:
  """Cuts batches to shards, one for each tower, in the form that `input_fn` returns.

  Example i of a batch belongs to tower i mod n: one strided slice per tower, never one tensor per
  image, which made TensorFlow's old example slower with four GPUs than with two.
  """

  def shard(*batch: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], ...]:
    return tuple(tuple(each[tower::num_shards] for tower in range(num_shards)) for each in batch)

  return without_autotune(batches.map(shard).prefetch(tf.data.AUTOTUNE))


def without_autotune(elements: tf.data.Dataset) -> tf.data.Dataset:
  """Returns the dataset without the thread in which TensorFlow tunes an iterator.

  Destroying an iterator waits for that thread, for up to a minute (Model::OptimizeLoop in
  tensorflow/core/framework/model.cc). Training batches are as fast without it.
  """
  options = tf.data.Options()
  options.autotune.enabled = False
  return elements.with_options(options)


def normalise(images: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
  """Scales uint8 0..255 to `dtype` -1..1, on the tower, so that a quarter of the bytes travel."""
  return tf.cast(images, dtype) / 128 - 1


def _shuffled_indices(
  num_examples: int, batch_size: int, key: tf.Tensor, first_example: int | tf.Tensor
) -> tf.data.Dataset:
  """Returns endless pairs int32 [batch_size] of indices and epochs, each epoch permuted anew."""
  first_epoch, offset = first_example // num_examples, first_example % num_examples

  def permutation(epoch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    seed = fold_in(key, epoch)
    indices = tf.random.experimental.stateless_shuffle(tf.range(num_examples), seed)
    indices = indices[tf.where(tf.equal(epoch, first_epoch), offset, 0) :]
    return indices, tf.fill(tf.shape(indices), tf.cast(epoch, tf.int32))

  epochs = tf.data.Dataset.counter(start=first_epoch)
  return epochs.map(permutation).rebatch(batch_size, drop_remainder=True)
