"""The hooks by which a replica gives and obeys the chief's orders (cluster/steering.py)."""

import time
from typing import Any

import tensorflow as tf

from cifar10.callbacks.ending import Ending
from cifar10.cluster.steering import Orders, Steering, from_vector
from cifar10.cluster.watch import Watch

_LOOK_SECONDS = 0.5  # While paused.


class LeaderHook(tf.compat.v1.train.SessionRunHook):
  """The chief's: orders the end when that was asked for, and tells what orders have changed.

  Where all replicas agree on orders within a step, AgreementHook does the rest.
  """

  def __init__(self, steering: Steering, ending: Ending):
    self._steering = steering
    self._ending = ending
    self._told = Orders()

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._tell(session)  # Again after a parameter server was lost, and the orders with it.

  def after_run(self, run_context: Any, run_values: Any) -> None:
    if self._ending.reason:
      self._steering.orders = self._steering.orders._replace(ends=True)
      if not self._steering.agrees:
        run_context.request_stop()
    if self._steering.orders != self._told:
      self._tell(run_context.session)

  def _tell(self, session: Any) -> None:
    self._told = self._steering.orders
    if not self._steering.agrees:
      self._steering.tell(session)


class FollowerHook(tf.compat.v1.train.SessionRunHook):
  """A worker's, beside parameter servers: reads the orders with every step, and obeys."""

  def __init__(self, steering: Steering, watch: Watch):
    self._steering = steering
    self._watch = watch

  def before_run(self, run_context: Any) -> Any:
    return tf.compat.v1.train.SessionRunArgs(self._steering.values)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self._steering.orders = from_vector(run_values.results)
    while self._steering.orders.pauses and not self._watch.stopping:
      time.sleep(_LOOK_SECONDS)
      self._watch.progressed()  # Nobody is being waited for.
      self._steering.orders = from_vector(run_context.session.run(self._steering.values))
    if self._steering.orders.ends:
      run_context.request_stop()


class AgreementHook(tf.compat.v1.train.SessionRunHook):
  """Ends all-reduce training in all processes after the same step: by order, or by SIGTERM to any.

  One that left earlier would leave the others inside an all-reduce, and the chief unable to save.
  """

  def __init__(self, watch: Watch, steering: Steering):
    """Builds its part of the graph, in a replica of a strategy where `steering` was built."""
    self._watch = watch
    self._steering = steering
    self._stops = tf.compat.v1.placeholder_with_default(0.0, [], 'stops')
    replica = tf.distribute.get_replica_context()
    self._any_stops = replica.all_reduce(tf.distribute.ReduceOp.SUM, self._stops)

  def before_run(self, run_context: Any) -> Any:
    feed = {self._stops: float(self._watch.stopping), **self._steering.feed()}
    return tf.compat.v1.train.SessionRunArgs([self._any_stops, self._steering.values], feed)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    any_stops, values = run_values.results
    if any_stops:
      self._watch.stop_with_others()
    if any_stops or from_vector(values).ends:
      run_context.request_stop()
