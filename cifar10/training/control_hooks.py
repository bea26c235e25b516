"""The hooks by which a replica gives and obeys the chief's orders (cluster/control_state.py)."""

import time
from typing import Any

import tensorflow as tf

from cifar10.cluster.control_state import ControlState, SharedControl, from_vector
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.job.stop_record import StopRequest

_LOOK_SECONDS = 0.5  # While paused.


class ChiefControlHook(tf.compat.v1.train.SessionRunHook):
  """The chief's: orders the end when that was asked for, and tells what orders have changed.

  Where all replicas agree on orders within a step, AgreementHook does the rest.
  """

  def __init__(self, control: SharedControl, stop_request: StopRequest):
    self._control = control
    self._stop_request = stop_request
    self._told = ControlState()

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._tell(session)  # Again after a parameter server was lost, and the orders with it.

  def after_run(self, run_context: Any, run_values: Any) -> None:
    if self._stop_request.reason:
      self._control.state = self._control.state._replace(ends=True)
      if not self._control.is_all_reduce:
        run_context.request_stop()
    if self._control.state != self._told:
      self._tell(run_context.session)

  def _tell(self, session: Any) -> None:
    self._told = self._control.state
    if not self._control.is_all_reduce:
      self._control.tell(session)


class WorkerControlHook(tf.compat.v1.train.SessionRunHook):
  """A worker's, beside parameter servers: reads the orders with every step, and obeys."""

  def __init__(self, control: SharedControl, monitor: LivenessMonitor):
    self._control = control
    self._monitor = monitor

  def before_run(self, run_context: Any) -> Any:
    return tf.compat.v1.train.SessionRunArgs(self._control.values)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self._control.state = from_vector(run_values.results)
    while self._control.state.pauses and not self._monitor.stopping:
      time.sleep(_LOOK_SECONDS)
      self._monitor.progressed()  # Nobody is being waited for.
      self._control.state = from_vector(run_context.session.run(self._control.values))
    if self._control.state.ends:
      run_context.request_stop()


class AllReduceControlHook(tf.compat.v1.train.SessionRunHook):
  """Ends all-reduce training in all processes after the same step: by order, or by SIGTERM to any.

  One that left earlier would leave the others inside an all-reduce, and the chief unable to save.
  """

  def __init__(self, monitor: LivenessMonitor, control: SharedControl):
    """Builds its part of the graph, in a replica of a strategy where `steering` was built."""
    self._monitor = monitor
    self._control = control
    self._stops = tf.compat.v1.placeholder_with_default(0.0, [], 'stops')
    replica = tf.distribute.get_replica_context()
    self._any_stops = replica.all_reduce(tf.distribute.ReduceOp.SUM, self._stops)

  def before_run(self, run_context: Any) -> Any:
    feed = {self._stops: float(self._monitor.stopping), **self._control.feed()}
    return tf.compat.v1.train.SessionRunArgs([self._any_stops, self._control.values], feed)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    any_stops, values = run_values.results
    if any_stops:
      self._monitor.stop_with_others()
    if any_stops or from_vector(values).ends:
      run_context.request_stop()
