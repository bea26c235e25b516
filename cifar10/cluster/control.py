"""The state by which the chief controls all replicas between steps: end, learning rates.

The state is a small vector that every replica reads in its step. It is a resource on the first
parameter server (in a single process: on its CPU) in no collection: checkpoints do not contain it,
and a replica that finds it uninitialised is not controlled. An all-reduce between processes has a
vector of its own (all_reduce.py).
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

_SCHEDULE = -1.0  # In place of a rate: the schedule's.


class ControlState(NamedTuple):
  """Everything that the chief can control; as a vector, float32 [3]."""

  ends: float = False  # like after the last step
  learning_rate: float = _SCHEDULE
  muon_learning_rate: float = _SCHEDULE

  def rates(self) -> dict[str, float]:
    """Returns the rates that replace the schedule's, by name."""
    named = self._asdict().items()
    return {name: rate for name, rate in named if name != 'ends' and rate != _SCHEDULE}

  def with_rate(self, name: str, rate: float | None) -> 'ControlState':
    """Returns it with another rate; raises ValueError for one that is negative or not finite."""
    if rate is not None and not 0 <= rate <= np.finfo(np.float32).max:
      raise ValueError(f'{name} is {rate}; it must be finite and 0 or more, or None')
    return self._replace(**{name: _SCHEDULE if rate is None else float(rate)})


def value_or(handle: tf.Tensor, default: np.ndarray) -> tf.Tensor:
  """Returns the value of a resource variable, or a default of its type until it has one."""
  return tf.cond(
    tf.raw_ops.VarIsInitializedOp(resource=handle),
    lambda: tf.raw_ops.ReadVariableOp(resource=handle, dtype=default.dtype),
    lambda: tf.constant(default),
  )


class SharedControl(tf.compat.v1.train.SessionRunHook):
  """A process's access to the state, and the session hook by which it obeys.

  The chief sets `state`, and the hook writes it where that has changed; a worker's reads it in
  every step. The state is a vector on `device` (see above).
  """

  def __init__(self, device: str = '/device:CPU:0', is_chief: bool = True):
    self.state = ControlState()
    self._device, self._is_chief = device, is_chief

  def build(self) -> None:
    """Adds the vector, `values`, float32 [3], to the graph of a replica."""
    size = len(ControlState._fields)
    with tf.device(self._device):
      self._fed = tf.compat.v1.placeholder(tf.float32, [size], 'orders')
      self._handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[size], shared_name='orders')
      self._assign = tf.raw_ops.AssignVariableOp(resource=self._handle, value=self._fed)
    self.values = self.read()

  def read(self) -> tf.Tensor:
    """Reads the vector when this runs: for parts of the graph that wait before they read."""
    with tf.device(self._device):
      return value_or(self._handle, np.array(ControlState(), np.float32))

  def rates(self, learning_rate: Any, muon_learning_rate: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns both learning rates, or the values set in their places: float32 scalars."""
    rate, muon_rate = self.values[1], self.values[2]
    muon_rate = tf.where(muon_rate >= 0, muon_rate, muon_learning_rate)
    return tf.where(rate >= 0, rate, learning_rate), muon_rate

  def tell(self, session: tf.compat.v1.Session) -> None:
    """The chief's: writes its state where the other replicas read it."""
    self._told = self.state
    session.run(self._assign, {self._fed: self.state})

  def after_create_session(self, session: Any, coord: Any) -> None:
    if self._is_chief:  # A lost parameter server has lost the state.
      self.tell(session)

  def before_run(self, run_context: Any) -> Any:
    return None if self._is_chief else tf.compat.v1.train.SessionRunArgs(self.values)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    if not self._is_chief:
      self.state = ControlState(*run_values.results)
    elif self.state != self._told:
      self.tell(run_context.session)
    if self.state.ends:
      run_context.request_stop()
