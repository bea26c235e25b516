"""Where training batches come from, as the options say: record files, or what a part reads."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.cluster.tasks import Cluster
from cifar10.core import parts
from cifar10.data import input_pipeline
from cifar10.data.info import DatasetInfo
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions


class Feed:
  """A training's examples, of its record files; parts override where they come from."""

  def __init__(self, hparams: HParams, options: RunOptions, cluster: Cluster):
    """Names them; nothing is read yet."""
    assert options.data_dir  # The command asks for it.
    self._hparams = hparams
    self._options = options
    self._cluster = cluster
    self._data_set = input_pipeline.RecordDataset(
      options.data_dir, hparams.train_on, hparams.use_distortion_for_training, hparams.augmentation
    )

  def num_examples(self) -> int:
    """How many there are in an epoch; raises InputError where they are not what they must be."""
    return self._data_set.num_examples_per_epoch()

  def first_images(self, count: int) -> np.ndarray:
    """The first ones' images, as they are read: uint8 [count or fewer, 32, 32, 3]."""
    return self._data_set.first_images(count)

  def batches(self, num_shards: int, first_example: Any) -> tf.data.Dataset:
    """Endless training batches, as `input_pipeline.input_fn` makes them.

    Of record files they are those that an uninterrupted training would have seen.

    Args:
      num_shards: how many towers.
      first_example: how many examples this process has seen before, perhaps a tensor.
    """
    hparams = self._hparams
    batches = self._data_set.make_batch(
      hparams.train_batch_size, hparams.seed, self._cluster.worker, first_example
    )
    return input_pipeline.cut(batches, num_shards)

  @contextlib.contextmanager
  def reading(self) -> Iterator[None]:
    """A context in which batches can be read; raises SourceError where a source fails."""
    yield


def make(hparams: HParams, options: RunOptions, cluster: Cluster, data: DatasetInfo) -> Feed:
  """What this process trains on; raises InputError for a source that cannot be found."""
  if options.data_service:
    return parts.load('data_service').ServiceFeed(hparams, options, cluster, data.num_classes)
  if hparams.source:
    return parts.load('source').SourceFeed(hparams, options, cluster, data.num_classes)
  return Feed(hparams, options, cluster)
