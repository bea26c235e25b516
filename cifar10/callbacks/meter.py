"""Reads loss, accuracy and learning rate of every step, and tells callbacks; means over steps."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from cifar10.callbacks.base import Callback, Evaluation, Run, Step, TrainingGraph

EVERY_STEPS = 100  # Whose means are written.


class MeterHook(tf.compat.v1.train.SessionRunHook):
  """Tells callbacks of every step, before any other hook can save a checkpoint of it."""

  def __init__(
    self, callbacks: Sequence[Callback], counts: bool, epochs: Callable[[int], int] = lambda step: 0
  ):
    """Args:
    callbacks: hear of each step.
    counts: whether each run of the session makes one global step, as in one process; else the
      global step is read, about as it is after the run.
    epochs: how many are over at a global step.
    """
    self._callbacks = callbacks
    self._counts = counts
    self._epochs = epochs
    self._tensors: Mapping[str, tf.Tensor] = {}
    self._graph: Any = None
    self.step = 0  # The last one that this process made.

  def on_graph(self, graph: TrainingGraph) -> None:
    """Takes the scalars to read, and tells callbacks: of the first replica built in a graph."""
    building = tf.compat.v1.get_default_graph()
    if self._graph is not building:
      self._graph, self._tensors = building, graph.scalars
      for callback in self._callbacks:
        callback.on_graph(graph)

  def begin(self) -> None:
    self._global_step = tf.compat.v1.train.get_global_step()

  def after_create_session(self, session: Any, coord: Any) -> None:
    self.step = int(session.run(self._global_step))

  def before_run(self, run_context: Any) -> Any:
    return tf.compat.v1.train.SessionRunArgs([self._global_step, self._tensors])

  def after_run(self, run_context: Any, run_values: Any) -> None:
    read, values = run_values.results
    before = self._epochs(self.step)
    self.step = self.step + 1 if self._counts else int(read)
    step = Step(self.step, values)
    for callback in self._callbacks:
      callback.on_step_end(step)
    for epoch in range(before, self._epochs(self.step)):
      for callback in self._callbacks:
        callback.on_epoch_end(epoch + 1)


class Means(NamedTuple):
  """Of the steps since they were last taken."""

  step: int  # the last of them
  values: dict[str, float]  # means of loss and accuracy; the last learning rate
  steps_per_second: float


class Window:
  """Adds up steps between two reports."""

  def __init__(self) -> None:
    self.restart(0)

  def restart(self, step: int) -> None:
    """Begins anew after this global step."""
    self.step = step
    self._before = step
    self._since = self._heard = time.monotonic()
    self._count = 0
    self._sums = {'loss': 0.0, 'accuracy': 0.0}
    self._last: Mapping[str, float] = {}

  @property
  def seconds(self) -> float:
    """Since the window began."""
    return time.monotonic() - self._since

  @property
  def is_empty(self) -> bool:
    """Whether no step was added."""
    return self.step <= self._before

  def skip(self) -> None:
    """Leaves out the time since the last step: it was an evaluation's, not training's."""
    now = time.monotonic()
    self._since += now - self._heard
    self._heard = now

  def add(self, step: Step) -> None:
    """A step that is over."""
    self._heard = time.monotonic()
    self.step, self._last = step.step, step.values
    self._count += 1
    for name in self._sums:
      self._sums[name] += float(step.values[name])

  def take(self) -> Means:
    """The means, and a new window. Only of one that is not empty."""
    values = {name: total / self._count for name, total in self._sums.items()}
    values['learning_rate'] = float(self._last['learning_rate'])
    means = Means(self.step, values, (self.step - self._before) / max(self.seconds, 1e-9))
    self.restart(self.step)
    return means


class Averaging(Callback):
  """Takes means over the steps of a window; subclasses say when, and hear of them."""

  def __init__(self, run: Run):
    self._run = run
    self._window = Window()

  def is_due(self, step: int) -> bool:
    """Whether the window ends with this step, which it does not have yet."""
    raise NotImplementedError

  def averaged(self, means: Means) -> None:
    """Hears of the means."""
    raise NotImplementedError

  def begin(self) -> None:
    self._global_step = tf.compat.v1.train.get_global_step()

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._window.restart(int(session.run(self._global_step)))

  def on_step_end(self, step: Step) -> None:
    is_due = self.is_due(step.step)
    self._window.add(step)
    if is_due and not self._window.is_empty:
      self.averaged(self._window.take())

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    self._window.skip()


class AveragingHundreds(Averaging):
  """Takes means over every hundred steps, and over the rest at the end of training."""

  def is_due(self, step: int) -> bool:
    is_due = step // EVERY_STEPS > self._window.step // EVERY_STEPS
    return is_due or step >= self._run.last_step

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    if not self._window.is_empty and step >= self._window.step:
      self.averaged(self._window.take())
