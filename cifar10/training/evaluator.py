"""Evaluates a job's checkpoints: one, those that come while another process trains, or its own."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from cifar10.callbacks import progress, summaries
from cifar10.callbacks.base import Callback
from cifar10.cluster.tf_config import reachable
from cifar10.core import files
from cifar10.core.errors import TaskLostError, Terminated
from cifar10.core.estimator import tf_estimator
from cifar10.core.logs import log
from cifar10.data import input_pipeline
from cifar10.job import best_checkpoints, checkpoints, stop_record
from cifar10.training import evaluation_result
from cifar10.training.evaluation_result import JsonObject
from cifar10.training.evaluation_session import KeptEvaluation
from cifar10.training.process import Process


class Evaluator:
  """Evaluates, and tells callbacks of it."""

  def __init__(self, process: Process):
    """`process` says of which job."""
    self._process = process
    self.callbacks: Sequence[Callback] = ()
    self._last: JsonObject = {}
    self._matrix = evaluation_result.MatrixHook()
    self._kept: dict[str, KeptEvaluation] = {}

  def evaluated(self, split: str, on_the_way: bool = False) -> JsonObject:
    """One evaluation, as the program prints it; not made again if it was the last one made.

    A training that keeps few checkpoints may delete one before it is read: then it takes the next.
    """
    while True:
      found = self._pointed_at()
      try:
        return self._evaluated(split, on_the_way)
      except Terminated:
        raise
      except Exception:
        if not found or files.exists(f'{found}.index') or found == self._pointed_at():
          raise
      log.info('%s was deleted before it was evaluated; taking the next', found)

  def _pointed_at(self) -> str:
    """The checkpoint to evaluate, whether or not it is still there; '' for none."""
    named = self._process.options.checkpoint
    if named == checkpoints.BEST:
      return best_checkpoints.checkpoint(self._process.options.job_dir)
    return named or checkpoints.listed(self._process.options.job_dir) or ''

  def _evaluated(self, split: str, on_the_way: bool) -> JsonObject:
    checkpoint = self._process.checkpoint()
    last = self._last
    step = checkpoints.global_step(checkpoint)
    if (last.get('subset'), last.get('global_step')) != (split, step):
      if self.callbacks:
        summaries.drop_evaluation(self._process.options.job_dir, split, step)
      metrics = self.evaluate(
        name=split,
        checkpoint_path=checkpoint,
        hooks=[self._evaluation_bar(split), self._matrix],
      )
      self._heard(metrics, split, checkpoint, on_the_way)
    return self._last

  def evaluate(
    self, *, name: str, checkpoint_path: str, hooks: Sequence[Any], **_: Any
  ) -> dict[str, Any]:
    """Takes the place of `Estimator.evaluate`, which builds a graph for each checkpoint."""
    self._process.monitor.check()  # SIGTERM leaves no time to evaluate what was just saved.
    if name not in self._kept:
      input_fn = self._process.eval_input_fn(name)
      self._kept[name] = KeptEvaluation(self._process.estimator(), input_fn, name)
    return self._kept[name].evaluate(checkpoint_path, hooks)

  def spec(self) -> Any:
    """What the Estimator evaluates while it trains."""
    split = self._process.split_on_the_way

    def heard(metrics: Mapping[str, Any], checkpoint: str) -> None:
      self._heard(metrics, split, checkpoint, on_the_way=True)

    return tf_estimator.EvalSpec(
      self._process.eval_input_fn(split),
      steps=None,
      name=split,
      hooks=[self._evaluation_bar(split), self._matrix],
      exporters=[evaluation_result.Listener(heard)],
      start_delay_secs=0,
      throttle_secs=0,  # Every checkpoint: eval_every_steps says how many there are.
    )

  def follow(self) -> JsonObject:
    """Evaluates new checkpoints as they come, and the last one like the chief.

    Raises:
      InputError: the chief has gone, and no checkpoint came for so long as the options say.
      Terminated: SIGTERM came.
    """
    patience = self._process.options.evaluator_patience
    seen, seen_at = None, time.monotonic()
    while True:
      self._process.monitor.check()
      checkpoint = checkpoints.listed(self._process.options.job_dir)
      fault = checkpoints.fault_of(checkpoint) if checkpoint else ''
      if fault and checkpoint != checkpoints.listed(self._process.options.job_dir):
        continue  # It was deleted before it was read: the next is there.
      if checkpoint and checkpoint != seen:
        seen, seen_at = checkpoint, time.monotonic()
        if fault:  # The chief may be about to set it aside.
          log.info('damaged: %s (%s); waiting for the next', checkpoint, fault)
        else:
          self.evaluated(self._process.split_on_the_way, on_the_way=True)
      elif checkpoint and not fault and self._is_last(checkpoint):
        return self.evaluated(self._process.final_split)
      elif self._chief_is_there():
        seen_at = time.monotonic()
      elif time.monotonic() - seen_at > patience:
        raise TaskLostError(
          f'no new checkpoint in {self._process.options.job_dir} for {patience:g} s, and the chief '
          'cannot be reached; start it again, or raise --evaluator-patience'
        )
      time.sleep(1)

  def _heard(
    self, metrics: Mapping[str, Any], split: str, checkpoint: str, on_the_way: bool
  ) -> None:
    """Remembers an evaluation, and tells callbacks of it."""
    made = evaluation_result.make_evaluation(
      metrics,
      self._matrix.matrix,
      split,
      checkpoint,
      self._process.data.classes,
      on_the_way=on_the_way,
      use_ema=self._process.options.use_ema,
    )
    self._last = dict(made.result)
    for callback in self.callbacks:
      callback.on_evaluate_end(made)

  def _evaluation_bar(self, split: str) -> Any:
    count = input_pipeline.RecordDataset(self._process.data_dir, split).num_examples_per_epoch()
    return progress.EvaluationBarHook(split, count, self._process.hparams.eval_batch_size)

  def _is_last(self, checkpoint: str) -> bool:
    """Whether training ended with it, at the last step or before."""
    step = int(checkpoint.rpartition('-')[2])  # By its name: it may be deleted already.
    ended = stop_record.read(self._process.options.job_dir)
    ended_here = ended and ended[1] == step and stop_record.holds(ended[0], self._process.options)
    return step >= self._process.hparams.train_steps or bool(ended_here)

  def _chief_is_there(self) -> bool:
    return any(map(reachable, self._process.cluster.addresses.get('chief', ())))
