"""What the chief orders of all replicas between two steps: to end, to pause, a learning rate.

Orders are a small vector that every replica reads as a part of its step. It is a resource on the
first parameter server (in one process: on its CPU) that is in no collection: checkpoints do not
hold it, and a replica that finds it uninitialised has no orders. An all-reduce between processes
has a vector of its own (all_reduce.py).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf


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
  """The inverse of `ControlState.vector`; of an all-reduce that has not begun, too: all 0."""
  rates = (None if math.isclose(rate, -1) else float(rate) for rate in values[2:])
  return ControlState(bool(values[0]), bool(values[1]), *rates)


class StopRequested(Protocol):
  """Whether, and why, training is to end before its last step."""

  @property
  def reason(self) -> Any: ...


class SharedControl:
  """One process's end of it. The chief sets `state`, and its hook tells the others."""

  def __init__(self, device: str = '/device:CPU:0'):
    """`device`: where the vector is."""
    self.state = ControlState()
    self._device = device

  def build(self) -> None:
    """Adds the vector to the graph of a replica: `values`, float32 [4]."""
    size = len(ControlState._fields)
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
    first, second = (tf.where(rate >= 0, rate, plan) for rate, plan in zip(ordered, rates))
    return first, second

  def tell(self, session: Any) -> None:
    """Writes this process's orders where the other replicas read them."""
    session.run(self._assign, {self._fed: self.state.vector()})

  def end(self, run_context: Any) -> None:
    """Orders the end, which begins with this process."""
    self.state = self.state._replace(ends=True)
    run_context.request_stop()


class ChiefControlHook(tf.compat.v1.train.SessionRunHook):
  """The chief's: orders the end when that was asked for, and tells what orders have changed."""

  def __init__(self, control: SharedControl, stop_request: StopRequested):
    self._control = control
    self._stop_request = stop_request
    self._told = ControlState()

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._tell(session)  # Again after a parameter server was lost, and the orders with it.

  def after_run(self, run_context: Any, run_values: Any) -> None:
    if self._stop_request.reason:
      self._control.end(run_context)
    if self._control.state != self._told:
      self._tell(run_context.session)

  def _tell(self, session: Any) -> None:
    self._told = self._control.state
    self._control.tell(session)
