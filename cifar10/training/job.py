"""One job: what each mode does with it."""

from collections.abc import Iterator, Sequence
from typing import Any

from cifar10.callbacks import ending, registry
from cifar10.cluster import parameter_server
from cifar10.inference import predict
from cifar10.inference.answers import Answers, read_answers
from cifar10.platform.logs import log
from cifar10.training import checkpoints, export
from cifar10.training.evaluation import JsonObject
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
      self._evaluator.evaluated(self._process.final_subset)
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
    parameter_server.serve(self._process.cluster, self._process.watch)
    return {'task': self._process.cluster.name}

  def evaluate_on_the_way(self) -> JsonObject:
    """Is an evaluator: evaluates new checkpoints as they come, and the last one like the chief.

    Raises:
      InputError: the chief has gone, and no checkpoint came for so long as the options say.
      Terminated: SIGTERM came.
    """
    self.check_evaluations()
    run = make_run(self._process, ending.Ending())
    self._evaluator.callbacks = registry.make_all(run)
    return self._evaluator.follow()

  def check_evaluations(self) -> None:
    """Raises InputError where a split that is evaluated has a file missing or damaged."""
    for subset in (self._process.subset_on_the_way, self._process.final_subset):
      self._process.check_subset(subset)

  def evaluate(self) -> JsonObject:
    """Evaluates one checkpoint on one split."""
    self._process.check_subset(self._process.final_subset)
    return self._evaluator.evaluated(self._process.final_subset)

  def predict(self, images: Sequence[str]) -> Iterator[JsonObject]:
    """One result for each image file, in order, as they come: as `inference.predict` says."""
    classes = self._process.data.classes
    return predict.predict(self._process.estimator(), images, self._process.checkpoint(), classes)

  def answers(self) -> Answers:
    """What one checkpoint says of every image of one split."""
    self._process.check_subset(self._process.final_subset)
    checkpoint = self._process.checkpoint()
    log.info('evaluating %s on %s', checkpoint, self._process.final_subset)
    return read_answers(
      self._process.estimator(), self._process.eval_input_fn(self._process.final_subset), checkpoint
    )

  def export(self) -> JsonObject:
    """Writes a SavedModel under JOB/export/ and names it."""
    return export.export(self._process)

  def _saved(self) -> JsonObject:
    """The last checkpoint, as the program prints it."""
    checkpoint = self._process.checkpoint()
    return {'global_step': checkpoints.global_step(checkpoint), 'checkpoint': checkpoint}
