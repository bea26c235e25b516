"""The base class of callbacks, and what they hear of. A training calls them at these places:

  build the graph of a step         -> on_graph
  begin, after_create_session       (each time that a session begins)
  while steps are left:
    before_run                      (may fetch tensors of the step)
    make the step                   (input, towers, mean gradient, update)
    after_run of the meter          -> on_step_end; on_means each hundred steps, on_epoch_end
    after_run                       (has what was fetched, and the session)
    if a checkpoint is due: save    -> on_save
      if an evaluation is due       -> on_evaluate_end
    end here if somebody asked for it
  end                               (the session's; not after an error)
  write why it ended                -> on_train_end
  evaluate the test set             -> on_evaluate_end

The names without an arrow are those of TensorFlow's session hooks, which every callback is; a plain
`SessionRunHook` is taken in its place. In a cluster the chief's callbacks hear of its own steps,
and where an evaluator is a task, its callbacks hear of the evaluations.

A callback gets the run (job/run.py): `run.stop(message)` ends training after this step,
`run.set_rate(rate)` sets the learning rate, `run.put_scalar(name, value)` adds a point to a curve,
`run.predictor()` classifies images by the weights of this step.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class TrainingGraph(NamedTuple):
  """The tensors of a training step, for callbacks that add operations to its graph."""

  images: tf.Tensor  # uint8 [n, 32, 32, 3], of the first tower
  labels: tf.Tensor  # int32 [n]
  scalars: Mapping[str, tf.Tensor]  # 'loss', 'accuracy' and 'learning_rate'
  loss_parts: Mapping[str, tf.Tensor]  # float32 scalars, by name
  gradients: Sequence[tuple[tf.Tensor, Any]]  # the network's, each with its variable


class Step(NamedTuple):
  """A finished training step."""

  step: int  # the global step after it
  values: Mapping[str, float]  # 'loss', 'accuracy' of its batch, and 'learning_rate'


class Means(NamedTuple):
  """Means over a hundred steps, or fewer at the end of training."""

  step: int  # the last of these steps
  values: dict[str, float]  # means of loss and accuracy; the last learning rate
  steps_per_second: float  # without evaluations


class Evaluation(NamedTuple):
  """The evaluation of one split with one checkpoint."""

  step: int
  split: str
  checkpoint: str
  result: Mapping[str, Any]  # as the program prints it
  confusion_matrix: Sequence[Sequence[int]]  # [true class][predicted class]
  on_the_way: bool  # False: the final evaluation
  is_held_out: bool = True  # False: training learns from the split, too

  @property
  def chooses(self) -> bool:
    """Tells whether it may choose weights or the end of training: the test set never may."""
    return self.on_the_way and self.is_held_out and self.split == 'validation'


class Callback(tf.compat.v1.train.SessionRunHook):
  """The base class of callbacks: override the methods you need, those of session hooks included."""

  def __init__(self) -> None:
    # The Estimator, once loaded, gives hooks one of any arguments: that would hide what ours take.
    super().__init__()

  def on_graph(self, graph: TrainingGraph) -> None:
    """Is called when a training step's graph is built, to add operations to the graph."""

  def on_step_end(self, step: Step) -> None:
    """Is called after every step of this process, before a checkpoint of the step is saved."""

  def on_means(self, means: Means) -> None:
    """Is called after every hundredth step and the last one."""

  def on_epoch_end(self, epoch: int) -> None:
    """Is called after the first step at or beyond the end of an epoch; the first epoch is 1."""

  def on_save(self, checkpoint: str, step: int) -> None:
    """Is called when a checkpoint is completely written; only the chief saves.

    Without --save-every-steps the next save may remove it.
    """

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    """Is called after an evaluation, in the process that evaluated."""

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    """Is called when the last checkpoint is saved; reason: 'train_steps', 'SIGTERM', ..."""
