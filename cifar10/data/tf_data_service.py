"""Training batches that other processes make, through TensorFlow's tf.data service.

The whole pipeline is sent as a graph: the dispatcher gives each split of each epoch to one data
worker, and each batch of a data worker goes to one training worker. A Python function cannot be
sent. Instead the graph calls whatever a data worker has registered as its first function (`Offer`),
and passes the name of the source.
"""

import functools
import re
import warnings
from typing import Any

import tensorflow as tf

from cifar10.core.errors import SourceError
from cifar10.data import input_pipeline, stream
from cifar10.data.python_source import PythonSource

SPLITS = 16  # Of an epoch: a data worker that dies loses the split it reads, and its buffer.
_TOKEN = 'pyfunc_0'  # TensorFlow's name for the first Python function of a process.
_CHUNK = 100  # Records parsed at a time.


class Offer:
  """Runs a data worker's source for the trainings that request it; at most one in a process."""

  def __init__(self, source: PythonSource | None, address: str):
    """Registers the source, before anything else registers a Python function.

    Args:
      source: the source that this data worker runs, or None.
      address: this data worker's, for messages.
    """
    self._source = source
    self._address = address
    self._servers: dict[int, stream.Server] = {}
    self._graph = tf.Graph()  # TensorFlow's registry of functions does not keep the graph alive.
    with self._graph.as_default():
      asked = [tf.constant(''), *(tf.constant(0, tf.int64) for _ in range(4))]
      answer = tf.numpy_function(self._serve, asked, list(stream.ANSWER))
    token = answer[0].op.get_attr('token').decode()
    assert token == _TOKEN, token

  def _serve(self, name: bytes, num_classes: int, *asked: int) -> tuple[Any, ...]:
    """Answers like `stream.Server`; raises SourceError if another source is requested."""
    wanted = name.decode()
    if self._source is None or self._source.name != wanted:
      has = f'--source {self._source.name}' if self._source else 'no --source'
      raise SourceError(
        f'the data worker {self._address} has {has}, and the training has {wanted}; start it with '
        f'--source {wanted}'
      )
    if num_classes not in self._servers:
      read = functools.partial(self._source.chunks, int(num_classes))
      self._servers[int(num_classes)] = stream.Server(read)
    return self._servers[int(num_classes)](*asked)


def from_offers(name: str, num_classes: int) -> stream.ReadSplit:
  """Returns a reader of a source's splits through the data worker's `Offer`."""

  def call(handle: tf.Tensor, split: tf.Tensor) -> Any:
    numbers = [tf.constant(num_classes, tf.int64), handle, split, tf.constant(SPLITS, tf.int64)]
    asked = [tf.constant(name), *numbers]
    return tf.raw_ops.PyFunc(input=asked, token=_TOKEN, Tout=list(stream.ANSWER))

  return stream.from_server(call)


def from_files(data_set: input_pipeline.RecordDataset) -> stream.ReadSplit:
  """Returns a reader of every 16th record of the files, at the same path on each data worker."""

  def read(split: tf.Tensor) -> tf.data.Dataset:
    serialized = tf.data.TFRecordDataset(data_set.get_filenames()).shard(SPLITS, split)
    chunks = serialized.batch(_CHUNK).map(data_set.parser).enumerate()
    return chunks.map(lambda number, parsed: (*parsed, number * _CHUNK))

  return read


def distributed(batches: tf.data.Dataset, address: str, job: str) -> tf.data.Dataset:
  """Returns the batches as data workers make them, shared by all tasks that name this job.

  Args:
    batches: the first task's count: the service finds a job by its name and looks no further.
    address: the dispatcher's.
    job: the name that the tasks share.
  """
  service = tf.data.experimental.service
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # TensorFlow's warnings about options in graphs.
    return batches.apply(
      service.distribute(
        processing_mode=service.ShardingPolicy.DYNAMIC,
        service=f'grpc://{address}',
        job_name=job,
        compression=None,  # Snappy takes longer than it saves, because pixels hardly compress.
      )
    )


def fault(message: str) -> str:
  """Returns a one-line message if a TensorFlow error is a data service's; else ''."""
  worker = re.search(r'from worker (\S+?):? ', message)
  if f'callback with key={_TOKEN} in the registry' in message:
    where = f' {worker[1]}' if worker else ''
    return (
      f'the data worker{where} was not started by python -m cifar10.data_service, and cannot run '
      '--source; end it'
    )
  if worker or 'tf.data service' in message or 'data service dispatcher' in message:
    lines = [line for line in message.splitlines() if line and line != 'Graph execution error:']
    return f'the data service failed: {lines[0]:.300}'
  return ''
