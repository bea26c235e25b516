"""Training by all-reduce between processes, by TensorFlow's operations for it.

Each process has all variables and makes the same updates, from the mean of all gradients.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cifar10.cluster.control import ControlState, SharedControl
from cifar10.cluster.signals import SignalMonitor
from cifar10.cluster.tf_config import Cluster
from cifar10.core.logs import log


class Sums:
  """Sums over all processes of a cluster, in the graph of each."""

  def __init__(self, cluster: Cluster):
    self._cluster = cluster
    self._keys = itertools.count(1)  # All processes build the same sums in the same order.

  def of(self, values: Sequence[tf.Tensor], *, mean: bool = False) -> list[tf.Tensor]:
    """The sums, or means, of tensors of one type and of static shapes, in one message."""
    # Not CollectiveReduceV2: only by this one's attributes does a session see that a step is
    # collective, and needs the same step id in all processes.
    with tf.device(f'{self._cluster.job}/device:CPU:0'):
      total = tf.raw_ops.CollectiveReduce(
        input=tf.concat([tf.reshape(value, [-1]) for value in values], 0),
        group_size=self._cluster.num_workers,
        group_key=1,
        instance_key=next(self._keys),
        merge_op='Add',
        final_op='Div' if mean else 'Id',
        subdiv_offsets=[0],
      )
      parts = tf.split(total, [value.shape.num_elements() for value in values])
    return [tf.reshape(part, value.shape) for part, value in zip(parts, values)]

  def share_variables(self, *, are_here: bool) -> list[tf.Tensor]:
    """Returns what sets all processes' variables to those of the one where `are_here` is True."""
    shared: list[tf.Tensor] = []
    by_type = sorted(tf.compat.v1.global_variables(), key=lambda each: each.dtype.name)
    for _, group in itertools.groupby(by_type, lambda each: each.dtype):
      variables = list(group)
      if are_here:
        shared += self.of([variable.read_value() for variable in variables])
      else:  # What this process's own variables hold is not read.
        nothing = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
        shared += [each.assign(value) for each, value in zip(variables, self.of(nothing))]
    return shared


class SummedControl(SharedControl):
  """Control state between processes without a server, and the hook that ends all together.

  In each step the chief feeds its orders, and every process whether it is to stop; the step adds
  them up, so that all obey and end after the same one. A process that left earlier would leave the
  others in an all-reduce, and prevent a save. It is the first of all hooks, so that the monitor
  does not count a save as waiting for the others.
  """

  def __init__(self, sums: Sums, monitor: SignalMonitor, is_chief: bool):
    super().__init__(is_chief=is_chief)
    self._sums, self._monitor = sums, monitor

  def build(self) -> None:
    """As in `SharedControl`; last in the vector is how many processes are to stop."""
    nothing = tf.zeros([len(ControlState._fields) + 1])
    self._fed = tf.compat.v1.placeholder_with_default(nothing, nothing.shape, 'orders')
    [self.values] = self._sums.of([self._fed])

  def tell(self, session: tf.compat.v1.Session) -> None:
    """The next step does."""

  def before_run(self, run_context: Any) -> tf.compat.v1.train.SessionRunArgs:
    self._monitor.in_step = True
    orders = self.state if self._is_chief else [0] * len(ControlState._fields)
    fed = {self._fed: [*orders, self._monitor.stopping]}
    return tf.compat.v1.train.SessionRunArgs(self.values, fed)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self._monitor.in_step = False
    *orders, num_stopping = run_values.results
    if num_stopping and not self._monitor.stopping:
      log.info('another task was told to end: this one ends, too')
      self._monitor.stopping = True
    if num_stopping or ControlState(*orders).ends:
      run_context.request_stop()
