"""Evaluates a job's checkpoints: a single one, or each one that a training saves."""

import os
from typing import Any

import tensorflow as tf

from cifar10.callbacks import own_callback, progress, summaries
from cifar10.callbacks.base import Callback, Evaluation, Run
from cifar10.core import storage_errors
from cifar10.core.errors import StorageError
from cifar10.core.logs import log
from cifar10.job import checkpoints, metrics_log
from cifar10.job.stop_record import StopRequest
from cifar10.training import evaluation
from cifar10.training.process import Process


class Evaluator:
  """Evaluates checkpoints and calls callbacks with the results."""

  def __init__(self, process: Process):
    self._process = process
    self.callbacks: list[Callback] = []  # The trainer adds them.
    self.last: dict[str, Any] = {}  # What the last evaluation found.
    self._kept: dict[str, evaluation.KeptEvaluation] = {}
    self._steps: dict[str, int] = {}  # The last one evaluated of each split.

  def check_splits(self) -> None:
    """Raises InputError if the file of a split to evaluate is missing or damaged."""
    for split in (self._process.split_on_the_way, self._process.final_split):
      self._process.check_split(split)

  def evaluated(self, split: str, on_the_way: bool = False) -> dict[str, Any]:
    """Evaluates; returns the result as printed, or the last one if nothing has changed since."""

    def use(checkpoint: str) -> dict[str, Any]:
      last = (self.last.get('subset'), self.last.get('global_step'))
      if last != (split, checkpoints.global_step(checkpoint)):
        self.evaluate(split, checkpoint, on_the_way)
      return self.last

    return self._process.with_checkpoint(use)

  def catch_up(self) -> None:
    """Makes the last evaluation on the way, if a run before ended between saving and that."""
    job_dir, split = self._process.options.job_dir, self._process.split_on_the_way
    step = checkpoints.latest_step(job_dir)
    if step and not metrics_log.has_evaluation(job_dir, step, split):
      self.evaluated(split, on_the_way=True)

  def evaluate(self, split: str, checkpoint: str, on_the_way: bool) -> None:
    """Evaluates a checkpoint in the split's graph, and calls callbacks."""
    process = self._process
    process.role.monitor.check()  # After SIGTERM there is no time to evaluate the last checkpoint.
    if split not in self._kept:
      # TensorBoard names runs by folder: not 'eval_validation' and 'eval_eval'.
      folder = os.path.join(process.options.job_dir, split)
      input_fn = process.eval_input_fn(split)
      self._kept[split] = evaluation.KeptEvaluation(process.estimator(), input_fn, folder)
    held_out = process.held_out(split)
    count = held_out.num_examples_per_epoch()
    bar = progress.evaluation_bar(split, count, process.hparams.eval_batch_size)
    with held_out.reading(), bar as advance:

      def after_batch() -> None:
        advance()
        process.role.monitor.check()

      measured = self._kept[split].evaluate(checkpoint, after_batch)
    made = evaluation.make_evaluation(
      measured,
      split,
      checkpoint,
      process.data.classes,
      on_the_way=on_the_way,
      is_held_out=split not in process.hparams.train_on.split('+'),
      use_ema=process.options.use_ema,
    )
    self.last = dict(made.result)
    if self.callbacks and self._is_repeated(made):
      summaries.drop_from(os.path.join(process.options.job_dir, split), made.step)
    self._steps[split] = made.step
    self._kept[split].write(measured.metrics)
    shown = ('accuracy', 'accuracy_top5', 'cross_entropy')
    values = '  '.join(f'{name} {made.result[name]:.4f}' for name in shown)
    log.info('evaluated at step %s  %s', f'{made.step:,}', values)
    for callback in self.callbacks:
      callback.on_evaluate_end(made)

  def _is_repeated(self, made: Evaluation) -> bool:
    """Tells whether TensorBoard may know this evaluation, or later ones that are made again."""
    if made.on_the_way:  # Of an earlier process, or of this one before the chief went back.
      return made.step <= self._steps.get(made.split, made.step)
    return metrics_log.has_evaluation(self._process.options.job_dir, made.step, made.split)


def evaluate_once(process: Process) -> dict[str, Any]:
  """Evaluates one checkpoint on one split and returns the result."""
  process.check_split(process.final_split)
  evaluator = Evaluator(process)
  if process.own_callbacks:
    run = Run(process.hparams, process.options, process.data, process.role, StopRequest())
    evaluator.callbacks += own_callback.make_all(run, process.own_callbacks)
  try:
    with storage_errors.named('--job-dir', process.options.job_dir):
      return evaluator.evaluated(process.final_split)
  except StorageError as error:
    if not evaluator.last:
      raise
    log.info('not kept for TensorBoard: %s', error)
    return evaluator.last


class EvaluateListener(tf.compat.v1.train.CheckpointSaverListener):
  """Evaluates each checkpoint that a training saves.

  The one that it begins with is evaluated if a run before ended between saving and evaluating it.
  """

  def __init__(self, evaluator: Evaluator, process: Process):
    self._evaluator = evaluator
    self._split = process.split_on_the_way
    self._job_dir = process.options.job_dir
    self._every_steps = process.options.eval_every_steps
    self._is_first = True
    self._evaluated_step = -1

  def after_save(self, session: Any, global_step_value: int) -> None:
    begins, self._is_first = self._is_first, False
    if not begins or self._was_missed(global_step_value):
      self.end(session, global_step_value)

  def _was_missed(self, step: int) -> bool:
    is_due = step > 0 and step % self._every_steps == 0
    return is_due and not metrics_log.has_evaluation(self._job_dir, step, self._split)

  def end(self, session: Any, global_step_value: int) -> None:
    if global_step_value != self._evaluated_step:
      self._evaluated_step = global_step_value
      # Not the latest in the list: a callback may have deleted it.
      checkpoint = os.path.join(self._job_dir, f'model.ckpt-{global_step_value}')
      self._evaluator.evaluate(self._split, checkpoint, True)
