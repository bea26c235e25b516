"""Estimators of a job: their configuration, and the one that evaluates and predicts."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from cifar10.cluster import roles
from cifar10.cluster.tf_config import Cluster
from cifar10.job.run import Run
from cifar10.training import model_fn
from estimator_again import estimator as tf_estimator


def inference_estimator(run: Run) -> Any:
  """Returns an Estimator that evaluates and predicts; it knows no training data and no tasks."""
  return tf_estimator.Estimator(
    model_function(run), config=run_config(run, roles.ALONE), params=run.hparams
  )


def model_function(run: Run, training: model_fn.Training | None = None) -> Callable[..., Any]:
  """Returns the job's model function; of one that trains, with what it must know of that."""
  placement = run.placement
  return model_fn.get_model_fn(
    placement.num_gpus,
    placement.variable_strategy,
    run.role.gradients_per_update or 1,
    num_cpu_towers=placement.num_cpu_towers,
    data_format=placement.data_format,
    data=run.data,
    training=training,
    use_ema=run.options.use_ema,
  )


def run_config(run: Run, cluster: Cluster) -> Any:
  """Returns the Estimator's RunConfig for this task of a cluster, whose tasks all train."""
  with tf_config(cluster):
    return tf_estimator.RunConfig(
      model_dir=run.job_dir,
      tf_random_seed=run.hparams.seed,
      save_summary_steps=None,  # callbacks/summaries.py writes means of many steps instead.
      # The Estimator needs some number, but the trainer's savers save.
      save_checkpoints_steps=run.options.eval_every_steps if cluster.is_chief else None,
      save_checkpoints_secs=None,
      keep_checkpoint_max=run.options.keep_checkpoints,
      log_step_count_steps=None,  # Callbacks count steps, in examples.
      session_config=run.session_config(cluster),
      experimental_max_worker_delay_secs=0,  # By default worker i first sleeps 5 (i + 1) seconds.
    )


# TF_CONFIG as it was, and of each context, of which the last is in force: those of calls in several
# threads may end in another order.
_tf_configs: dict[object, str | None] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def tf_config(cluster: Cluster) -> Iterator[None]:
  """A context with TF_CONFIG set for the Estimator, which reads nothing but the environment."""
  own = object()
  with _lock:
    if not _tf_configs:
      _tf_configs[None] = os.environ.get('TF_CONFIG')
    _tf_configs[own] = os.environ['TF_CONFIG'] = cluster.tf_config
  try:
    yield
  finally:
    with _lock:
      del _tf_configs[own]
      last = [*_tf_configs.values()][-1]
      if len(_tf_configs) == 1:
        _tf_configs.clear()
      if last is None:
        os.environ.pop('TF_CONFIG', None)  # A user's code may have cleared it.
      else:
        os.environ['TF_CONFIG'] = last
