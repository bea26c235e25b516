"""Prefetches batches to GPUs while the step before computes.

By default TensorFlow copies a batch when its step begins, and the GPU waits. Here each step takes
the batch that the step before has put on its tower's device, and meanwhile puts the next one
there, like tensorpack's StagingInput and TensorFlow's guide "High-Performance Models" (section
"Parallelize CPU-to-GPU Data Transfer"). The order of batches does not change: the first batch is
put there before the first step, also when a job resumes.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cifar10.training.step_parts import Shards, StepPart


class Part(StepPart):
  """Adds the prefetch to a training step."""

  def shards(self, shards: Shards) -> Shards:
    self._prefetch = GpuPrefetch(shards, self._step.tower_devices)
    return self._prefetch.shards

  def train_op(self, train_op: tf.Operation) -> tf.Operation:
    return tf.group(train_op, self._prefetch.put)

  def hooks(self) -> list[Any]:
    return [FirstBatchHook(self._prefetch)]


class GpuPrefetch:
  """Keeps one batch ahead on the towers' devices.

  Attributes:
    shards: for each tower, its (images, labels) on its device.
    put: the op that puts the next batch there; each step runs it.
    clear: the op that drops what is there.
  """

  def __init__(self, shards: Shards, devices: Sequence[str]):
    """Args:
    shards: for each tower, (images, labels).
    devices: the towers' devices.
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
    self.clear = tf.group(*clears)


class FirstBatchHook(tf.compat.v1.train.SessionRunHook):
  """Puts the first batch there in each new session."""

  def __init__(self, prefetch: GpuPrefetch):
    self._prefetch = prefetch

  def after_create_session(self, session: Any, coord: Any) -> None:
    # Clears what an earlier session of this process left: a worker that lost a parameter server
    # creates another session.
    session.run(self._prefetch.clear)
    session.run(self._prefetch.put)
