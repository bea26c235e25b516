"""One job: what each mode does with it."""

from collections.abc import Iterator, Sequence
from typing import Any

from cifar10.callbacks import registry
from cifar10.cluster import parameter_server
from cifar10.core import parts
from cifar10.core.logs import log
from cifar10.inference.predictions import Predictions, read_predictions
from cifar10.job import stop_record
from cifar10.training import checkpoint_choice
from cifar10.training.evaluation_result import JsonObject
from cifar10.training.evaluator import Evaluator
from cifar10.training.process import Process
from cifar10.training.trainer import Trainer, make_run


class Job:
  """Trains, evaluates, predicts with and exports one network in one job dir."""

  def __init__(self, process: Process):
    """`process` says of which job; nothing is written yet."""
    self._process = process
    self._evaluator = Evaluator(process)
    self._trainer = Trainer(process, self._evaluator)

  def train_and_evaluate(self) -> JsonObject:
    """Trains to the last step, evaluating on the way; then evaluates the test split once.

    In a cluster the chief and the workers train. An evaluator evaluates on the way, and at the end
    in the chief's place, where TF_CONFIG lists one.

    Returns:
      The last evaluation, as `evaluate` returns it; of a worker, its name and steps; of a chief
      with an evaluator, the last checkpoint.

    Raises:
      InputError: data that is missing or not the job's, a batch that the towers cannot share, or a
        loss that became NaN.
      Terminated: SIGTERM came; the chief has saved.
    """
    evaluates_at_the_end = (
      self._process.cluster.is_chief and not self._process.cluster.has_evaluator
    )
    if evaluates_at_the_end:  # Before an hour of training, not after it.
      self.check_evaluations()
    ended_by, steps = self._trainer.train(evaluating=True)
    if not self._process.cluster.is_chief:
      return {'task': self._process.cluster.name, 'steps': steps}
    result = (
      self._evaluator.evaluated(self._process.final_split)
      if evaluates_at_the_end
      else self._saved()
    )
    return {**result, 'ended_by': ended_by}

  def train(self, more_hooks: Sequence[Any] = ()) -> JsonObject:
    """Trains to the last step, with `more_hooks` beside its own, and evaluates nothing."""
    ended_by, steps = self._trainer.train(evaluating=False, more_hooks=more_hooks)
    if not self._process.cluster.is_chief:
      return {'task': self._process.cluster.name, 'steps': steps}
    return {**self._saved(), 'ended_by': ended_by}

  def serve(self) -> JsonObject:
    """Is a parameter server until everyone is done; raises Terminated on SIGTERM."""
    parameter_server.serve(self._process.cluster, self._process.monitor)
    return {'task': self._process.cluster.name}

  def evaluate_on_the_way(self) -> JsonObject:
    """Is an evaluator: evaluates new checkpoints as they come, and the last one like the chief.

    Raises:
      InputError: the chief has gone, and no checkpoint came for so long as the options say.
      Terminated: SIGTERM came.
    """
    self.check_evaluations()
    run = make_run(self._process, stop_record.StopRequest())
    self._evaluator.callbacks = registry.make_all(run)
    return self._evaluator.follow()

  def check_evaluations(self) -> None:
    """Raises InputError where a split that is evaluated has a file missing or damaged."""
    for split in (self._process.split_on_the_way, self._process.final_split):
      self._process.check_split(split)

  def evaluate(self) -> JsonObject:
    """Evaluates one checkpoint on one split."""
    self._process.check_split(self._process.final_split)
    return self._evaluator.evaluated(self._process.final_split)

  def predict(self, images: Sequence[str]) -> Iterator[JsonObject]:
    """One result for each image file, in order, as they come: as `inference.predict` says."""
    classes = self._process.data.classes
    return parts.load('predict').predict(
      self._process.estimator(), images, self._process.checkpoint(), classes
    )

  def predictions(self) -> Predictions:
    """What one checkpoint says of every image of one split."""
    self._process.check_split(self._process.final_split)
    checkpoint = self._process.checkpoint()
    log.info('evaluating %s on %s', checkpoint, self._process.final_split)
    return read_predictions(
      self._process.estimator(), self._process.eval_input_fn(self._process.final_split), checkpoint
    )

  def _saved(self) -> JsonObject:
    """The last checkpoint, as the program prints it."""
    checkpoint = self._process.checkpoint()
    return {'global_step': checkpoint_choice.global_step(checkpoint), 'checkpoint': checkpoint}
