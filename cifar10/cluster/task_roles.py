"""The roles of a cluster's tasks: the base of those that train, and the evaluator."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from cifar10.cluster.roles import Role
from cifar10.cluster.signals import SignalMonitor
from cifar10.options.run_options import RunOptions


class TaskRole(Role):
  """Base of the tasks that train together."""

  @property
  def evaluates_on_the_way(self) -> bool:
    return False

  @property
  def counts_steps(self) -> bool:
    return self.saves and self.gradients_per_update > 0

  def described(self) -> str:
    """Returns ', as worker 0 of 3 workers and 1 parameter server(s), updating asynchronously'."""
    cluster, gradients = self.cluster, self.gradients_per_update
    updates = f'every {gradients} gradients' if gradients else 'asynchronously'
    servers = f' and {cluster.num_ps} parameter server(s)' if cluster.num_ps else ''
    return f', as {cluster.name} of {cluster.num_workers} workers{servers}, updating {updates}'

  def scaffold(self, local_init_op: Any = None) -> Any:
    """The Estimator's: a worker waits until the chief has initialised the variables."""

  @contextlib.contextmanager
  def connected(self, session_config: Any) -> Iterator[None]:
    """Starts TensorFlow's server, which the other tasks reach.

    The Estimator's own would have no more of the configuration than the GPUs' options: neither
    threads nor virtual CPUs. `Cluster.tf_config` keeps it from starting one.
    """
    _shorten_waits()
    cluster = self.cluster
    self._server = tf.distribute.Server(
      tf.train.ClusterSpec(dict(cluster.addresses)),
      cluster.task_type,
      cluster.task_index,
      config=session_config,
    )
    yield


class AfterExchange:
  """An optimizer whose update is made with gradients that were first exchanged with other tasks."""

  def __init__(self, optimizer: Any, exchange: Callable[[Any, Any], Any]):
    """`exchange`: gradients and their variables -> (gradient, variable) pairs."""
    self._optimizer, self._exchange = optimizer, exchange

  def apply_gradients(self, gradients: Any, global_step: Any) -> tf.Operation:
    """As any optimizer's: of (gradient, variable) pairs, dense."""
    return self._optimizer.apply_gradients(self._exchange(*zip(*gradients)), global_step)


class Evaluator(Role):
  """The evaluator, which evaluates the checkpoints of a chief."""

  def _make_monitor(self, options: RunOptions) -> SignalMonitor:
    return SignalMonitor()


def _shorten_waits() -> None:
  """Makes a worker check every second, not every 30, whether the chief has initialised the model.

  MonitoredTrainingSession creates its session manager without passing on an interval.
  """
  manager = tf.compat.v1.train.SessionManager
  if not isinstance(vars(manager)['__init__'], functools.partialmethod):
    manager.__init__ = functools.partialmethod(manager.__init__, recovery_wait_secs=1)
