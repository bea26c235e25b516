"""Evaluates a job's checkpoints: a single one, or each one that a training saves."""

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from cifar10.callbacks import progress, registry
from cifar10.callbacks.base import Callback, Evaluation
from cifar10.core import files
from cifar10.core.errors import StorageError
from cifar10.core.logs import log
from cifar10.data import input_pipeline
from cifar10.data.input_pipeline import Cifar10DataSet
from cifar10.data.python_source import PythonSource
from cifar10.job import checkpoints, metrics_log
from cifar10.job.run import Run
from cifar10.training import evaluation
from cifar10.training.estimator import inference_estimator, with_checkpoint

Examples = Cifar10DataSet | PythonSource


def held_out(run: Run, subset: str) -> Examples:
  """Returns a subset's examples: of its records, or of --validation-source.

  Raises:
    InputError: the subset is missing or damaged, or a batch does not fit into the memory.
  """
  source = run.hparams.validation_source
  found: Examples = Cifar10DataSet(run.data_dir, subset)
  if subset == 'validation' and source:
    found = PythonSource('--validation-source', source, run.data.num_classes, examples_per_epoch=0)
  count = found.num_examples_per_epoch()
  input_pipeline.check_memory(min(count, run.hparams.eval_batch_size), '--eval-batch-size')
  return found


class Evaluator:
  """Evaluates checkpoints and calls callbacks with the results.

  Attributes:
    callbacks: hear of each evaluation.
    input_fn: of the split that is evaluated on the way.
    last: what the last evaluation found, as the program prints it.
  """

  def __init__(self, run: Run):
    self.callbacks: list[Callback] = []  # The trainer adds them.
    self.last: dict[str, Any] = {}
    self._run = run
    self._examples: dict[str, Examples] = {}
    self._kept: dict[str, evaluation.KeptEvaluation] = {}
    self._steps: dict[str, int] = {}  # The last one evaluated of each split.
    self.input_fn = self.input_fn_of(run.split_on_the_way)

  def input_fn_of(self, split: str) -> Callable[[], Any]:
    """Returns an input function that reads each example of a split once."""
    size = self._run.hparams.eval_batch_size
    return lambda: input_pipeline.cut(self.check(split).one_pass(size), 1)

  def check(self, *splits: str) -> Examples:
    """Returns the examples of the last of these splits; raises InputError as `held_out` does."""
    for split in splits:
      if split not in self._examples:
        self._examples[split] = held_out(self._run, split)
    return self._examples[split]

  def evaluated(self, split: str, on_the_way: bool = False) -> dict[str, Any]:
    """Evaluates the job's checkpoint, unless that was the last one; returns what is printed."""

    def use(checkpoint: str) -> dict[str, Any]:
      last = (self.last.get('subset'), self.last.get('global_step'))
      if last != (split, checkpoints.global_step(checkpoint)):
        self.evaluate(split, checkpoint, on_the_way)
      return self.last

    return with_checkpoint(self._run, use)

  def evaluate(self, split: str, checkpoint: str, on_the_way: bool) -> Mapping[str, Any]:
    """Evaluates a checkpoint in the split's graph, calls callbacks, and returns the metrics."""
    run = self._run
    run.monitor.check()  # After SIGTERM there is no time to evaluate the last checkpoint.
    if split not in self._kept:
      estimator = inference_estimator(run)
      self._kept[split] = evaluation.KeptEvaluation(estimator, self.input_fn_of(split))
    examples, size = self.check(split), run.hparams.eval_batch_size
    count = examples.num_examples_per_epoch()
    with examples.reading(), progress.evaluation_bar(split, count) as bar:

      def after_batch() -> None:
        bar.update(min(size, count - bar.n))
        run.monitor.check()

      measured = self._kept[split].evaluate(checkpoint, after_batch)
    made = evaluation.make_evaluation(
      measured,
      split,
      checkpoint,
      run.data.classes,
      on_the_way=on_the_way,
      is_held_out=split not in run.hparams.train_on.split('+'),
      use_ema=run.options.use_ema,
    )
    self.last = dict(made.result)
    self._show(made, measured.metrics)
    run.step = made.step
    for callback in self.callbacks:
      callback.on_evaluate_end(made)
    return measured.metrics

  def _show(self, made: Evaluation, metrics: Mapping[str, float]) -> None:
    """Writes a checkpoint's metrics for TensorBoard, as the Estimator does, and logs some."""
    # TensorBoard names runs by folder: not 'eval_validation' and 'eval_eval'.
    folder = os.path.join(self._run.job_dir, made.split)
    if made.on_the_way:  # Of an earlier process, or of this one before the chief went back.
      is_repeated = made.step <= self._steps.get(made.split, made.step)
    else:
      is_repeated = metrics_log.has_evaluation(self._run.job_dir, made.step, made.split)
    if self.callbacks and is_repeated:
      metrics_log.drop_summaries_from(folder, made.step)
    self._steps[made.split] = made.step
    values = {name: float(value) for name, value in metrics.items() if name != 'global_step'}
    known = {name: value for name, value in values.items() if not math.isnan(value)}
    metrics_log.write_scalars(folder, made.step, known)
    shown = ('accuracy', 'accuracy_top5', 'cross_entropy')
    said = '  '.join(f'{name} {made.result[name]:.4f}' for name in shown)
    log.info('evaluated at step %s  %s', f'{made.step:,}', said)


def evaluate_once(run: Run) -> dict[str, Any]:
  """Evaluates one checkpoint on one split and returns the result."""
  evaluator = Evaluator(run)
  evaluator.check(run.final_split)
  evaluator.callbacks += registry.make_own(run)
  try:
    with files.naming_errors('--job-dir', run.job_dir):
      return evaluator.evaluated(run.final_split)
  except StorageError as error:
    if not evaluator.last:
      raise
    log.info('not kept for TensorBoard: %s', error)
    return evaluator.last
