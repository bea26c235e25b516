"""The base class of callbacks, what they hear of, and the meter that tells them.

  build the graph of a step         -> on_graph
  begin; after_create_session       (the latter again where a lost server needs a new session)
  while steps are left:
    before_run                      (may fetch tensors of the step)
    make the step                   (input, towers, mean gradient, update)
    after_run of the meter          -> on_means each hundred steps, on_step_end, on_epoch_end
    after_run                       (has what was fetched, and the session)
    if a checkpoint is due: save    -> on_save
      if an evaluation is due       -> on_evaluate_end
    end here if somebody asked for it
  end                               (the session's; not after an error)
  write why it ended                -> on_train_end
  evaluate the test set             -> on_evaluate_end

The names without an arrow are those of TensorFlow's session hooks, which every callback is. In a
cluster the chief's callbacks hear of its own steps, an evaluator's of the evaluations.

A callback gets the run (job/run.py): `run.stop(message)` ends training after this step,
`run.set_rate(rate)` sets the learning rate, `run.put_scalar(name, value)` adds a point to a curve,
`run.predictor()` returns a function that classifies images by the weights of this step.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.compat.v1 import Session
from tensorflow.compat.v1.train import SessionRunArgs, SessionRunContext, SessionRunValues
from tensorflow.train import Coordinator

from cifar10.job.run import Run

EVERY_STEPS = 100  # The mean over this many steps is one point of a curve.


class TrainingGraph(NamedTuple):
  """The tensors of a training step, for callbacks that add operations to its graph."""

  images: tf.Tensor  # uint8 [n, 32, 32, 3], of the first tower
  labels: tf.Tensor  # int32 [n], or probabilities float32 [n, classes]
  scalars: Mapping[str, tf.Tensor]  # 'loss', 'accuracy' and 'learning_rate'
  loss_parts: Mapping[str, tf.Tensor]  # float32 scalars, by name
  gradients: Sequence[tuple[tf.Tensor, tf.Variable]]  # the network's, each with its variable


class Step(NamedTuple):
  """A finished training step."""

  step: int  # the global step after it
  values: Mapping[str, float]  # 'loss', 'accuracy' of its batch, and 'learning_rate'


class Means(NamedTuple):
  """Means over a hundred steps; over fewer at the end, and at first after a resume."""

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
    """Is called when the chief has written a checkpoint, which the next save may remove."""

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    """Is called after an evaluation, in the process that evaluated."""

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    """Is called when the last checkpoint is saved; reason: 'train_steps', 'SIGTERM', ..."""


class Window:
  """Some steps after a global step: means, and the time they took without evaluations."""

  def __init__(self, step: int):
    self.step = self._before = step
    self._since = self._heard = time.monotonic()
    self._count, self._sums, self._rate = 0, np.zeros(2), 0.0

  def add(self, step: Step) -> None:
    """Adds a step that has just ended."""
    self._heard = time.monotonic()
    self.step = step.step
    self._count += 1
    self._sums += (step.values['loss'], step.values['accuracy'])
    self._rate = float(step.values['learning_rate'])

  def leave_out(self) -> None:
    """Leaves out the time since the last step, or the last call: that of an evaluation."""
    now = time.monotonic()
    self._since, self._heard = self._since + now - self._heard, now

  @property
  def seconds(self) -> float:
    """Returns the seconds since it began, without evaluations."""
    return time.monotonic() - self._since

  def means(self) -> Means | None:
    """Returns the means over its steps; None if it has none yet."""
    if self.step <= self._before:
      return None
    loss, accuracy = (self._sums / self._count).tolist()
    values = {'loss': loss, 'accuracy': accuracy, 'learning_rate': self._rate}
    return Means(self.step, values, (self.step - self._before) / max(self.seconds, 1e-9))


class Meter(Callback):
  """A training's first callback: reads each step's numbers and tells the others."""

  def __init__(self, run: Run, callbacks: Sequence[Callback]):
    self.session: Session | None = None  # The training's, once it has begun.
    self._run = run
    self._callbacks = callbacks
    self._window = Window(0)

  def on_graph(self, graph: TrainingGraph) -> None:
    self._global_step, self._scalars = tf.compat.v1.train.get_global_step(), graph.scalars
    for callback in self._callbacks:
      callback.on_graph(graph)

  def after_create_session(self, session: Session, coord: Coordinator) -> None:
    self.session = session
    self._run.step = int(session.run(self._global_step))
    self._window = Window(self._run.step)

  def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
    return SessionRunArgs([self._global_step, self._scalars])

  def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
    (read, values), run = run_values.results, self._run
    before, reached = run.epochs(run.step), self._window.step
    # Where workers make steps of their own, it is read at about the end of this one.
    run.step = run.step + 1 if run.role.counts_steps else int(read)
    step = Step(run.step, values)
    self._window.add(step)
    if run.step // EVERY_STEPS > reached // EVERY_STEPS or run.step >= run.last_step:
      self._end_window()
    for callback in self._callbacks:
      callback.on_step_end(step)
      for epoch in range(before, run.epochs(run.step)):
        callback.on_epoch_end(epoch + 1)

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    self._window.leave_out()

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    self._window.step = min(self._window.step, step)  # The last batch may have made no update.
    self._end_window()

  def _end_window(self) -> None:
    if means := self._window.means():
      self._window = Window(means.step)
      for callback in self._callbacks:
        callback.on_means(means)
