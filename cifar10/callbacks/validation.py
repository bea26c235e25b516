"""What evaluations of the validation split decide: the best checkpoints, and an early end."""

from cifar10.callbacks.base import Callback, Evaluation, Step
from cifar10.core import files
from cifar10.core.logs import log
from cifar10.core.option import flag_of
from cifar10.job import checkpoints, metrics_log, stop_record
from cifar10.job.run import Run


class BestCheckpoint(Callback):
  """Copies each evaluated checkpoint that is among the best so far to JOB/best/."""

  def __init__(self, run: Run):
    self._run = run

  def begin(self) -> None:
    if (train_on := self._run.hparams.train_on) != 'train':
      log.info('no best/: with --train-on %s no split is left to choose by', train_on)

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    if not evaluation.chooses:
      return
    options, checkpoint, result = self._run.options, evaluation.checkpoint, evaluation.result
    try:
      if checkpoints.keep_best(options.job_dir, checkpoint, result, options.keep_best):
        log.info('best so far: accuracy %.4f at step %d', result['accuracy'], evaluation.step)
    except FileNotFoundError:
      if files.exists(f'{checkpoint}.index'):
        raise
      log.info('%s is not kept: it was deleted while it was evaluated', checkpoint)


class EarlyStopping(Callback):
  """Ends training at an accuracy, after evaluations without a gain, or after some minutes."""

  def __init__(self, run: Run):
    self._run = run

  def on_step_end(self, step: Step) -> None:
    self._check('max_minutes', self._run.seconds() / 60)

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    if evaluation.chooses:
      self._judge(evaluation.result['accuracy'], metrics_log.read(self._run.job_dir))

  def judge_again(self) -> None:
    """Judges the evaluation of the step at which training resumes, if no end has followed it.

    A process may be killed after an evaluation, before it has recorded the end that this decides.
    """
    run, events = self._run, metrics_log.read(self._run.job_dir)
    kept = [each for each in events if each['step'] <= run.step]  # Others are of steps given up.
    made = metrics_log.evaluations(run.job_dir, run.step, 'validation')
    ends = [each.get('reason') for each in events if each['step'] >= run.step]
    if made and run.hparams.train_on == 'train' and not set(ends) & set(stop_record.LIMITS):
      self._judge(made[0]['accuracy'], kept)

  def _judge(self, accuracy: float, events: list[metrics_log.Event]) -> None:
    self._check('stop_at_accuracy', accuracy)
    self._check('stop_without_gain', evaluations_without_gain(events))

  def _check(self, name: str, value: float) -> None:
    """Ends training if the value has reached the option's limit."""
    limit = getattr(self._run.options, name)
    if limit is not None and value >= limit:
      self._run.stop(f'{value:.4g} reaches {flag_of(name)} {limit:g}', name, value)


def evaluations_without_gain(events: list[metrics_log.Event]) -> int:
  """Counts validation evaluations since the best one; among equals the earliest is the best."""
  by_step: dict[int, float] = {}
  for event in events:
    if metrics_log.is_evaluation(event) and event['subset'] == 'validation':
      by_step.setdefault(event['step'], event['accuracy'])  # Later ones have other options.
  accuracies = list(by_step.values())
  return len(accuracies) - 1 - accuracies.index(max(accuracies)) if accuracies else 0
