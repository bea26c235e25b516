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


class SharedControl(tf.compat.v1.train.SessionRunHook):
  """A process's access to the state. The chief sets `state`, and its hook writes it.

  A worker's session hook, by which it reads the state in every step and obeys it.
  """

  def __init__(self, device: str = '/device:CPU:0'):
    """`device`: the device of the vector."""
    self.state = ControlState()
    self._device = device

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
      return tf.cond(
        tf.raw_ops.VarIsInitializedOp(resource=self._handle),
        lambda: tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tf.float32),
        lambda: tf.constant(np.array(ControlState(), np.float32)),
      )

  def rates(self, learning_rate: Any, muon_learning_rate: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns both learning rates, or the values set in their places: float32 scalars."""
    rate, muon_rate = self.values[1], self.values[2]
    muon_rate = tf.where(muon_rate >= 0, muon_rate, muon_learning_rate)
    return tf.where(rate >= 0, rate, learning_rate), muon_rate

  def tell(self, session: tf.compat.v1.Session) -> None:
    """Writes this process's state where the other replicas read it."""
    session.run(self._assign, {self._fed: self.state})

  def before_run(self, run_context: Any) -> Any:
    return tf.compat.v1.train.SessionRunArgs(self.values)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self.state = ControlState(*run_values.results)
    if self.state.ends:
      run_context.request_stop()


class ChiefControlHook(tf.compat.v1.train.SessionRunHook):
  """The chief's hook: ends training where the state says so, and writes it when it has changed."""

  def __init__(self, control: SharedControl):
    self._control = control

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._tell(session)  # A lost parameter server has lost the state.

  def after_run(self, run_context: Any, run_values: Any) -> None:
    if self._control.state.ends:
      run_context.request_stop()
    if self._control.state != self._told:
      self._tell(run_context.session)

  def _tell(self, session: Any) -> None:
    self._told = self._control.state
    self._control.tell(session)
