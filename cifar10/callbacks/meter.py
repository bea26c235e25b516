"""Reads loss, accuracy and learning rate of every step for callbacks; averages them over steps."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from cifar10.callbacks.base import Callback, Evaluation, Means, Step, TrainingGraph
from cifar10.job.run import Run

EVERY_STEPS = 100  # The mean over this many steps is one point of a curve.


class MeterHook(tf.compat.v1.train.SessionRunHook):
  """Calls callbacks after every step, before any other hook can save a checkpoint of the step."""

  def __init__(self, run: Run, callbacks: Sequence[Callback]):
    """Args:
    run: its step is kept.
    callbacks: their on_graph, on_step_end and on_epoch_end are called.
    """
    self._run = run
    self._callbacks = callbacks
    self._tensors: Mapping[str, tf.Tensor] = {}
    self._graph: Any = None
    self.session: tf.compat.v1.Session | None = None  # The training's, once it has begun.

  def on_graph(self, graph: TrainingGraph) -> None:
    """Takes the scalars to read from the first replica's graph, and calls the callbacks."""
    building = tf.compat.v1.get_default_graph()
    if self._graph is not building:
      self._graph, self._tensors = building, graph.scalars
      for callback in self._callbacks:
        callback.on_graph(graph)

  def begin(self) -> None:
    self._global_step = tf.compat.v1.train.get_global_step()

  def after_create_session(self, session: Any, coord: Any) -> None:
    self.session = session
    self._run.step = int(session.run(self._global_step))

  def before_run(self, run_context: Any) -> Any:
    return tf.compat.v1.train.SessionRunArgs([self._global_step, self._tensors])

  def after_run(self, run_context: Any, run_values: Any) -> None:
    (read, values), run = run_values.results, self._run
    before = run.epochs(run.step)
    # Where workers make steps of their own, it is read at about the end of this one.
    run.step = run.step + 1 if run.role.counts_steps else int(read)
    for callback in self._callbacks:
      callback.on_step_end(Step(run.step, values))
    for epoch in range(before, run.epochs(run.step)):
      for callback in self._callbacks:
        callback.on_epoch_end(epoch + 1)


class Window:
  """Some steps: sums of their values, and the time that they took, without evaluations."""

  def __init__(self, step: int):
    """Begins after this global step."""
    self.step = self._before = step
    self._since = self._heard = time.monotonic()
    self._count = 0
    self._sums = {'loss': 0.0, 'accuracy': 0.0}
    self._rate = 0.0

  def add(self, step: Step) -> None:
    """Adds a step that has just ended."""
    self._heard = time.monotonic()
    self.step = step.step
    self._count += 1
    for name in self._sums:
      self._sums[name] += float(step.values[name])
    self._rate = float(step.values['learning_rate'])

  def leave_out(self) -> None:
    """Leaves out the time since the last step, or the last call: that of an evaluation."""
    now = time.monotonic()
    self._since += now - self._heard
    self._heard = now

  @property
  def seconds(self) -> float:
    """Returns the seconds since it began, without evaluations."""
    return time.monotonic() - self._since

  def means(self) -> Means | None:
    """Returns the means over its steps; None if it has none yet."""
    if self.step <= self._before:
      return None
    values = {name: total / self._count for name, total in self._sums.items()}
    values['learning_rate'] = self._rate
    return Means(self.step, values, (self.step - self._before) / max(self.seconds, 1e-9))


class Hundreds(Callback):
  """Calls on_means of callbacks every hundred steps, and for the remaining ones at the end."""

  def __init__(self, run: Run, callbacks: Sequence[Callback]):
    self._run = run
    self._callbacks = callbacks
    self._window = Window(0)

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._window = Window(self._run.step)

  def on_step_end(self, step: Step) -> None:
    before = self._window.step
    self._window.add(step)
    if step.step // EVERY_STEPS > before // EVERY_STEPS or step.step >= self._run.last_step:
      self._end_window()

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
