"""Trains on the examples of a Python function: for --source."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.cluster.tasks import Cluster
from cifar10.core.errors import InputError, SourceError
from cifar10.core.logs import log
from cifar10.data import input_pipeline, stream
from cifar10.data.python_source import Chunk, PythonSource, SourceProcesses
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions
from cifar10.training.feed import Feed

_TOLD_AT = 100_000  # Examples of an evaluation; later at twice as many, and so on.


class HeldOut:
  """The examples of --validation-source, as `RecordDataset` has those of a split."""

  def __init__(self, name: str, num_classes: int):
    """Finds the function; raises InputError where there is none."""
    self._source = PythonSource(name, '--validation-source')
    self._num_classes = num_classes

  def num_examples_per_epoch(self) -> int:
    """Those that it says, or 0; raises InputError where the first one is wrong."""
    return self._count

  @functools.cached_property
  def _count(self) -> int:
    return self._source.check(self._num_classes, 0)

  @tf.autograph.experimental.do_not_convert
  def one_pass(self, batch_size: int) -> tf.data.Dataset:
    """Every example once, in the source's order; the last batch may be smaller."""
    read = _read_here(lambda split, num_splits: self._epoch())
    chunks = tf.data.Dataset.range(1).flat_map(read)
    return chunks.map(lambda images, labels, first: (images, labels)).rebatch(batch_size)

  def all_examples(self) -> Any:
    """Images uint8 [n, 32, 32, 3] and labels int32 [n], in the source's order."""
    return tuple(map(np.concatenate, zip(*self._epoch())))

  def _epoch(self) -> Generator[Chunk, None, None]:
    """Yields all chunks; tells how many examples there were, by which an endless source shows."""
    count, told_at = 0, _TOLD_AT
    for chunk in self._source.chunks(self._num_classes):
      count += len(chunk.labels)
      if count >= told_at:
        told_at *= 2
        log.info(
          f'--validation-source {self._source.name}: {count:,} examples so far; the evaluation '
          'waits for its end'
        )
      yield chunk

  def reading(self) -> contextlib.AbstractContextManager[None]:
    """A context that raises SourceError where the source fails."""
    return stream.naming_faults(lambda message: None)


def _read_here(read: Callable[[int, int], Generator[Chunk, None, None]]) -> stream.ReadSplit:
  """Reads splits in this process."""
  server = stream.Server(read, most=1)

  def call(handle: tf.Tensor, split: tf.Tensor) -> Any:
    asked = [handle, split, tf.constant(1, tf.int64)]
    return tf.numpy_function(server, asked, list(stream.ANSWER))

  return stream.from_server(call)


class SourceFeed(Feed):
  """The examples of a Python function, run in this process or in processes beside it.

  Each worker of a cluster reads a shard, or everything if the function takes no shards.
  """

  def __init__(self, hparams: HParams, options: RunOptions, cluster: Cluster, num_classes: int):
    """Imports the function; raises InputError if there is none."""
    super().__init__(hparams, options, cluster, num_classes)
    assert hparams.source
    self.source = PythonSource(hparams.source)
    self._told_length = False
    self._shards = cluster.num_workers if self.source.takes_shards else 1
    self._processes: SourceProcesses | None = None
    if options.source_processes > 1:
      self.source.check_shards(f'--source-processes {options.source_processes}')

  def num_examples(self) -> int:
    """Counts like `Feed`; checks the first example now, all others when they are read."""
    return self._count

  def first_images(self, count: int) -> np.ndarray:
    """Returns the first images in the source's order."""
    try:
      with contextlib.closing(self.source.chunks(self._num_classes)) as chunks:
        images = itertools.chain.from_iterable(chunk.images for chunk in chunks)
        return np.stack(list(itertools.islice(images, count)))
    except SourceError as error:
      raise InputError(str(error)) from None

  def batches(self, num_shards: int, first_example: Any) -> tf.data.Dataset:
    """Returns batches from the beginning of an epoch on."""
    hparams, worker = self._hparams, self._cluster.worker
    share = -(-self._count // self._shards)  # Of an epoch, this process's.
    read = _read_here(lambda split, num_splits: self._epoch())
    first_epoch = -(-first_example // share)
    examples = stream.examples(read, 1, hparams.seed, first_epoch)
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
    """A context in which batches can be read; it runs the source's processes."""
    count, worker = self._options.source_processes, self._cluster.worker
    with contextlib.ExitStack() as stack:
      stack.enter_context(stream.naming_faults(lambda message: None))
      if count > 1:
        shards = range(worker * count, (worker + 1) * count)
        processes = SourceProcesses(
          self.source.name, self._num_classes, shards, count * self._shards
        )
        self._processes = stack.enter_context(processes)
      yield

  @functools.cached_property
  def _count(self) -> int:
    return self.source.check(self._num_classes, self._hparams.examples_per_epoch)

  def _epoch(self) -> Generator[Chunk, None, None]:
    """Yields one epoch of this process's examples."""
    count = 0
    shard = self._cluster.worker if self._shards > 1 else 0
    chunks = (
      self._processes.epoch()
      if self._processes
      else self.source.chunks(self._num_classes, shard, self._shards)
    )
    try:
      for chunk in chunks:
        count += len(chunk.labels)
        yield chunk
    except SourceError:
      self._told_length = True  # What other processes have left is asked for, and is no epoch.
      raise
    # Or the next epoch would be asked for, without an end. Processes check it themselves; of theirs
    # this may be the empty rest of an epoch.
    if not count and not self._processes:
      raise SourceError(
        f'--source {self.source.name}: shard {shard} of {self._shards} yields no examples; give '
        'each shard some, or start fewer workers'
      )
    if self._shards == 1 and count != self._count and not self._told_length:
      self._told_length = True
      log.info(
        f'--source {self.source.name}: an epoch has {count:,} examples, and training counts '
        f'{self._count:,} as one'
      )
