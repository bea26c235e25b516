"""The cluster and what a job keeps -> the Estimator's RunConfig."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from cifar10.cluster.tasks import Cluster
from cifar10.core.estimator import tf_estimator
from cifar10.options.run_options import RunOptions


def run_config(
  options: RunOptions, seed: int, session: Any, cluster: Cluster, strategy: Any = None
) -> Any:
  """The Estimator's RunConfig for this task.

  Args:
    options: what the job keeps, and when.
    seed: of initial values, order and distortions.
    session: the ConfigProto.
    cluster: all tasks that train.
    strategy: of tf.distribute.
  """
  with tf_config(cluster):
    return tf_estimator.RunConfig(
      model_dir=options.job_dir,
      tf_random_seed=seed,
      save_summary_steps=None,  # callbacks/summaries.py writes means of many steps instead.
      # The Estimator must be given some number, but the trainer's savers do the saving.
      save_checkpoints_steps=options.eval_every_steps if cluster.is_chief else None,
      save_checkpoints_secs=None,
      keep_checkpoint_max=options.keep_checkpoints,
      log_step_count_steps=None,  # Callbacks count, in examples.
      session_config=session,
      experimental_max_worker_delay_secs=0,  # By default worker i sleeps 5 (i + 1) seconds first.
      train_distribute=strategy,
    )


@contextlib.contextmanager
def tf_config(cluster: Cluster) -> Iterator[None]:
  """TF_CONFIG as the Estimator should read it; it reads the environment and nothing else."""
  before = os.environ.get('TF_CONFIG')
  os.environ['TF_CONFIG'] = cluster.tf_config
  try:
    yield
  finally:
    if before is None:
      os.environ.pop('TF_CONFIG', None)  # A user's code may have cleared it.
    else:
      os.environ['TF_CONFIG'] = before
