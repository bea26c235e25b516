"""The job's Estimators: how they are configured, and the one that trains and evaluates."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from cifar10.cluster import roles
from cifar10.cluster.tasks import Cluster
from cifar10.job.run import Run
from cifar10.training import model_fn
from estimator_again import estimator as tf_estimator

if TYPE_CHECKING:
  from cifar10.training.trainer import Trainer


def inference_estimator(run: Run) -> Any:
  """Returns an Estimator that evaluates and predicts; it knows no training data and no tasks."""
  function = model_fn.get_model_fn(
    run.hparams, run.placement, run.data, use_ema=run.options.use_ema
  )
  return tf_estimator.Estimator(function, config=run_config(run, roles.ALONE))


def run_config(run: Run, cluster: Cluster, strategy: Any = None) -> Any:
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
      train_distribute=strategy,
    )


class JobEstimator(tf_estimator.Estimator):
  """The Estimator of a job: what `tf.estimator.train_and_evaluate` trains and evaluates.

  `train` trains as the command does: with the job's lock, its configuration and the record of an
  early end. `evaluate` restores a checkpoint into a session that it keeps: TensorFlow's builds the
  graph and a session each time, which takes seconds.
  """

  def __init__(self, run: Run, training: model_fn.Training, trainer: Trainer):
    """Args:
    run: the job, with what only a training knows.
    training: what the model function must know of it.
    trainer: what surrounds the training.
    """
    self.trainer = trainer
    function = model_fn.get_model_fn(run.hparams, run.placement, run.data, training)
    super().__init__(function, config=run_config(run, run.cluster, run.strategy))

  @staticmethod
  def _assert_members_are_not_overridden(estimator: Any) -> None:
    """Allows `train` and `evaluate` below, which TensorFlow refuses in subclasses."""

  # Under a strategy AutoGraph would convert all code that builds the graph. There is nothing to
  # convert, and AutoGraph's files stay in the temporary folder if the process is killed.
  @tf.autograph.experimental.do_not_convert
  def train(
    self,
    input_fn: Callable[..., Any],
    hooks: Sequence[Any] | None = None,
    steps: int | None = None,
    max_steps: int | None = None,
    saving_listeners: Sequence[Any] | None = None,
  ) -> JobEstimator:
    """As TensorFlow's, unless the job has ended early and that still holds."""
    with self.trainer.training(self.config.session_config) as own_hooks:
      if own_hooks is not None:
        all_hooks = [*own_hooks, *(hooks or [])]
        super().train(input_fn, all_hooks, steps, max_steps, saving_listeners)
    return self

  def evaluate(
    self,
    input_fn: Callable[..., Any],
    steps: int | None = None,
    hooks: Sequence[Any] | None = None,
    checkpoint_path: str | None = None,
    name: str | None = None,
  ) -> Mapping[str, Any]:
    """Returns the metrics by name, 'global_step' among them.

    The job's own evaluation, of the split on the way, counts: callbacks hear of it, best/ is kept.
    Another input is evaluated as TensorFlow does.
    """
    if input_fn is not self.trainer.evaluator.input_fn:
      return super().evaluate(input_fn, steps, hooks, checkpoint_path, name)
    checkpoint = checkpoint_path or self.latest_checkpoint()
    return self.trainer.evaluator.on_the_way(checkpoint)


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
