"""Copies the checkpoints that are best on the validation split to JOB/best/."""

from cifar10.callbacks.base import Callback, Evaluation
from cifar10.core import files
from cifar10.core.logs import log
from cifar10.job import checkpoints
from cifar10.job.run import Run


def make(run: Run) -> Callback | None:
  """Returns the callback, unless --keep-best is 0."""
  if not run.options.keep_best:
    return None
  checkpoints.read_best(run.job_dir)  # So that a damaged best.json is refused at once.
  return BestCheckpoint(run)


class BestCheckpoint(Callback):
  """Copies each evaluated checkpoint that is among the best so far."""

  def __init__(self, run: Run):
    self._run = run

  def begin(self) -> None:
    train_on, subset = self._run.hparams.train_on, self._run.options.subset
    if not self._run.is_chief:
      return
    if train_on != 'train':
      log.info('no best/: with --train-on %s no split is left to choose by', train_on)
    elif subset not in (None, 'validation'):
      log.info('no best/: --subset %s is not the split to choose by', subset)
    elif not self._run.evaluates and not self._run.cluster.has_evaluator:
      log.info('no best/: nothing evaluates on the way')

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    if not evaluation.chooses:
      return
    options = self._run.options
    try:
      is_best = checkpoints.keep_best(
        self._run.job_dir,
        evaluation.checkpoint,
        evaluation.result,
        options.keep_best,
        options.best_by,
      )
    except FileNotFoundError:
      if files.exists(f'{evaluation.checkpoint}.index'):
        raise
      log.info('%s is not kept: it was deleted while it was evaluated', evaluation.checkpoint)
      return
    if is_best:
      value = evaluation.result[options.best_by]
      log.info('best so far: %s %.4f at step %s', options.best_by, value, f'{evaluation.step:,}')
