"""The cluster and what a job keeps -> the Estimator's RunConfig; strategies of tf.distribute."""

import contextlib
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from cifar10.cluster.tf_config import Cluster
from cifar10.core.estimator import tf_estimator


def run_config(
  *,
  job_dir: str,
  seed: int,
  save_every_steps: int,
  keep_checkpoints: int,
  session: Any,
  cluster: Cluster,
  strategy: Any = None,
) -> Any:
  """The Estimator's RunConfig for this task."""
  _shorten_waits()
  with tf_config(cluster):
    return tf_estimator.RunConfig(
      model_dir=job_dir,
      tf_random_seed=seed,
      save_summary_steps=None,  # callbacks/summaries.py writes means of many steps instead.
      save_checkpoints_steps=save_every_steps if cluster.is_chief else None,
      save_checkpoints_secs=None,
      keep_checkpoint_max=keep_checkpoints,
      log_step_count_steps=None,  # Callbacks count, in examples.
      session_config=session,
      experimental_max_worker_delay_secs=0,  # By default worker i sleeps 5 (i + 1) seconds first.
      train_distribute=strategy,
    )


def strategy(name: str, cluster: Cluster, devices: Sequence[str], num_gpus: int) -> Any:
  """The `tf.distribute.Strategy` for 'mirrored' or 'multi_worker_mirrored'.

  Args:
    name: which.
    cluster: chief and workers, of which this process is one; only the second uses it.
    devices: a replica each; only the first uses them.
    num_gpus: of this process; only the second uses it.
  """
  # Said of every v1 graph: that options could not be kept if the graph were saved. It is not.
  warnings.filterwarnings('ignore', 'To make it possible to preserve tf.data options')
  if name == 'mirrored':
    return tf.distribute.MirroredStrategy(devices)
  resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec(dict(cluster.addresses)),
    task_type=cluster.task_type,
    task_id=cluster.task_index,
    num_accelerators={'GPU': num_gpus},
    rpc_layer='grpc',
  )
  return tf.distribute.MultiWorkerMirroredStrategy(resolver)


@contextlib.contextmanager
def tf_config(cluster: Cluster) -> Iterator[None]:
  """TF_CONFIG as the Estimator should read it; it reads the environment and nothing else."""
  before = os.environ.get('TF_CONFIG')
  os.environ['TF_CONFIG'] = cluster.tf_config
  try:
    yield
  finally:
    if before is None:
      del os.environ['TF_CONFIG']
    else:
      os.environ['TF_CONFIG'] = before


def _shorten_waits() -> None:
  """Lets a worker look every second, not every 30, whether the chief has initialised the model.

  MonitoredTrainingSession makes its session manager itself and passes no interval on.
  """
  manager = tf.compat.v1.train.SessionManager
  if getattr(manager.__init__, 'is_short', False):
    return
  original = manager.__init__

  def init(self: Any, *args: Any, recovery_wait_secs: float = 1, **kwargs: Any) -> None:
    original(self, *args, recovery_wait_secs=recovery_wait_secs, **kwargs)

  init.is_short = True  # type: ignore[attr-defined]
  manager.__init__ = init
