"""Saves checkpoints every so many steps and on request, and calls callbacks after each save."""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cifar10.callbacks.base import Callback
from cifar10.core import files
from cifar10.core.errors import StorageError
from cifar10.job.run import Run

SECONDS = 600  # Between two checkpoints by default, as in the Estimator's RunConfig.
# Names of incomplete files, which TensorFlow and this program leave behind when killed.
_HALF_SAVED = ['model.ckpt-*_temp', 'model.ckpt-*.tempstate*', 'checkpoint.tmp*']
_HALF_SAVED += ['checkpoint.[0-9]*.tmp', '*.json.[0-9]*.tmp', 'metrics.jsonl.[0-9]*.tmp']


def remove_half_saved(job_dir: str) -> None:
  """Removes incomplete checkpoints of a killed process. Call only under the training lock."""
  for pattern in _HALF_SAVED:
    for path in files.matching(job_dir, pattern):
      (files.remove_folder if files.is_dir(path) else files.remove)(path)


class _Multiples(tf.compat.v1.train.SecondOrStepTimer):
  """Triggers at multiples of a number of steps, wherever training resumed or saved in between."""

  def should_trigger_for_step(self, step: int) -> bool:
    last = self.last_triggered_step()
    return last is None or step // self._every_steps > last // self._every_steps


class SaveHook(tf.compat.v1.train.CheckpointSaverHook):
  """TensorFlow's hook, whose listeners evaluate what it saves; this one also saves between."""

  def __init__(self, run: Run, callbacks: Sequence[Callback]):
    """`callbacks`: their on_save is called after each save."""
    options = run.options
    save_every = options.save_every_steps or options.eval_every_steps
    every_steps = options.eval_every_steps if run.evaluates else save_every
    # No graph as text or beside each checkpoint: it takes a second at the start and a third of the
    # disk, each mode builds its own graph, and TensorBoard's is in the summaries.
    super().__init__(run.job_dir, save_steps=every_steps, save_graph_def=False)
    self._callbacks = callbacks
    self._timer: Any = _Multiples(every_steps=every_steps)
    self._others = _Multiples(every_steps=save_every)  # Not all of these are evaluated.
    # An evaluator evaluates all checkpoints: early stopping counts them.
    is_by_steps = options.save_every_steps or run.cluster.has_evaluator
    seconds = math.inf if is_by_steps else SECONDS
    self._clock = tf.compat.v1.train.SecondOrStepTimer(every_secs=seconds)
    # A later hook makes the update of synchronous training. After a batch the moving averages are
    # updated then, but the weights are not: so this hook saves before the next batch.
    self._updates_later = run.role.is_sync
    self._computed: Any = None  # The values of the last batch, not yet processed.

  def begin(self) -> None:
    super().begin()
    with tf.name_scope('finite'):
      self._finite = [
        tf.reduce_all(tf.math.is_finite(weight))
        for weight in tf.compat.v1.trainable_variables()
        if weight.dtype.is_floating
      ]

  def before_run(self, run_context: Any) -> Any:
    if self._computed is not None:
      self._step_ended(run_context, self._computed)
    return super().before_run(run_context)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    if self._updates_later:
      self._computed = run_values
    else:
      self._step_ended(run_context, run_values)

  def _step_ended(self, run_context: Any, run_values: Any) -> None:
    super().after_run(run_context, run_values)
    # Read beside the update, the step before it; at times the one after it, so it is read again.
    if self._is_due(run_values.results + 1) and self._is_due(self._step(run_context.session)):
      self.save_now(run_context.session, evaluating=False)

  def _is_due(self, step: int) -> bool:
    return any(each.should_trigger_for_step(step) for each in (self._others, self._clock))

  def _step(self, session: Any) -> int:
    return int(session.run(self._global_step_tensor))

  def save_now(self, session: Any, evaluating: bool) -> str:
    """Saves and returns the checkpoint; also evaluates it if `evaluating`."""
    step = self._step(session)
    self._save(session, step, evaluating)
    if evaluating:  # Else the evaluation of this step may still be due.
      self._timer.update_last_triggered_step(step)
    return f'{self._save_path}-{step}'

  def _save(self, session: Any, step: int, evaluating: bool = True) -> bool:
    """Saves, calls callbacks and perhaps listeners; returns whether one of them ends training."""
    # The Estimator looks at the loss after its step: weights that a step has spoiled it sees a step
    # later. Saved before, they would be what the same command resumes from.
    if not all(session.run(self._finite)):
      raise tf.compat.v1.train.NanLossDuringTrainingError
    if not files.is_dir(self._checkpoint_dir):  # TensorFlow would make it again.
      raise StorageError(
        f'--job-dir {self._checkpoint_dir} has vanished; put it back, and the same command goes on'
      )
    listeners = self._listeners if evaluating else []
    for listener in listeners:
      listener.before_save(session, step)
    path = self._get_saver().save(session, self._save_path, step, write_meta_graph=False)
    self._others.update_last_triggered_step(step)
    for callback in self._callbacks:
      callback.on_save(path, int(step))
    ends = [listener.after_save(session, step) for listener in listeners]
    self._clock.update_last_triggered_step(step)
    return any(ends)
