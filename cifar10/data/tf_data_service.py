"""Training batches that other processes make, through TensorFlow's tf.data service.

The whole pipeline is sent as a graph: the dispatcher gives each split of each epoch to one data
worker, and each batch of a data worker goes to one training worker. A Python function cannot be
sent. Instead the graph calls whatever a data worker has registered as its first two functions
(`Offer`), and passes the name of the source, or a record file's path and digest.
"""

import functools
import os
import re
import warnings
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from cifar10.core import files
from cifar10.core.errors import SourceError
from cifar10.data import input_pipeline, manifest, stream
from cifar10.data.python_source import PythonSource

SPLITS = 16  # Of an epoch: a data worker that dies loses the split it reads, and its buffer.
_TOKEN, _FILE_TOKEN = 'pyfunc_0', 'pyfunc_1'  # TensorFlow's names for a process's first functions.
_CHUNK = 100  # Records parsed at a time.


class Offer:
  """Runs a data worker's source for the trainings that request it, and checks their record files.

  There is at most one in a process.
  """

  def __init__(self, source: PythonSource | None, address: str):
    """Registers its functions, before anything else registers a Python function.

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
      checked = tf.numpy_function(self._check_file, ['', ''], tf.string)
    tokens = tuple(each.op.get_attr('token').decode() for each in (answer[0], checked))
    assert tokens == (_TOKEN, _FILE_TOKEN), tokens

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

  def _check_file(self, path: bytes, sha256: bytes) -> bytes:
    """Returns the path; raises SourceError if the training's file is another one."""
    file = os.fsdecode(path)
    if _digest(file, files.signature(file)) != sha256.decode():
      raise SourceError(
        f'the data worker {self._address} has another {file} than the training (its SHA-256 '
        "differs); copy the training's there, and restart it"
      )
    return path


@functools.cache
def _digest(path: str, signature: tuple[int, int]) -> str:
  """A file's SHA-256, computed once while it has this signature."""
  del signature
  return manifest.file_digest(path)


def from_offers(name: str, num_classes: int) -> stream.ReadSplit:
  """Returns a reader of a source's splits through the data worker's `Offer`."""

  def call(handle: tf.Tensor, split: tf.Tensor) -> Any:
    numbers = [tf.constant(num_classes, tf.int64), handle, split, tf.constant(SPLITS, tf.int64)]
    asked = [tf.constant(name), *numbers]
    return tf.raw_ops.PyFunc(input=asked, token=_TOKEN, Tout=list(stream.ANSWER))

  return stream.from_server(call)


def from_files(
  data_set: input_pipeline.RecordDataset, digests: Mapping[str, str]
) -> stream.ReadSplit:
  """Returns a reader of every 16th record of the files, at the same path on each data worker.

  `digests`: by path, the SHA-256 of those files that a data worker is to check.
  """

  def checked(path: str) -> Any:
    asked = [tf.constant(path), tf.constant(digests[path])]
    return tf.raw_ops.PyFunc(input=asked, token=_FILE_TOKEN, Tout=[tf.string])[0]

  def read(split: tf.Tensor) -> tf.data.Dataset:
    paths = [checked(path) if path in digests else path for path in data_set.get_filenames()]
    serialized = tf.data.TFRecordDataset(paths).shard(SPLITS, split)
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
  if 'callback with key=pyfunc_' in message:
    where = f' {worker[1]}' if worker else ''
    return (
      f'the data worker{where} was not started by python -m cifar10.data_service, and can neither '
      'run --source nor check record files; end it'
    )
  if worker or 'tf.data service' in message or 'data service dispatcher' in message:
    lines = [line for line in message.splitlines() if line and line != 'Graph execution error:']
    return f'the data service failed: {lines[0]:.300}'
  return ''
