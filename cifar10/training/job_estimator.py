"""The Estimator of a job: what `tf.estimator.train_and_evaluate` trains and evaluates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cifar10.job.run import Run
from cifar10.training.estimator import model_function, run_config
from cifar10.training.model_fn import Training
from cifar10.training.trainer import Trainer
from estimator_again import estimator as tf_estimator


class JobEstimator(tf_estimator.Estimator):
  """An Estimator whose `train` and `evaluate` are the job's.

  `train` trains as the command does: with the job's lock, its configuration and the record of an
  early end. `evaluate` restores a checkpoint into a session that it keeps: TensorFlow's builds the
  graph and a session each time, which takes seconds.
  """

  def __init__(self, run: Run, training: Training, trainer: Trainer):
    """Args:
    run: the job, with what only a training knows.
    training: what the model function must know of it.
    trainer: what surrounds the training.
    """
    self.trainer = trainer
    function = model_function(run, training)
    super().__init__(function, config=run_config(run, run.cluster), params=run.hparams)

  @staticmethod
  def _assert_members_are_not_overridden(estimator: Any) -> None:
    """Allows `train` and `evaluate` below, which TensorFlow refuses in subclasses."""

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
