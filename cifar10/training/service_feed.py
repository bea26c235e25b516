"""Trains on batches from the data workers of a tf.data service: for --data-service."""

import contextlib
import functools
import hashlib
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.data import input_pipeline, manifest, stream, tf_data_service
from cifar10.training.feed import Feed
from cifar10.training.source_feed import SourceFeed


class ServiceFeed(Feed):
  """The batches of record files or a source, read by data workers for all workers of a cluster."""

  def num_examples(self) -> int:
    """Counts like `Feed`; a source with a given length may exist on the data workers alone."""
    if self._hparams.source and self._hparams.examples_per_epoch:
      return self._hparams.examples_per_epoch
    return self._here.num_examples()

  def first_images(self, count: int) -> np.ndarray:
    """Returns the first images, which this process reads itself."""
    return self._here.first_images(count)

  def batches(self, num_shards: int, first_example: Any) -> tf.data.Dataset:
    """Returns batches from where the service stands, which all workers share.

    A dispatcher that is new to the job begins where the first task to ask it stands.
    """
    hparams, options = self._hparams, self._options
    assert options.data_service
    where = None if hparams.source else manifest.digests(options.data_dir or '')
    digests = {
      manifest.record_path(options.data_dir or '', split): digest
      for split, digest in (where or {}).items()
    }
    read = (
      tf_data_service.from_offers(hparams.source, self._num_classes)
      if hparams.source
      else tf_data_service.from_files(self._data_set, digests)
    )
    first_example *= self._cluster.num_workers
    first_split = -(-first_example * tf_data_service.SPLITS // self.num_examples())
    batches = stream.batches(
      stream.examples(read, tf_data_service.SPLITS, hparams.seed, first_split),
      self._data_set,
      batch_size=hparams.train_batch_size,
      num_examples=self.num_examples(),
      seed=hparams.seed,
    )
    # A job that resumes with other batches has another name in the service: by the name alone
    # TensorFlow would find the earlier batches.
    what = (hparams.source, hparams.train_on, hparams.train_batch_size, hparams.seed)
    of = (where, self.num_examples(), self._num_classes)
    how = (hparams.use_distortion_for_training, hparams.augmentation)
    digest = hashlib.sha256(repr((what, of, how)).encode()).hexdigest()
    job = f'{options.job_dir} {digest[:16]}'
    return input_pipeline.cut(
      tf_data_service.distributed(batches, options.data_service, job), num_shards
    )

  def reading(self) -> contextlib.AbstractContextManager[None]:
    """A context in which batches can be read, as in `Feed`."""
    return stream.naming_faults(tf_data_service.fault)

  @functools.cached_property
  def _here(self) -> Feed:
    """Returns the feed that would be used without a data service."""
    if not self._hparams.source:
      return Feed(self._hparams, self._options, self._cluster, self._num_classes)
    feed = SourceFeed(self._hparams, self._options, self._cluster, self._num_classes)
    feed.source.check_shards('--data-service')
    return feed
