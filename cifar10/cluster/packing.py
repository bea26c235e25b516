"""Buckets: tensors that pass between a worker and a parameter server together, as one tensor.

Each tensor that passes from process to process is a remote call. A ResNet-20 has 65 trained
variables of 17 KB on average, whose calls cost more than their bytes. As in PyTorch's
DistributedDataParallel (Li et al. 2020, arXiv 2006.15704, section 3.2.2), a bucket is limited, so
that some of a large network's tensors pass while others are still being computed.
"""

from collections.abc import Iterable, Sequence

import tensorflow as tf

BUCKET_BYTES = 4 * 2**20  # At most; a larger tensor has a bucket of its own.


class Bucket:
  """Some variables of one device and dtype."""

  def __init__(self, first: tf.Variable):
    """Begins with one member."""
    self.device: str = first.device
    self.dtype: tf.DType = first.dtype.base_dtype
    self.members = [first]
    self.size = _size(first)  # Numbers in all.

  def add(self, member: tf.Variable) -> bool:
    """Adds a further member and returns True, if it is of this kind and the bucket has room."""
    is_alike = (self.device, self.dtype) == (member.device, member.dtype.base_dtype)
    fits = (self.size + _size(member)) * self.dtype.size <= BUCKET_BYTES
    if is_alike and fits:
      self.members.append(member)
      self.size += _size(member)
    return is_alike and fits

  def unpack(self, packed: tf.Tensor) -> list[tf.Tensor]:
    """Returns the tensors, which have the members' shapes, that `pack` made into one."""
    parts = tf.split(packed, list(map(_size, self.members)))
    return [tf.reshape(part, member.shape) for part, member in zip(parts, self.members)]


def pack(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
  """Returns all numbers of tensors of one dtype, on the first one's device: [numbers]."""
  with tf.device(tensors[0].device):
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)


def fill(members: Iterable[tf.Variable]) -> list[Bucket]:
  """Returns buckets for all these members, those of each device in their order."""
  buckets: list[Bucket] = []
  last: dict[str, Bucket] = {}  # By device.
  for member in members:
    if member.device not in last or not last[member.device].add(member):
      last[member.device] = Bucket(member)
      buckets.append(last[member.device])
  return buckets


def push(
  tensors: Sequence[tf.Tensor], variables: Sequence[tf.Variable]
) -> list[tuple[tf.Tensor, tf.Variable]]:
  """Brings tensors to the variables that they are for, each bucket as one tensor.

  Args:
    tensors: on one device, each of its variable's shape and dtype.
    variables: on their parameter servers.

  Returns:
    (tensor, variable) pairs, each on the variable's device.
  """
  arrived: list[tuple[tf.Tensor, tf.Variable]] = []
  for bucket, packed in in_buckets(tensors, variables):
    with tf.device(bucket.device):
      arrived += zip(bucket.unpack(packed), bucket.members)
  return arrived


def in_buckets(
  tensors: Sequence[tf.Tensor], variables: Sequence[tf.Variable]
) -> list[tuple[Bucket, tf.Tensor]]:
  """Returns the buckets of these variables, each with its tensors packed; arguments as `push`."""
  by_name = {variable.name: tensor for tensor, variable in zip(tensors, variables)}
  return [
    (bucket, pack([by_name[variable.name] for variable in bucket.members]))
    for bucket in fill(variables)
  ]


def _size(member: tf.Variable) -> int:
  return member.shape.num_elements()
