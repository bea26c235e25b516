"""Prefetches batches to GPUs while the step before computes.

By default TensorFlow copies a batch when its step begins, and the GPU waits. Here each step takes
the batch that the step before has put on its tower's device, and meanwhile puts the next one
there, like tensorpack's StagingInput and TensorFlow's guide "High-Performance Models" (section
"Parallelize CPU-to-GPU Data Transfer"). The order of batches does not change: the first batch is
put there before the first step, also when a job resumes.
"""

from collections.abc import Sequence

import tensorflow as tf

from cifar10.training.towers import Shards


def staged(
  shards: Shards, devices: Sequence[str]
) -> tuple[Shards, tf.Operation, tf.compat.v1.train.SessionRunHook]:
  """Keeps one batch ahead on the towers' devices.

  Returns:
    The shards to take in place of these, the operation that each step must run to put the next ones
      there, and the hook that puts the first ones there.
  """
  puts, clears = [], []
  taken: list[tuple[tf.Tensor, tf.Tensor]] = []
  for index, (device, shard) in enumerate(zip(devices, shards)):
    area, dtypes = f'batches_of_tower_{index}', [part.dtype for part in shard]
    with tf.compat.v1.device(device), tf.name_scope(f'staging_{index}'):
      puts.append(tf.raw_ops.Stage(values=list(shard), shared_name=area))
      clears.append(tf.raw_ops.StageClear(dtypes=dtypes, shared_name=area))
      images, labels = tf.raw_ops.Unstage(dtypes=dtypes, shared_name=area)
    images.set_shape(shard[0].shape)
    labels.set_shape(shard[1].shape)
    taken.append((images, labels))
  put = tf.group(*puts)
  return taken, put, _FirstBatch(tf.group(*clears), put)


class _FirstBatch(tf.compat.v1.train.SessionRunHook):
  """Puts the first batch there when a session begins."""

  def __init__(self, clear: tf.Operation, put: tf.Operation):
    self._clear, self._put = clear, put

  def after_create_session(
    self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
  ) -> None:
    # Clears what an earlier session of this process left: a worker that lost a parameter server
    # creates another session.
    session.run(self._clear)
    session.run(self._put)
