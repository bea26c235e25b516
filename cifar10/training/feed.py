"""Where training batches come from, as the options say: record files, or what a part reads."""

import abc
import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.cluster.tasks import Cluster
from cifar10.core import parts
from cifar10.core.errors import SourceError
from cifar10.data import input_pipeline
from cifar10.data.info import DatasetInfo
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions


class Feed(abc.ABC):
  """A training's examples."""

  def __init__(self, hparams: HParams, options: RunOptions, cluster: Cluster):
    """Names them; nothing is read yet."""
    assert options.data_dir  # The command asks for it.
    self._hparams = hparams
    self._options = options
    self._cluster = cluster
    self._data_set = input_pipeline.RecordDataset(
      options.data_dir, hparams.train_on, hparams.use_distortion_for_training, hparams.augmentation
    )

  @abc.abstractmethod
  def num_examples(self) -> int:
    """How many there are in an epoch; raises InputError where they are not what they must be."""

  @abc.abstractmethod
  def first_images(self, count: int) -> np.ndarray:
    """The first ones' images: uint8 [count or fewer, 32, 32, 3]."""

  @abc.abstractmethod
  def batches(self, num_shards: int, first_example: Any) -> tf.data.Dataset:
    """Endless training batches, as `dataset.input_fn` makes them.

    Args:
      num_shards: how many towers.
      first_example: how many examples this process has seen before, perhaps a tensor.
    """

  @contextlib.contextmanager
  def reading(self) -> Iterator[None]:
    """A context in which batches can be read; raises SourceError where a source fails."""
    yield


class FileFeed(Feed):
  """The training split's record files."""

  def num_examples(self) -> int:
    """As `Feed` says."""
    return self._data_set.num_examples_per_epoch()

  def first_images(self, count: int) -> np.ndarray:
    """As `Feed` says: in the files' order."""
    return self._data_set.first_images(count)

  def batches(self, num_shards: int, first_example: Any) -> tf.data.Dataset:
    """As `Feed` says: those that an uninterrupted training would have seen."""
    hparams = self._hparams
    assert self._options.data_dir
    return input_pipeline.input_fn(
      self._options.data_dir,
      hparams.train_on,
      num_shards,
      hparams.train_batch_size,
      hparams.use_distortion_for_training,
      augmentation=hparams.augmentation,
      seed=hparams.seed,
      worker=self._cluster.worker,
      first_example=first_example,
      is_training=True,
    )


def make(hparams: HParams, options: RunOptions, cluster: Cluster, data: DatasetInfo) -> Feed:
  """What this process trains on; raises InputError for a source that cannot be found."""
  if options.data_service:
    return parts.load('data_service').ServiceFeed(hparams, options, cluster, data.num_classes)
  if hparams.source:
    return parts.load('source').SourceFeed(hparams, options, cluster, data.num_classes)
  return FileFeed(hparams, options, cluster)


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
