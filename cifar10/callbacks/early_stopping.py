"""Early stopping: at an accuracy, after evaluations without a gain, or after some minutes."""

from cifar10.callbacks.base import Callback, Evaluation, Step
from cifar10.job import metrics_log
from cifar10.job.run import Run


def make(run: Run) -> Callback | None:
  """Returns the callback in the chief and in an evaluator, if an option asks for it."""
  options = run.options
  rules = (options.stop_at_accuracy, options.stop_without_gain, options.max_minutes)
  hears = run.is_chief or run.cluster.task_type == 'evaluator'
  return EarlyStopping(run) if hears and any(rule is not None for rule in rules) else None


class EarlyStopping(Callback):
  """Checks each evaluation, and the time after each step."""

  def __init__(self, run: Run):
    self._run = run

  def on_step_end(self, step: Step) -> None:
    limit, minutes = self._run.options.max_minutes, self._run.seconds() / 60
    if limit is not None and minutes >= limit:
      self._run.stop(f'--max-minutes {limit:g} are over', 'max_minutes', minutes)

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    if not evaluation.chooses:
      return
    accuracy, goal = evaluation.result['accuracy'], self._run.options.stop_at_accuracy
    if goal is not None and accuracy >= goal:
      message = f'accuracy {accuracy:.4f} reaches --stop-at-accuracy {goal:g}'
      self._run.stop(message, 'stop_at_accuracy', accuracy)
    patience = self._run.options.stop_without_gain
    if patience is None:
      return
    without_gain = evaluations_without_gain(metrics_log.read(self._run.job_dir))
    if without_gain >= patience:
      message = f'{without_gain} evaluations without a gain (--stop-without-gain {patience})'
      self._run.stop(message, 'stop_without_gain', without_gain)


def evaluations_without_gain(events: list[metrics_log.Event]) -> int:
  """Counts validation evaluations since the best one; among equals the earliest is the best."""
  by_step: dict[int, float] = {}
  for event in events:
    if metrics_log.is_evaluation(event) and event['subset'] == 'validation':
      by_step.setdefault(event['step'], event['accuracy'])  # Later ones have other options.
  accuracies = list(by_step.values())
  return len(accuracies) - 1 - accuracies.index(max(accuracies)) if accuracies else 0
