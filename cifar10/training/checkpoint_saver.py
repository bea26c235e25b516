"""Saves checkpoints every so many steps and on request, and calls callbacks after each save."""

import contextlib
import math
import os
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cifar10.callbacks.base import Callback
from cifar10.core import files
from cifar10.core.logs import log

SECONDS = 600  # Between two checkpoints by default, as in the Estimator's RunConfig.
# Names of TensorFlow's incomplete checkpoint files, which it leaves behind when killed.
_HALF_SAVED = ('model.ckpt-*_temp', 'model.ckpt-*.tempstate*', 'checkpoint.tmp*')
_OURS = ('checkpoint', 'config.json', 'ended.json', 'metrics.jsonl')


def remove_half_saved(job_dir: str) -> None:
  """Removes incomplete checkpoints of a killed process. Call only under the training lock."""
  for name in _OURS:
    files.remove_unfinished(os.path.join(job_dir, name))
  for pattern in _HALF_SAVED:
    for path in files.matching(job_dir, pattern):
      if files.is_dir(path):
        files.remove_folder(path)
      else:
        files.remove(path)


class _Multiples(tf.compat.v1.train.SecondOrStepTimer):
  """Triggers at multiples of a number of steps, wherever training resumed or saved in between."""

  def should_trigger_for_step(self, step: int) -> bool:
    last = self.last_triggered_step()
    return last is None or step // self._every_steps > last // self._every_steps


class SaveHook(tf.compat.v1.train.CheckpointSaverHook):
  """TensorFlow's hook for saving checkpoints, which can also save between its steps."""

  def __init__(
    self,
    job_dir: str,
    every_steps: int,
    callbacks: Sequence[Callback],
    listeners: Sequence[Any] = (),
    *,
    every_seconds: float = math.inf,
    updates_later: bool,
  ):
    """Args:
    job_dir: the folder of the checkpoints.
    every_steps: global steps between two checkpoints.
    callbacks: their on_save is called after each save.
    listeners: called then; they evaluate the checkpoint.
    every_seconds: how long after a checkpoint another one is saved, which is not evaluated, and is
      removed when the next one is saved.
    updates_later: whether a later hook makes the update, as in synchronous training. After a batch
      the moving averages are updated then, but the weights are not: so this hook saves before the
      next batch.
    """
    self._tells = _Tells(job_dir, callbacks)
    self._every_seconds = every_seconds
    self._saved_at = time.monotonic()
    self._updates_later = updates_later
    self._computed: Any = None  # The values of the last batch, not yet processed.
    # No graph as text or beside each checkpoint: it takes a second at the start and a third of the
    # disk, each mode builds its own graph, and TensorBoard's is in the summaries.
    all_listeners = [self._tells, *listeners]
    super().__init__(job_dir, save_steps=every_steps, listeners=all_listeners, save_graph_def=False)
    self._timer: Any = _Multiples(every_steps=every_steps)
    self._finite: Any = None

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
    if time.monotonic() - self._saved_at > self._every_seconds:
      before = self._tells.checkpoint
      saved = self.save_now(run_context.session, evaluating=False)
      if saved != before:  # Else somebody asked for it, before a long pause.
        self._tells.by_time = saved

  def save_now(self, session: Any, evaluating: bool) -> str:
    """Saves and returns the checkpoint; also evaluates it if `evaluating`."""
    listeners = self._listeners
    self._listeners: Any = listeners if evaluating else [self._tells]
    try:
      step = int(session.run(self._global_step_tensor))
      self._save(session, step)
    finally:
      self._listeners = listeners
    if evaluating:  # Else the evaluation of this step may still be due.
      self._timer.update_last_triggered_step(step)
    return self._tells.checkpoint

  def _save(self, session: Any, step: int) -> Any:
    # The Estimator looks at the loss after its step: weights that a step has spoiled it sees a step
    # later. Saved before, they would be what the same command resumes from.
    if not all(session.run(self._finite)):
      raise tf.compat.v1.train.NanLossDuringTrainingError
    saver = self._get_saver()  # JOB/checkpoint must not list what goes after this save.
    others = [each for each in saver._last_checkpoints if each[0] != self._tells.by_time]
    saver.set_last_checkpoints_with_time(others)
    try:
      ends = super()._save(session, step)
      self._saved_at = time.monotonic()
      return ends
    except (tf.errors.OpError, ValueError, RuntimeError):  # The last is of train_and_evaluate.
      saved = self._tells.checkpoint
      if (
        self._tells.step != step
        or files.exists(f'{saved}.index')
        or not files.is_dir(os.path.dirname(saved))
      ):
        raise
      log.info('%s was deleted before it was evaluated; training goes on', saved)
      return False


class _Tells(tf.compat.v1.train.CheckpointSaverListener):
  """After a save, before a listener evaluates the checkpoint: calls callbacks.

  Removes the checkpoint before, if that was saved for its time alone.
  """

  def __init__(self, job_dir: str, callbacks: Sequence[Callback]):
    self._job_dir = job_dir
    self._callbacks = callbacks
    self.checkpoint = ''
    self.by_time = ''  # The same, if it was saved for its time alone.
    self.step = -1

  def before_save(self, session: Any, global_step_value: int) -> None:
    # TensorFlow would make the folder again.
    files.check_there('--job-dir', self._job_dir)

  def after_save(self, session: Any, global_step_value: int) -> None:
    self.checkpoint = tf.train.latest_checkpoint(self._job_dir)
    if self.by_time not in ('', self.checkpoint):
      with contextlib.suppress(tf.errors.OpError):
        tf.compat.v1.train.remove_checkpoint(self.by_time)
    self.by_time = ''
    self.step = int(global_step_value)
    for callback in self._callbacks:
      callback.on_save(self.checkpoint, self.step)
