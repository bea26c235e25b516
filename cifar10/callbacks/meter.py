"""Reads loss, accuracy and learning rate of every step for callbacks; averages them over steps."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from cifar10.callbacks.base import Callback, Evaluation, Step, TrainingGraph
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


class Means(NamedTuple):
  """Means over the steps of a window."""

  step: int  # the last of these steps
  values: dict[str, float]  # means of loss and accuracy; the last learning rate
  steps_per_second: float


class Averaging(Callback):
  """Base class of callbacks that average the steps of a window, which `is_due` ends."""

  def __init__(self, run: Run):
    self._run = run
    self._last: Mapping[str, float] = {}  # The values of the last step.
    self._restart(0)

  def is_due(self, step: int) -> bool:
    """Tells whether the window ends with this step, which is not yet added."""
    raise NotImplementedError

  def averaged(self, means: Means) -> None:
    """Is called with the means of a finished window."""
    raise NotImplementedError

  def after_create_session(self, session: Any, coord: Any) -> None:
    global_step = tf.compat.v1.train.get_global_step(session.graph)
    self._restart(int(session.run(global_step)))

  def on_step_end(self, step: Step) -> None:
    is_due = self.is_due(step.step)
    self._heard = time.monotonic()
    self._step, self._last = step.step, step.values
    self._count += 1
    for name in self._sums:
      self._sums[name] += float(step.values[name])
    if is_due:
      self._end_window()

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    now = time.monotonic()
    self._since += now - self._heard  # The evaluation took the time since the last step.
    self._heard = now

  @property
  def _seconds(self) -> float:
    """Returns the seconds since the window began, without evaluations."""
    return time.monotonic() - self._since

  def _restart(self, step: int) -> None:
    """Starts a new window after this global step."""
    self._step = self._before = step
    self._since = self._heard = time.monotonic()
    self._count = 0
    self._sums = {'loss': 0.0, 'accuracy': 0.0}

  def _end_window(self) -> None:
    """Passes the means on and starts a new window, unless this one has no step yet."""
    if self._step <= self._before:
      return
    values = {name: total / self._count for name, total in self._sums.items()}
    values['learning_rate'] = float(self._last['learning_rate'])
    means = Means(self._step, values, (self._step - self._before) / max(self._seconds, 1e-9))
    self._restart(self._step)
    self.averaged(means)


class AveragingHundreds(Averaging):
  """Averages every hundred steps, and the remaining ones at the end of training."""

  def is_due(self, step: int) -> bool:
    return step // EVERY_STEPS > self._step // EVERY_STEPS or step >= self._run.last_step

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    self._step = min(self._step, step)  # The last batch may have made no update.
    self._end_window()
