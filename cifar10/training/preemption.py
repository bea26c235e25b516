"""How SIGTERM ends training and evaluation, and how the watch hears of steps."""

from typing import Any

import tensorflow as tf

from cifar10.cluster.liveness import LivenessMonitor


class TaskHook(tf.compat.v1.train.SessionRunHook):
  """Tells the watch of every step, and ends training after the step in which SIGTERM came."""

  def __init__(self, monitor: LivenessMonitor, decides: bool = True):
    """`decides`: whether this process may end at a step of its own choice."""
    self._monitor = monitor
    self._decides = decides
    self._steps_told = 0
    self.steps = 0  # That this process made itself.

  def before_run(self, run_context: Any) -> Any:
    # Not in after_run: another hook may be waiting there for the other workers.
    if self.steps > self._steps_told:
      self._steps_told = self.steps
      self._monitor.progressed()

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self.steps += 1
    if self._decides and self._monitor.stopping:
      run_context.request_stop()

  def end(self, session: Any) -> None:
    self._monitor.finish()


class AbandonHook(tf.compat.v1.train.SessionRunHook):
  """Abandons an evaluation when SIGTERM comes."""

  def __init__(self, monitor: LivenessMonitor):
    self._monitor = monitor

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self._monitor.check()
