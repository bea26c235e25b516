"""Evaluates a job's checkpoints: one, or as a cluster's evaluator each that the chief saves."""

import contextlib
import functools
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from cifar10.callbacks import progress, registry
from cifar10.callbacks.base import Callback, Evaluation
from cifar10.cluster.liveness import reachable
from cifar10.core import files, logs
from cifar10.core.errors import StorageError, TaskLostError
from cifar10.core.logs import log
from cifar10.data import input_pipeline
from cifar10.data.python_source import PythonSource
from cifar10.job import checkpoints, job_config, metrics_log, stop_record
from cifar10.job.run import Run
from cifar10.training.estimator import Restored, with_checkpoint
from cifar10.training.evaluation import MATRIX
from estimator_again import estimator as tf_estimator

_FAR = 0.15  # A lower accuracy by more is no chance, even of a hundred images.
_LOOK_SECONDS = 1  # Between two looks at the latest checkpoint.
Examples = input_pipeline.Cifar10DataSet | PythonSource
Metrics = Mapping[str, Any]  # By name: float32 scalars, and the matrix under MATRIX.


def held_out(run: Run, subset: str) -> Examples:
  """Returns a subset's examples: of its records, or of --validation-source.

  Raises InputError where the subset is missing or damaged, or a batch does not fit into the memory.
  """
  source = run.hparams.validation_source
  found: Examples = input_pipeline.Cifar10DataSet(run.data_dir, subset)
  if subset == 'validation' and source:
    found = PythonSource('--validation-source', source, run.data.num_classes, examples_per_epoch=0)
  count = found.num_examples_per_epoch()
  input_pipeline.check_memory(min(count, run.hparams.eval_batch_size), '--eval-batch-size')
  return found


class KeptEvaluation(Restored):
  """An evaluation of one split, to run many times: its session keeps graph and variables."""

  def __init__(self, run: Run, input_fn: Callable[[], tf.data.Dataset]):
    """Builds the graph for a dataset that ends; reads no data."""

    def inputs() -> Any:
      with tf.device('/cpu:0'):
        self._iterator = tf.compat.v1.data.make_initializable_iterator(input_fn())
      return self._iterator.get_next()

    super().__init__(run, tf_estimator.ModeKeys.EVAL, inputs)
    self._update = [update for _, update in self.spec.eval_metric_ops.values()]

  def batches(self, checkpoint: str) -> Iterator[None]:
    """Restores a checkpoint and evaluates it on every example once, one batch after another."""
    self.restore(checkpoint)
    self.session.run([self._scaffold.local_init_op, self._iterator.initializer])
    with contextlib.suppress(tf.errors.OutOfRangeError):  # The data set has ended.
      while True:
        self.session.run(self._update)
        yield

  def metrics(self) -> dict[str, Any]:
    """Returns the metrics of these batches, 'loss' and 'global_step' among them."""
    values = {name: value for name, (value, _) in self.spec.eval_metric_ops.items()}
    values |= {'global_step': self.global_step}
    [values[MATRIX]] = self.session.graph.get_collection(MATRIX)
    found = self.session.run(values)
    # Not the mean of the batches' losses: the last batch may have fewer examples.
    found['loss'] = found['loss_parts/cross_entropy'] + found['loss_parts/weight_penalty']
    return found


class Evaluator:
  """Evaluates checkpoints and calls callbacks with the results.

  Attributes:
    callbacks: hear of each evaluation.
    examples: returns those of a split, as `held_out` does; the same each time.
    input_fn: of the split that is evaluated on the way.
    last: what the last evaluation found, as the program prints it.
  """

  def __init__(self, run: Run):
    self.callbacks: list[Callback] = []  # The trainer adds them.
    self.last: dict[str, Any] = {}
    self._run = run
    self.examples = functools.cache(functools.partial(held_out, run))
    self._kept = functools.cache(lambda split: KeptEvaluation(run, self.input_fn_of(split)))
    self.input_fn = self.input_fn_of(run.split_on_the_way)

  def input_fn_of(self, split: str) -> Callable[[], Any]:
    """Returns an input function that reads each example of a split once."""
    size = self._run.hparams.eval_batch_size
    return lambda: input_pipeline.cut(self.examples(split).one_pass(size), 1)

  def check(self) -> None:
    """Raises InputError, as `held_out` does, for the splits of a training."""
    self.examples(self._run.split_on_the_way)
    self.examples(self._run.final_split)

  def evaluated(self, split: str, on_the_way: bool = False) -> dict[str, Any]:
    """Evaluates the job's checkpoint, unless that was the last one; returns what is printed."""

    def use(checkpoint: str) -> dict[str, Any]:
      last = (self.last.get('subset'), self.last.get('global_step'))
      if last != (split, checkpoints.global_step(checkpoint)):
        self.evaluate(split, checkpoint, on_the_way)
      return self.last

    return with_checkpoint(self._run, use)

  def evaluate(self, split: str, checkpoint: str, on_the_way: bool) -> Metrics:
    """Evaluates a checkpoint in the split's graph, calls callbacks, and returns the metrics."""
    run = self._run
    run.role.monitor.check()  # After SIGTERM there is no time to evaluate the last checkpoint.
    # First, outside of the graph: a source may need eager mode.
    examples, size, kept = self.examples(split), run.hparams.eval_batch_size, self._kept(split)
    count = examples.num_examples_per_epoch()
    is_hidden = not (count and progress.shows_bars())
    bar = logs.images_bar(total=count, desc=f'evaluating {split}', disable=is_hidden)
    with examples.reading(), bar:
      for _ in kept.batches(checkpoint):
        bar.update(min(size, count - bar.n))
        run.role.monitor.check()
    metrics = kept.metrics()
    self.last = printed(run, split, checkpoint, metrics)
    matrix = metrics.pop(MATRIX)
    run.step = self.last['global_step']
    is_held_out = split not in run.hparams.train_on.split('+')
    made = Evaluation(
      run.step, split, checkpoint, dict(self.last), matrix.tolist(), on_the_way, is_held_out
    )
    self._show(made, metrics)
    for callback in self.callbacks:
      callback.on_evaluate_end(made)
    return metrics

  def _show(self, made: Evaluation, metrics: Metrics) -> None:
    """Writes a checkpoint's metrics for TensorBoard, as the Estimator does, and logs some."""
    job_dir, step, split = self._run.job_dir, made.step, made.split
    folder = os.path.join(job_dir, split)  # TensorBoard names runs by it: not 'eval_validation'.
    # Of the same step, or of one before the chief went back: TensorBoard drops what follows.
    if self.callbacks and (made.on_the_way or metrics_log.evaluations(job_dir, step, split)):
      metrics_log.drop_summaries_from(folder, step)
    values = {name: float(value) for name, value in metrics.items() if name != 'global_step'}
    known = {name: value for name, value in values.items() if not math.isnan(value)}
    metrics_log.write_scalars(folder, step, known)
    shown = ('accuracy', 'accuracy_top5', 'cross_entropy')
    said = '  '.join(f'{name} {made.result[name]:.4f}' for name in shown)
    log.info('evaluated at step %s on %s  %s', f'{step:,}', split, said)
    if made.is_held_out:
      events, count = metrics_log.read(job_dir), self._run.data.num_classes
      if low := low_accuracy(events, step, made.result['accuracy'], count):
        log.info(low)


def printed(run: Run, split: str, checkpoint: str, metrics: Metrics) -> dict[str, Any]:
  """Returns what the program prints of an evaluation."""
  values = {name: round(float(value), 6) for name, value in metrics.items() if value.ndim == 0}
  without_tta = values.get('other_accuracies/without_tta')
  by_class = {name: values[f'per_class_accuracy/{name}'] for name in run.data.classes}
  return {
    'accuracy': values['accuracy'],
    **({} if without_tta is None else {'accuracy_without_tta': without_tta}),
    'accuracy_top5': values['other_accuracies/top5'],
    'loss': values['loss'],
    'cross_entropy': values['loss_parts/cross_entropy'],
    'accuracy_by_class': files.finite(by_class),  # None for a class without examples.
    'global_step': int(metrics['global_step']),
    'examples': int(metrics[MATRIX].sum()),
    'subset': split,
    'checkpoint': checkpoint,
    **({'weights': 'ema'} if run.options.use_ema else {}),
  }


def low_accuracy(
  events: Sequence[metrics_log.Event], step: int, accuracy: float, num_classes: int
) -> str:
  """Returns what an accuracy on held-out images far below the training's may be; '' for others.

  Far is less than half as much above chance, and a difference that is none of chance. What
  training measures is of augmented images and of the hundred steps before, so rather too low.
  """
  trained = [
    each['accuracy']
    for each in events  # Others may write lines, too.
    if each['event'] == 'train' and each['step'] <= step and 'accuracy' in each
  ]
  chance, before = 1 / num_classes, trained[-1] if trained else 0.0
  if accuracy > before - _FAR or accuracy - chance >= (before - chance) / 2:
    return ''
  return (
    f'{accuracy:.4f} is far below the accuracy in training, {before:.4f}: it may be the learning '
    "rate, too few steps for batch norm's averages, overfitting, or images unlike those of "
    'training (docs/training.md, "Why is my accuracy low?")'
  )


def evaluate_once(run: Run) -> dict[str, Any]:
  """Evaluates one checkpoint on one split and returns the result."""
  evaluator = Evaluator(run)
  evaluator.callbacks += registry.make_own(run)
  try:
    with files.naming_errors('--job-dir', run.job_dir):
      return evaluator.evaluated(run.final_split)
  except StorageError as error:
    if not evaluator.last:
      raise
    log.info('not kept for TensorBoard: %s', error)
    return evaluator.last


def follow(run: Run) -> dict[str, Any]:
  """Evaluates new checkpoints as they appear, and the last one like a chief would.

  Raises InputError where the file of a split is missing or damaged; TaskLostError where the chief
  is gone, and no checkpoint appeared for --start-timeout; Terminated after SIGTERM.
  """
  evaluator = Evaluator(run)
  evaluator.check()
  evaluator.callbacks += registry.make_all(run)
  seen, seen_at = '', time.monotonic()
  while True:
    run.role.monitor.check()
    checkpoint = _readable(run.job_dir)
    if checkpoint not in ('', seen):
      seen = checkpoint
      if checkpoints.step_of(checkpoint):  # Not 0: nothing was learned yet.
        evaluator.evaluated(run.split_on_the_way, on_the_way=True)
      seen_at = time.monotonic()
    elif checkpoint and (ended_by := _ended_by(run, checkpoint)):
      return {**evaluator.evaluated(run.final_split), 'ended_by': ended_by}
    if any(map(reachable, run.cluster.addresses.get('chief', ()))):
      seen_at = time.monotonic()
    elif time.monotonic() - seen_at > run.options.start_timeout:
      raise TaskLostError(
        f'no new checkpoint in {run.job_dir} for {run.options.start_timeout:g} s, and the chief '
        'cannot be reached; start it again, or raise --start-timeout'
      )
    time.sleep(_LOOK_SECONDS)


def _readable(job_dir: str) -> str:
  """Returns the latest checkpoint; '' if it cannot be read now: the chief may move or delete it."""
  checkpoint = checkpoints.listed(job_dir)
  with contextlib.suppress(OSError, tf.errors.OpError):
    if checkpoint and not checkpoints.fault_of(checkpoint):
      return checkpoint
  return ''


def _ended_by(run: Run, checkpoint: str) -> str:
  """Returns why training ended with this checkpoint; '' if it did not."""
  try:  # Not by its name: asynchronous workers make steps between the naming and the save.
    step = checkpoints.global_step(checkpoint)
  except tf.errors.OpError:  # It was deleted, so a newer one exists.
    return ''
  ended = stop_record.read(run.job_dir)
  if ended and ended[1] == step and stop_record.holds(ended[0], run.options):
    return ended[0].name
  last_step, epochs = run.hparams.train_steps, run.hparams.train_epochs
  if epochs:  # The chief has counted them in steps, unless it has yet to begin with this command.
    config = job_config.read_config(run.job_dir) or {}
    here = {'train_epochs': epochs, 'train_batch_size': run.hparams.train_batch_size}
    last_step = config['train_steps'] if here.items() <= config.items() else sys.maxsize
  return 'train_steps' if step >= last_step else ''
