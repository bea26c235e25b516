"""Training batches from record files."""

import contextlib
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.cluster.tasks import Cluster
from cifar10.data import input_pipeline
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions


class Feed:
  """The training examples of record files; subclasses read other inputs."""

  def __init__(self, hparams: HParams, options: RunOptions, cluster: Cluster, num_classes: int):
    """Sets the feed up; reads nothing."""
    assert options.data_dir  # The command requires it.
    self._hparams = hparams
    self._options = options
    self._cluster = cluster
    self._num_classes = num_classes
    self._data_set = input_pipeline.RecordDataset(
      options.data_dir, hparams.train_on, hparams.use_distortion_for_training, hparams.augmentation
    )

  def num_examples(self) -> int:
    """Returns the number of examples in an epoch; raises InputError if the data are damaged."""
    return self._data_set.num_examples_per_epoch()

  def first_images(self, count: int) -> np.ndarray:
    """Returns the first images, uint8 [count or fewer, 32, 32, 3]."""
    return self._data_set.first_images(count)

  def batches(self, num_shards: int, first_example: Any) -> tf.data.Dataset:
    """Returns an endless dataset of training batches, like `input_pipeline.input_fn`.

    For record files they are the batches of an uninterrupted training.

    Args:
      num_shards: number of towers.
      first_example: number of examples this process has used before; may be a tensor.
    """
    hparams = self._hparams
    batches = self._data_set.make_batch(
      hparams.train_batch_size, hparams.seed, self._cluster.worker, first_example
    )
    return input_pipeline.cut(batches, num_shards)

  def reading(self) -> contextlib.AbstractContextManager[None]:
    """A context in which batches can be read; raises SourceError if a source fails."""
    return contextlib.nullcontext()
