"""Session settings (ConfigProto) for this machine; graphs beside the training's graph."""

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
  num_gpus: int = 0,
  group_leader: str = '',
  fuses: bool = True,
) -> Any:
  """Returns the ConfigProto of every session; 0 threads: one per core.

  `group_leader` numbers the steps of an all-reduce. Without `fuses` TensorFlow joins no operations
  into one.
  """
  config = tf.compat.v1.ConfigProto(
    allow_soft_placement=True,  # Some operations have no GPU kernel.
    log_device_placement=log_device_placement,
    intra_op_parallelism_threads=limits.threads(num_intra_threads),
    inter_op_parallelism_threads=limits.threads(num_inter_threads),
    # Or operations that have no device would run on a GPU that is not this program's.
    device_count={'CPU': num_cpu_towers, 'GPU': num_gpus},
    # The Estimator sets its own only if no configuration is passed.
    device_filters=device_filters,
  )
  # By default one process allocates all memory of every GPU, and a second one fails.
  config.gpu_options.allow_growth = True
  config.experimental.collective_group_leader = group_leader
  if not fuses:
    off = rewriter_config_pb2.RewriterConfig.OFF
    config.graph_options.rewrite_options.remapping = off
  return config


@contextlib.contextmanager
def side_graph() -> Iterator[tf.Graph]:
  """A separate default graph, to inspect a network or data.

  It has a seed, because without one TensorFlow refuses, under --deterministic, to build what could
  be random, such as initial values and iterators, though nothing random is used here.
  """
  with tf.Graph().as_default() as graph:
    tf.compat.v1.set_random_seed(0)
    yield graph
