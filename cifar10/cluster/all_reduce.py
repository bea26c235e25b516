"""Training by all-reduce, with a strategy of tf.distribute: on one host, or between processes."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.cluster.control import ControlState, SharedControl, StopRequested, from_vector
from cifar10.cluster.roles import Role
from cifar10.cluster.task_roles import TaskRole
from cifar10.core.errors import InputError
from cifar10.core.estimator import REDUCES_BETWEEN_PROCESSES
from cifar10.options.run_options import RunOptions


class Mirrored(Role):
  """A single process with a replica on each of its devices."""

  all_reduce = True
  is_alone = False

  def strategy(self, devices: Sequence[str], num_gpus: int) -> Any:
    del num_gpus
    _quieten()
    made = tf.distribute.MirroredStrategy(devices)
    self.monitor.listen()
    return made


class MultiWorker(TaskRole):
  """The chief or a worker of an all-reduce between processes."""

  all_reduce = True
  ends_by_itself = False

  def _make_control(self) -> SharedControl:
    return SummedControl(self.cluster.is_chief)

  def strategy(self, devices: Sequence[str], num_gpus: int) -> Any:
    """It starts TensorFlow's server, and then waits for the others where no other thread runs."""
    del devices
    _quieten()
    self.monitor.wait_for_peers()
    cluster = self.cluster
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
      tf.train.ClusterSpec(dict(cluster.addresses)),
      task_type=cluster.task_type,
      task_id=cluster.task_index,
      num_accelerators={'GPU': num_gpus},
      rpc_layer='grpc',
    )
    made = tf.distribute.MultiWorkerMirroredStrategy(resolver)
    self.monitor.listen()
    return made

  def training_hooks(self, optimizer: Any, last_step: int) -> list[Any]:
    del optimizer, last_step
    return [_AgreementHook(self.monitor, self.control)]

  def control_hooks(self, stop_request: StopRequested) -> list[Any]:
    """Returns no hooks: the step itself distributes the chief's control state."""
    return super().control_hooks(stop_request) if self.saves else []


def check(options: RunOptions) -> None:
  """Raises InputError for an all-reduce that this TensorFlow's Estimator cannot do."""
  name = 'multi_worker_mirrored'
  if options.distribute == name and not REDUCES_BETWEEN_PROCESSES:
    raise InputError(
      f"--distribute {name} needs the Estimator's part in TensorFlow, which {tf.__version__} no "
      'longer has; use parameter servers, or Python 3.10 or 3.11 with TensorFlow 2.15.1'
    )


def to_replicas(batches: tf.data.Dataset) -> tf.data.Dataset:
  """Splits the input's batches of n shards into n elements of one shard, in the towers' order.

  The strategies of tf.distribute give consecutive elements to consecutive replicas.
  """

  def elements(images, labels):
    return tf.data.Dataset.from_tensor_slices(((tf.stack(images),), (tf.stack(labels),)))

  return batches.flat_map(elements).prefetch(tf.data.AUTOTUNE)


class SummedControl(SharedControl):
  """Control state between processes without a server: the chief feeds it, and each step sums it.

  So all obey at the same step.
  """

  def __init__(self, is_chief: bool):
    """`is_chief`: whether this process orders."""
    super().__init__()
    self._is_chief = is_chief

  def build(self) -> None:
    """Adds the vector to the graph, like `SharedControl`."""
    size = len(ControlState._fields)
    self._fed = tf.compat.v1.placeholder_with_default(tf.zeros([size]), [size], 'orders')
    replica = tf.distribute.get_replica_context()
    self.values = replica.all_reduce(tf.distribute.ReduceOp.SUM, self._fed)

  def tell(self, session: Any) -> None:
    """Does nothing: the next step distributes the state."""

  def end(self, run_context: Any) -> None:
    """Ends training with the next step."""
    self.state = self.state._replace(ends=True)

  def feed(self) -> dict[Any, np.ndarray]:
    """For a step that adds the vectors up: the chief's orders; nothing of any other."""
    return {self._fed: self.state.vector()} if self._is_chief else {}


class _AgreementHook(tf.compat.v1.train.SessionRunHook):
  """Ends all-reduce training in all processes after the same step: by control or by SIGTERM.

  A process that left earlier would leave the others in an all-reduce, and prevent a save.
  """

  def __init__(self, monitor: Any, control: Any):
    """Builds its part of the graph, in a replica of a strategy where `control` was built."""
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


def _quieten() -> None:
  # Said of every v1 graph: that options could not be kept if the graph were saved. It is not.
  warnings.filterwarnings('ignore', 'To make it possible to preserve tf.data options')
