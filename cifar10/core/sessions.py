"""How a session uses this machine: its ConfigProto; and graphs beside the training's."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2

from cifar10.core import limits


def session_config(
  num_cpu_towers: int = 1,
  num_intra_threads: int = 0,
  num_inter_threads: int = 0,
  log_device_placement: bool = False,
  device_filters: Sequence[str] = (),
  *,
  group_leader: str = '',
  fuses: bool = True,
) -> Any:
  """The ConfigProto of every session; 0 threads means as many as there are cores.

  `group_leader` numbers the steps of an all-reduce. Without `fuses` TensorFlow joins no operations
  into one.
  """
  # TensorFlow does not look at a container's limit: it makes a thread for each core of the machine,
  # and Linux stops all of them when the container's time is used up.
  cores = limits.cores()
  limit = cores if cores < limits.own_cores() else 0
  config = tf.compat.v1.ConfigProto(
    allow_soft_placement=True,  # Some ops have no GPU kernel.
    log_device_placement=log_device_placement,
    intra_op_parallelism_threads=num_intra_threads or limit,
    inter_op_parallelism_threads=num_inter_threads or limit,
    device_count={'CPU': num_cpu_towers},
    # The Estimator sets its own only where no configuration is passed.
    device_filters=device_filters,
  )
  # By default one process takes all memory of every GPU, and a second one on the host fails.
  config.gpu_options.allow_growth = True
  config.experimental.collective_group_leader = group_leader
  if not fuses:
    off = rewriter_config_pb2.RewriterConfig.OFF
    config.graph_options.rewrite_options.remapping = off
  return config


@contextlib.contextmanager
def side_graph() -> Iterator[tf.Graph]:
  """A default graph of its own, for a look at a network or at data.

  It has a seed: without one TensorFlow refuses, under --deterministic, to build what could be
  random, such as initial values and iterators, though nothing is drawn here.
  """
  with tf.Graph().as_default() as graph:
    tf.compat.v1.set_random_seed(0)
    yield graph
