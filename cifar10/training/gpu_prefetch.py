"""Batches that are copied to a GPU while the step before theirs computes.

TensorFlow copies a batch when the step that needs it begins, and the GPU waits. Here each step
takes the batch that the step before put on its tower's device, and puts the next one there
meanwhile, as tensorpack's StagingInput and TensorFlow's guide "High-Performance Models" (section
"Parallelize CPU-to-GPU Data Transfer") do. The order of batches stays as it is: the first is put
there before the first step, also of a job that goes on.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cifar10.training.step_parts import Shards, Step, StepPart


class _Part(StepPart):
  def __init__(self, step: Step):
    self._devices = step.tower_devices

  def shards(self, shards: Shards) -> Shards:
    self._prefetch = GpuPrefetch(shards, self._devices)
    return self._prefetch.shards

  def train_op(self, train_op: tf.Operation) -> tf.Operation:
    return tf.group(train_op, self._prefetch.put)

  def hooks(self) -> list[Any]:
    return [self._prefetch.make_hook()]


make = _Part


class GpuPrefetch:
  """One batch ahead, on the towers' devices.

  Attributes:
    shards: for each tower, (images, labels) as they were given, but on its device.
    put: the op that puts the next batch there. Each step runs it.
  """

  def __init__(self, shards: Shards, devices: Sequence[str]):
    """Args:
    shards: for each tower, (images, labels).
    devices: each tower's.
    """
    puts, clears = [], []
    self.shards: list[tuple[tf.Tensor, tf.Tensor]] = []
    for index, (device, shard) in enumerate(zip(devices, shards)):
      area, dtypes = f'batches_of_tower_{index}', [part.dtype for part in shard]
      with tf.compat.v1.device(device), tf.name_scope(f'staging_{index}'):
        puts.append(tf.raw_ops.Stage(values=list(shard), shared_name=area))
        clears.append(tf.raw_ops.StageClear(dtypes=dtypes, shared_name=area))
        images, labels = tf.raw_ops.Unstage(dtypes=dtypes, shared_name=area)
      images.set_shape(shard[0].shape)
      labels.set_shape(shard[1].shape)
      self.shards.append((images, labels))
    self.put = tf.group(*puts)
    self._clear = tf.group(*clears)

  def make_hook(self) -> tf.compat.v1.train.SessionRunHook:
    """Puts the first batch there, in each new session."""
    return _FirstBatchHook(self._clear, self.put)


class _FirstBatchHook(tf.compat.v1.train.SessionRunHook):
  def __init__(self, clear: tf.Operation, put: tf.Operation):
    self._clear = clear
    self._put = put

  def after_create_session(self, session: Any, coord: Any) -> None:
    # What an earlier session of this process left there: a worker makes another one when it has
    # lost a parameter server.
    session.run(self._clear)
    session.run(self._put)
