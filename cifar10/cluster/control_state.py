"""What the chief orders of all replicas between two steps: to end, to pause, a learning rate.

Orders are a small vector that every replica reads as a part of its step. It is a resource on the
first parameter server (in one process: on its CPU) that is in no collection: checkpoints do not
hold it, and a replica that finds it uninitialised has no orders. Under an all-reduce between
processes the chief feeds the vector and the step adds it up, so that all obey at the same step.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.cluster.tf_config import Cluster


class ControlState(NamedTuple):
  """All that can be ordered."""

  ends: bool = False  # as if the last step had been made
  pauses: bool = False
  learning_rate: float | None = None  # in place of the schedule's
  muon_learning_rate: float | None = None

  def vector(self) -> np.ndarray:
    """float32 [4]; a rate that the schedule says is -1."""
    rates = (-1.0 if rate is None else rate for rate in self[2:])
    return np.array([self.ends, self.pauses, *rates], np.float32)


def from_vector(values: Sequence[float]) -> ControlState:
  """The inverse of `Orders.vector`; of an all-reduce that has not begun, too: all 0."""
  rates = (None if math.isclose(rate, -1) else float(rate) for rate in values[2:])
  return ControlState(bool(values[0]), bool(values[1]), *rates)


class SharedControl:
  """One process's end of it. The chief sets `orders`, and its hook tells them to the others."""

  def __init__(self, cluster: Cluster, all_reduce: bool = False):
    """Args:
    cluster: whose chief orders.
    all_reduce: whether tf.distribute sums gradients, between processes where there are several.
    """
    self.state = ControlState()
    self.is_all_reduce = all_reduce and cluster.is_distributed
    self._is_chief = cluster.is_chief
    on_ps = cluster.is_distributed and not all_reduce
    self._device = '/job:ps/task:0/device:CPU:0' if on_ps else f'{cluster.job}/device:CPU:0'

  def build(self) -> None:
    """Adds the vector to the graph of a replica: `values`, float32 [4]."""
    size = len(ControlState._fields)
    if self.is_all_reduce:
      self._fed = tf.compat.v1.placeholder_with_default(tf.zeros([size]), [size], 'orders')
      replica = tf.distribute.get_replica_context()
      self.values = replica.all_reduce(tf.distribute.ReduceOp.SUM, self._fed)
      return
    with tf.device(self._device):
      self._fed = tf.compat.v1.placeholder(tf.float32, [size], 'orders')
      self._handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[size], shared_name='orders')
      self._assign = tf.raw_ops.AssignVariableOp(resource=self._handle, value=self._fed)
    self.values = self.read()

  def read(self) -> tf.Tensor:
    """The vector as it is when this runs: for a part of the graph that waits before it reads."""
    with tf.device(self._device):
      is_there = tf.raw_ops.VarIsInitializedOp(resource=self._handle)
      return tf.cond(
        is_there,
        lambda: tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tf.float32),
        lambda: tf.constant(ControlState().vector()),
      )

  def rates(self, learning_rate: Any, muon_learning_rate: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """The two learning rates, or what was ordered in their places: float32 scalars."""
    ordered = self.values[2], self.values[3]
    rates = (learning_rate, muon_learning_rate)
    first, second = (tf.where(rate >= 0, rate, said) for rate, said in zip(ordered, rates))
    return first, second

  def tell(self, session: Any) -> None:
    """Writes this process's orders where the other replicas read them."""
    session.run(self._assign, {self._fed: self.state.vector()})

  def feed(self) -> dict[Any, np.ndarray]:
    """For a step that adds the vectors up: the chief's orders; nothing of any other."""
    return {self._fed: self.state.vector()} if self._is_chief else {}
