"""Where training batches come from, as the options say: record files, or a Python source."""

import abc
import contextlib
import functools
import hashlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.cluster.tf_config import Cluster
from cifar10.core.errors import InputError, SourceError
from cifar10.core.logs import log
from cifar10.data import input_pipeline, stream, tf_data_service
from cifar10.data.info import DatasetInfo
from cifar10.data.python_source import Chunk, PythonSource, SourceProcesses
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
    """A context in which batches can be read; it names a source's faults.

    Raises:
      SourceError: a source failed.
    """
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


class SourceFeed(Feed):
  """A Python function, run in this process or in others beside it.

  Each worker of a cluster reads a shard of it, or all where it takes no shards.
  """

  def __init__(self, hparams: HParams, options: RunOptions, cluster: Cluster, num_classes: int):
    """Finds the function; raises InputError where there is none."""
    super().__init__(hparams, options, cluster)
    assert hparams.source
    self._num_classes = num_classes
    self._source = PythonSource(hparams.source)
    self._told_length = False
    self._shards = cluster.num_workers if self._source.takes_shards else 1
    self._processes: SourceProcesses | None = None
    if options.source_processes > 1:
      self.check_shards(f'--source-processes {options.source_processes}')

  def check_shards(self, wanted_by: str) -> None:
    """Raises InputError for a function that takes no shards, which this option needs."""
    self._source.check_shards(wanted_by)

  def num_examples(self) -> int:
    """As `Feed` says: the first example is looked at, the others as they come."""
    return self._count

  def first_images(self, count: int) -> np.ndarray:
    """As `Feed` says: in the source's order."""
    try:
      with contextlib.closing(self._source.chunks(self._num_classes)) as chunks:
        images, missing = [], count
        for chunk in chunks:
          images.append(chunk.images[:missing])
          missing -= len(images[-1])
          if not missing:
            break
    except SourceError as error:
      raise InputError(str(error)) from None
    return np.concatenate(images)

  def batches(self, num_shards: int, first_example: Any) -> tf.data.Dataset:
    """As `Feed` says: from the beginning of an epoch."""
    hparams, worker = self._hparams, self._cluster.worker
    share = -(-self._count // self._shards)  # Of an epoch, this process's.
    server = stream.Server(lambda split, num_splits: self._epoch())

    def call(handle: tf.Tensor, split: tf.Tensor) -> Any:
      asked = [handle, split, tf.constant(1, tf.int64)]
      return tf.numpy_function(server, asked, list(stream.ANSWER))

    first_epoch = -(-first_example // share)
    examples = stream.examples(stream.from_server(call), 1, hparams.seed, first_epoch)
    batches = stream.batches(
      examples,
      self._data_set,
      batch_size=hparams.train_batch_size,
      num_examples=share,
      seed=hparams.seed,
      worker=worker,
    )
    return input_pipeline.cut(batches, num_shards)

  @contextlib.contextmanager
  def reading(self) -> Iterator[None]:
    """As `Feed` says; with it the source's processes end."""
    with _naming_faults(), self._running():
      yield

  @contextlib.contextmanager
  def _running(self) -> Iterator[None]:
    """A context with the processes that --source-processes asks for."""
    count, worker = self._options.source_processes, self._cluster.worker
    if count <= 1:
      yield
      return
    shards = range(worker * count, (worker + 1) * count)
    with SourceProcesses(
      self._source.name, self._num_classes, shards, count * self._shards
    ) as self._processes:
      yield

  @functools.cached_property
  def _count(self) -> int:
    return self._source.check(self._num_classes, self._hparams.examples_per_epoch)

  def _epoch(self) -> Iterator[Chunk]:
    """One epoch of this process's share."""
    count = 0
    shard = self._cluster.worker if self._shards > 1 else 0
    chunks = (
      self._processes.epoch()
      if self._processes
      else self._source.chunks(self._num_classes, shard, self._shards)
    )
    for chunk in chunks:
      count += len(chunk.labels)
      yield chunk
    if self._shards == 1 and count != self._count and not self._told_length:
      self._told_length = True
      log.info(
        '--source %s: an epoch has %s examples, and training counts %s as one',
        self._source.name,
        f'{count:,}',
        f'{self._count:,}',
      )


class ServiceFeed(Feed):
  """Record files or a source, read by the data workers of a tf.data service for all workers."""

  def __init__(self, hparams: HParams, options: RunOptions, cluster: Cluster, num_classes: int):
    """Names it; nothing is asked of the service yet."""
    super().__init__(hparams, options, cluster)
    self._num_classes = num_classes

  def num_examples(self) -> int:
    """As `Feed` says. A source whose length is given may be where the data workers are alone."""
    if self._hparams.source and self._hparams.examples_per_epoch:
      return self._hparams.examples_per_epoch
    return self._here.num_examples()

  def first_images(self, count: int) -> np.ndarray:
    """As `Feed` says: read in this process."""
    return self._here.first_images(count)

  def batches(self, num_shards: int, first_example: Any) -> tf.data.Dataset:
    """As `Feed` says: wherever the service stands, for all workers together."""
    hparams, options = self._hparams, self._options
    assert options.data_service
    read = (
      tf_data_service.from_offers(hparams.source, self._num_classes)
      if hparams.source
      else tf_data_service.from_files(self._data_set)
    )
    batches = stream.batches(
      stream.examples(read, tf_data_service.SPLITS, hparams.seed),
      self._data_set,
      batch_size=hparams.train_batch_size,
      num_examples=self.num_examples(),
      seed=hparams.seed,
    )
    # One that resumes with other batches is another job.
    what = (hparams.source, hparams.train_on, hparams.train_batch_size, hparams.seed)
    how = (hparams.use_distortion_for_training, hparams.augmentation)
    digest = hashlib.sha256(repr((what, how)).encode()).hexdigest()
    job = f'{options.job_dir} {digest[:16]}'
    return input_pipeline.cut(
      tf_data_service.distributed(batches, options.data_service, job), num_shards
    )

  @contextlib.contextmanager
  def reading(self) -> Iterator[None]:
    """As `Feed` says."""
    with _naming_faults():
      yield

  @functools.cached_property
  def _here(self) -> Feed:
    """What would be read without a data service."""
    if not self._hparams.source:
      return FileFeed(self._hparams, self._options, self._cluster)
    found = SourceFeed(self._hparams, self._options, self._cluster, self._num_classes)
    found.check_shards('--data-service')
    return found


@contextlib.contextmanager
def _naming_faults() -> Iterator[None]:
  """Raises SourceError for what went wrong in a source or in a data service."""
  try:
    yield
  except tf.errors.OpError as error:
    # What Python code raises inside TensorFlow comes out as text.
    found = re.search(r'SourceError: (.*)', error.message)
    said = found[1] if found else tf_data_service.fault(error.message)
    if not said:
      raise
    raise SourceError(said) from None


def make(hparams: HParams, options: RunOptions, cluster: Cluster, data: DatasetInfo) -> Feed:
  """What this process trains on; raises InputError for a source that cannot be found."""
  if options.data_service:
    return ServiceFeed(hparams, options, cluster, data.num_classes)
  if hparams.source:
    return SourceFeed(hparams, options, cluster, data.num_classes)
  return FileFeed(hparams, options, cluster)
