"""Collects what a report says of a job: its history, and an evaluation of one checkpoint."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core import files
from cifar10.core.errors import DamagedError, InputError
from cifar10.core.logs import log
from cifar10.core.option import declarations
from cifar10.data import input_pipeline, manifest
from cifar10.data.info import DatasetInfo
from cifar10.inference.predictions import CLASSES, IMAGES, PROBABILITIES
from cifar10.job import adopted_config, best_checkpoints, checkpoints, job_config
from cifar10.options.hparams import HParams, all_values, from_values
from cifar10.options.run_options import RunOptions
from cifar10.reporting import formats, history, stats
from cifar10.reporting.history import History, is_number
from cifar10.reporting.stats import Calibration, ClassNumbers, Interval
from cifar10.training import ema
from cifar10.training.process import Process

DEFAULT_SPLIT = 'eval'
NUM_MISTAKES = 40
LAST_WEIGHTS, AVERAGED_WEIGHTS = 'last', 'ema'
_TOP = 5


class Predictions(NamedTuple):
  """A checkpoint's predictions for all images of a split, in the order of the split's file."""

  checkpoint: str
  global_step: int
  classes: np.ndarray  # int64 [n]
  probabilities: np.ndarray  # float32 [n, classes]


class Wanted(NamedTuple):
  """The evaluation that a report shows; None: as the job says."""

  split: str | None = None
  checkpoint: str | None = None
  data_dir: str | None = None


class Mistake(NamedTuple):
  """A wrongly classified image."""

  place: int  # Index in the split's file, from 0.
  image: np.ndarray  # uint8 [32, 32, 3]
  label: str
  predicted: str
  probabilities: list[tuple[str, float]]  # Of all classes, the most probable first.


class SplitReport(NamedTuple):
  """One checkpoint's results on one split; None: unknown."""

  split: str
  checkpoint: str
  step: int
  weights: str
  examples: int | None
  accuracy: Interval | None
  top5: Interval | None  # None also for five classes or fewer.
  plain_accuracy: Interval | None  # Without test-time augmentation, if that is used.
  cross_entropy: float | None
  cross_entropy_interval: Interval | None
  classes: list[ClassNumbers]
  matrix: np.ndarray | None  # int64 [classes, classes]
  calibration: Calibration | None = None
  num_mistakes: int | None = None
  mistakes: Sequence[Mistake] = ()


class JobReport(NamedTuple):
  """One job."""

  letter: str  # The job's name in a comparison: A, B, ...
  path: str
  history: History
  data: DatasetInfo
  options: dict[str, Any]  # By name; without unknown ones.
  evaluation: SplitReport | None
  best: dict[str, Any] | None  # The evaluation that chose the checkpoint in best/.
  notes: list[str]  # What is missing, and why.

  @property
  def name(self) -> str:
    """Returns the job's name: that of its folder."""
    return formats.text(os.path.basename(files.absolute(self.path)))


def collect(letter: str, path: str, wanted: Wanted) -> JobReport:
  """Reads a job and evaluates its checkpoint.

  If the job's own data dir or checkpoint is gone, the report has the evaluation that the job
  recorded, and a note says what is missing.

  Raises:
    InputError: there is no job, something that a flag names is missing, or a file is damaged.
  """
  config = job_config.read_config(path)
  events = history.read(path)
  if config is None and not events.events:
    raise InputError(
      f'{path} holds no job: neither {job_config.CONFIG_NAME} nor metrics.jsonl; '
      "name a job's folder"
    )
  described = config.get('data_set') if config else events.start.get('data_set')
  data = DatasetInfo.from_json(described, f'data_set of {path}')
  hparams = adopted_config.adopt_config({}, config, path, training=False) if config else None
  evaluation, notes = _evaluated(path, events, data, hparams, wanted)
  if events.is_from_event_files:
    notes.append(
      'There is no metrics.jsonl: the curves come from the files for TensorBoard; commands, '
      'versions, hardware and restarts are not known.'
    )
  options = {**events.started_with('options'), **(all_values(hparams) if hparams else {})}
  best = next(iter(best_checkpoints.read(path)), None)
  return JobReport(letter, path, events, data, options, evaluation, best, notes)


def defaults(options: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the defaults of all options, for the network that `options` names."""
  run = {declared.name: declared.default for declared in declarations(RunOptions)}
  network = options.get('network')
  try:
    return {**run, **all_values(from_values({'network': network} if network else {}))}
  except InputError:  # The family is missing in this program.
    return run


def _evaluated(
  path: str, events: History, data: DatasetInfo, hparams: HParams | None, wanted: Wanted
) -> tuple[SplitReport | None, list[str]]:
  """Returns the evaluation, made now or recorded by the job, and notes on what it lacks."""
  split = wanted.split or DEFAULT_SPLIT
  try:
    return _predicted(path, events, data, hparams, wanted)
  except InputError as error:
    # Notes tell of missing files; damage is an error. TensorFlow's list may name checkpoints that
    # the user has deleted.
    is_damaged = isinstance(error, DamagedError) and checkpoints.all_by_step(path)
    if is_damaged or wanted.data_dir or wanted.checkpoint:
      raise
    recorded = events.last_evaluation(split) or events.last_evaluation(wanted.split)
    missing = 'Worst mistakes and calibration' if recorded else 'An evaluation'
    evaluation = from_event(recorded, data.classes) if recorded else None
    return evaluation, [f'{missing} could not be made: {formats.text(error)}.']


def _predicted(
  path: str, events: History, data: DatasetInfo, hparams: HParams | None, wanted: Wanted
) -> tuple[SplitReport, list[str]]:
  """Evaluates the network's predictions; also returns doubts about the numbers.

  Raises:
    InputError: the network, its checkpoint or the data are missing.
  """
  if hparams is None:
    raise InputError(f'{path} has no {job_config.CONFIG_NAME}, which names its network')
  data_dir = wanted.data_dir or events.start.get('data_dir')
  if not data_dir:
    raise InputError('the job does not say where its data are; give --data-dir DIR')
  if not files.is_dir(data_dir):
    raise InputError(f'its data dir {data_dir} is not there; give --data-dir DIR')
  split = wanted.split or DEFAULT_SPLIT
  if last := events.last_evaluation():  # Perhaps of a command that began no run.
    use_ema = last.get('weights') == AVERAGED_WEIGHTS
  else:
    use_ema = events.started_with('options').get('use_ema') is True
  if use_ema and wanted.checkpoint:  # It may be one that `checkpoint dump` wrote.
    use_ema = ema.is_in(checkpoints.find(path, wanted.checkpoint))
  weights = AVERAGED_WEIGHTS if use_ema else LAST_WEIGHTS
  options = RunOptions(
    job_dir=path, data_dir=data_dir, subset=split, checkpoint=wanted.checkpoint, use_ema=use_ema
  )
  process = Process(hparams, options)
  process.check_split(split)
  images, labels = process.held_out(split).all_examples()
  predictions = read_predictions(process, images)
  plain_rate = None
  if checkpoints.is_saved(predictions.checkpoint, path, predictions.global_step):
    measured = (predictions.global_step, split, weights)
    for event in events.of('evaluate'):
      if (event['step'], event.get('subset'), event.get('weights', LAST_WEIGHTS)) == measured:
        plain_rate = event.get('accuracy_without_tta')
  evaluation = from_predictions(
    split,
    predictions,
    images=images,
    labels=labels,
    classes=data.classes,
    weights=weights,
    plain_rate=plain_rate,
  )
  return evaluation, _doubts(path, hparams, data_dir, split)


def read_predictions(process: Process, images: np.ndarray) -> Predictions:
  """Returns a checkpoint's predictions for uint8 images [n, 32, 32, 3]."""
  return process.with_checkpoint(lambda checkpoint: _predictions(process, checkpoint, images))


def _predictions(process: Process, checkpoint: str, images: np.ndarray) -> Predictions:
  log.info('evaluating %s on %s', checkpoint, process.final_split)
  step = checkpoints.global_step(checkpoint)
  size = process.hparams.eval_batch_size

  def cut() -> Iterator[dict[str, np.ndarray]]:
    for start in range(0, len(images), size):
      yield {IMAGES: images[start : start + size]}

  def input_fn() -> Any:
    signature = {IMAGES: tf.TensorSpec([None, *images.shape[1:]], tf.uint8)}
    batches = tf.data.Dataset.from_generator(cut, output_signature=signature)
    return input_pipeline.without_autotune(batches)

  answers = process.estimator().predict(
    input_fn, checkpoint_path=checkpoint, yield_single_examples=False
  )
  classes, probabilities = zip(*((each[CLASSES], each[PROBABILITIES]) for each in answers))
  return Predictions(checkpoint, step, np.concatenate(classes), np.concatenate(probabilities))


def _doubts(path: str, hparams: HParams, data_dir: str, split: str) -> list[str]:
  """Returns reasons why the accuracy on these images may differ from that on new images."""
  doubts = []
  if split in hparams.train_on.split('+') and not hparams.source:
    doubts.append(
      f'The numbers are of images that the network was trained with: {formats.split(split)}.'
    )
  if split == 'validation' and hparams.validation_source:
    return doubts  # Its images are not of the records.
  trained = (job_config.read_config(path) or {}).get('data') or {}
  here = manifest.digests(data_dir) or {}
  if trained.get(split) != here.get(split) and trained and here:
    doubts.append(
      f"The evaluated images in {formats.text(data_dir)} are not the job's own: SHA-256 differs."
    )
  return doubts


def from_predictions(
  split: str,
  predictions: Predictions,
  *,
  images: np.ndarray,
  labels: np.ndarray,
  classes: Sequence[str],
  weights: str = LAST_WEIGHTS,
  plain_rate: Any = None,
) -> SplitReport:
  """Returns all results of a checkpoint's predictions on a split.

  Args:
    split: the name of the split.
    predictions: for all n images.
    images: uint8 [n, 32, 32, 3].
    labels: int [n].
    classes: the names, by label.
    weights: which weights of the checkpoint made the predictions.
    plain_rate: what the job recorded as their accuracy without test-time augmentation.
  """
  is_right = predictions.classes == labels
  cross_entropy = stats.mean(stats.cross_entropies(labels, predictions.probabilities))
  measured = {
    'subset': split,
    'checkpoint': predictions.checkpoint,
    'step': predictions.global_step,
    'weights': weights,
    'examples': len(labels),
    'accuracy': np.mean(is_right),
    'accuracy_top5': np.mean(stats.is_among(labels, predictions.probabilities, _TOP)),
    'accuracy_without_tta': plain_rate,
    'cross_entropy': cross_entropy.value,
    'confusion_matrix': stats.confusion_matrix(labels, predictions.classes, len(classes)),
  }
  worst = stats.worst_mistakes(labels, predictions.classes, predictions.probabilities, NUM_MISTAKES)
  return from_event(measured, classes)._replace(
    cross_entropy_interval=cross_entropy,
    calibration=stats.calibration(predictions.probabilities.max(1), is_right),
    mistakes=[
      Mistake(
        int(index),
        images[index],
        classes[labels[index]],
        classes[predictions.classes[index]],
        _likeliest_first(predictions.probabilities[index], classes),
      )
      for index in worst
    ],
  )


def from_event(event: Mapping[str, Any], classes: Sequence[str]) -> SplitReport:
  """Returns what an evaluation event says: everything but calibration and mistakes."""
  matrix = _matrix(event.get('confusion_matrix'), len(classes))
  examples = event.get('examples')
  count = examples if isinstance(examples, int) and examples > 0 else None
  cross_entropy = event.get('cross_entropy')
  return SplitReport(
    split=str(event.get('subset')),
    checkpoint=str(event.get('checkpoint') or ''),
    step=event['step'],
    weights=str(event.get('weights', LAST_WEIGHTS)),
    examples=count,
    accuracy=_rate(event.get('accuracy'), count),
    top5=_rate(event.get('accuracy_top5'), count) if len(classes) > _TOP else None,
    plain_accuracy=_rate(event.get('accuracy_without_tta'), count),
    cross_entropy=cross_entropy if is_number(cross_entropy) else None,
    cross_entropy_interval=None,
    classes=_by_class(matrix, event.get('accuracy_by_class'), classes),
    matrix=matrix,
    num_mistakes=None if matrix is None else int(matrix.sum() - np.trace(matrix)),
  )


def _likeliest_first(probabilities: np.ndarray, classes: Sequence[str]) -> list[tuple[str, float]]:
  order = np.argsort(-probabilities, kind='stable')
  return [(classes[label], float(probabilities[label])) for label in order]


def _rate(rate: Any, examples: int | None) -> Interval | None:
  """Returns the interval of a rate that has six digits or more, which give the count.

  Where nobody knows of how many examples, its bounds are unknown.
  """
  if not is_number(rate) or not 0 <= rate <= 1:
    return None
  if not examples:
    return Interval(rate, math.nan, math.nan)
  return stats.wilson(round(rate * examples), examples)


def _by_class(
  matrix: np.ndarray | None, accuracies: Any, classes: Sequence[str]
) -> list[ClassNumbers]:
  """Returns the numbers by class of a matrix, or else only those that the accuracies give."""
  if matrix is not None:
    return stats.by_class(matrix, classes)
  if not isinstance(accuracies, Mapping):
    return []
  return [
    ClassNumbers(name, None, Interval(accuracies[name], math.nan, math.nan), None, None, 0)
    for name in classes
    if is_number(accuracies.get(name))
  ]


def _matrix(rows: Any, num_classes: int) -> np.ndarray | None:
  """Returns an event's confusion matrix; None if it is something else."""
  try:
    matrix = np.array(rows, np.int64)
  except (TypeError, ValueError, OverflowError):
    return None
  is_one = matrix.shape == (num_classes, num_classes) and (matrix >= 0).all()
  return matrix if is_one else None
