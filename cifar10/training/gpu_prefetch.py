"""Prefetches batches to GPUs while the step before computes.

By default TensorFlow copies a batch when its step begins, and the GPU waits. Here each step takes
the batch that the step before has put on its tower's device, and meanwhile puts the next one
there, like tensorpack's StagingInput and TensorFlow's guide "High-Performance Models" (section
"Parallelize CPU-to-GPU Data Transfer"). The order of batches does not change: the first batch is
put there before the first step, also when a job resumes.
"""

from typing import Any

import tensorflow as tf

from cifar10.training.step_parts import Shards, StepPart


class Part(StepPart, tf.compat.v1.train.SessionRunHook):
  """Keeps one batch ahead on the towers' devices; is the hook that puts the first one there."""

  def shards(self, shards: Shards) -> Shards:
    puts, clears = [], []
    taken: list[tuple[tf.Tensor, tf.Tensor]] = []
    for index, (device, shard) in enumerate(zip(self._step.tower_devices, shards)):
      area, dtypes = f'batches_of_tower_{index}', [part.dtype for part in shard]
      with tf.compat.v1.device(device), tf.name_scope(f'staging_{index}'):
        puts.append(tf.raw_ops.Stage(values=list(shard), shared_name=area))
        clears.append(tf.raw_ops.StageClear(dtypes=dtypes, shared_name=area))
        images, labels = tf.raw_ops.Unstage(dtypes=dtypes, shared_name=area)
      images.set_shape(shard[0].shape)
      labels.set_shape(shard[1].shape)
      taken.append((images, labels))
    self._put, self._clear = tf.group(*puts), tf.group(*clears)
    return taken

  def train_op(self, train_op: tf.Operation) -> tf.Operation:
    return tf.group(train_op, self._put)

  def hooks(self) -> list[Any]:
    return [self]

  def after_create_session(self, session: Any, coord: Any) -> None:
    # Clears what an earlier session of this process left: a worker that lost a parameter server
    # creates another session.
    session.run(self._clear)
    session.run(self._put)
