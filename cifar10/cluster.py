"""The environment's TF_CONFIG and the flags -> RunConfig."""

import json
import os
from typing import Any

import tensorflow as tf

from cifar10.errors import InputError


def check_single_process() -> None:
  """Raises InputError when TF_CONFIG describes more than one process."""
  text = os.environ.get('TF_CONFIG') or '{}'
  try:
    cluster = json.loads(text).get('cluster') or {}
    tasks = sum(len(addresses) for addresses in cluster.values())
  except (ValueError, AttributeError, TypeError):
    raise InputError(f'TF_CONFIG is not a JSON object: {text!r}; unset it or mend it') from None
  if tasks > 1:
    raise InputError(
      f'TF_CONFIG describes a cluster of {tasks} tasks, which this version does not run yet; '
      'unset TF_CONFIG to train in one process'
    )


def session_config(
  num_cpu_towers: int = 1,
  num_intra_threads: int = 0,
  num_inter_threads: int = 0,
  log_device_placement: bool = False,
) -> Any:
  """The ConfigProto of every session; 0 threads means as many as there are cores."""
  config = tf.compat.v1.ConfigProto(
    allow_soft_placement=True,  # Some ops have no GPU kernel.
    log_device_placement=log_device_placement,
    intra_op_parallelism_threads=num_intra_threads,
    inter_op_parallelism_threads=num_inter_threads,
    device_count={'CPU': num_cpu_towers},
  )
  # By default one process takes all memory of every GPU, and a second one on the host fails.
  config.gpu_options.allow_growth = True
  return config


def run_config(
  job_dir: str, seed: int, save_every_steps: int, keep_checkpoints: int, session: Any
) -> Any:
  """The Estimator's RunConfig for one process."""
  return tf.estimator.RunConfig(
    model_dir=job_dir,
    tf_random_seed=seed,
    save_summary_steps=100,
    save_checkpoints_steps=save_every_steps,
    keep_checkpoint_max=keep_checkpoints,
    log_step_count_steps=None,  # ProgressHook counts, in examples.
    session_config=session,
  )
