"""The cluster and the flags -> the Estimator's RunConfig and its sessions' ConfigProto."""

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cifar10.cluster import Cluster


def session_config(
  num_cpu_towers: int = 1,
  num_intra_threads: int = 0,
  num_inter_threads: int = 0,
  log_device_placement: bool = False,
  device_filters: Sequence[str] = (),
) -> Any:
  """The ConfigProto of every session; 0 threads means as many as there are cores."""
  config = tf.compat.v1.ConfigProto(
    allow_soft_placement=True,  # Some ops have no GPU kernel.
    log_device_placement=log_device_placement,
    intra_op_parallelism_threads=num_intra_threads,
    inter_op_parallelism_threads=num_inter_threads,
    device_count={'CPU': num_cpu_towers},
    # The Estimator sets its own only where no configuration is passed.
    device_filters=device_filters,
  )
  # By default one process takes all memory of every GPU, and a second one on the host fails.
  config.gpu_options.allow_growth = True
  return config


def run_config(
  *,
  job_dir: str,
  seed: int,
  save_every_steps: int,
  keep_checkpoints: int,
  session: Any,
  cluster: Cluster,
) -> Any:
  """The Estimator's RunConfig for this task."""
  _shorten_waits()
  before = os.environ.get('TF_CONFIG')
  os.environ['TF_CONFIG'] = cluster.tf_config  # RunConfig reads it nowhere else.
  try:
    return tf.estimator.RunConfig(
      model_dir=job_dir,
      tf_random_seed=seed,
      save_summary_steps=100,
      save_checkpoints_steps=save_every_steps,
      keep_checkpoint_max=keep_checkpoints,
      log_step_count_steps=None,  # ProgressHook counts, in examples.
      session_config=session,
      experimental_max_worker_delay_secs=0,  # By default worker i sleeps 5 (i + 1) seconds first.
    )
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
