"""Collects what a report says of a job: its history, and an evaluation of one checkpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data import input_pipeline, manifest
from cifar10.data.info import DatasetInfo
from cifar10.inference.predictions import CLASSES, IMAGES, PROBABILITIES
from cifar10.job import checkpoints, job_config
from cifar10.job import run as job_run
from cifar10.job.run import Run
from cifar10.options.hparams import all_values
from cifar10.options.run_options import RunOptions
from cifar10.reporting import history, stats
from cifar10.reporting.history import History
from cifar10.reporting.stats import Calibration, ClassResult, Interval
from cifar10.training import ema, examples
from cifar10.training.estimator import inference_estimator
from cifar10.training.job_checkpoint import with_checkpoint

_NUM_MISTAKES, _LIKELIEST = 40, 3
_TOP = 5


@dataclass(frozen=True)
class Mistake:
  """A wrongly classified image."""

  place: int  # Index in the split's file, from 0.
  image: np.ndarray  # uint8 [32, 32, 3]
  label: str
  predicted: str
  probabilities: dict[str, float]  # Of the likeliest classes, and of the true one.


@dataclass(frozen=True)
class Evaluation:
  """One checkpoint's results on one split."""

  subset: str
  checkpoint: str
  step: int
  weights: str  # 'last', or 'ema': their moving average.
  examples: int
  accuracy: Interval
  accuracy_top5: Interval | None  # None: of five classes or fewer.
  cross_entropy: Interval
  confusion_matrix: np.ndarray  # int64 [classes, classes]
  classes: dict[str, ClassResult]
  calibration: Calibration
  mistakes: Sequence[Mistake]


@dataclass(frozen=True)
class JobReport:
  """One job."""

  letter: str  # The job's name in a comparison: A, B, ...
  path: str
  history: History
  data: DatasetInfo
  options: dict[str, Any]  # By name.
  evaluation: Evaluation
  best: Mapping[str, Any] | None  # The evaluation that chose the checkpoint in best/.
  notes: list[str]  # Doubts about the numbers, and what is missing.

  @property
  def name(self) -> str:
    """Returns the job's name: that of its folder."""
    return files.absolute(self.path).rpartition('/')[2]


def collect(
  letter: str, path: str, split: str, checkpoint: str | None = None, data_dir: str | None = None
) -> JobReport:
  """Reads a job and evaluates a checkpoint: the latest, if none is named, with the job's own data.

  Raises:
    InputError: there is no job, or its checkpoint or data are missing or damaged.
  """
  config = job_config.read_config(path)
  if config is None:
    raise InputError(f"{path} holds no job: it has no config.json; name a job's folder")
  hparams = job_config.adopt_config({}, config, path, training=False)
  past = history.read(path)
  data_dir = data_dir or past.started_with('data_dir')
  if not data_dir:
    raise InputError(f'{path} does not say where its data are; give --data-dir DIR')
  if not files.is_dir(data_dir):
    raise InputError(f'the data dir {data_dir} of {path} is not there; give --data-dir DIR')
  use_ema = any(event.get('weights') == 'ema' for event in past.evaluations()[-1:])
  if use_ema and checkpoint:  # It may be one that `checkpoint dump` wrote.
    use_ema = ema.is_in(checkpoints.find(path, checkpoint))
  options = RunOptions(
    job_dir=path, data_dir=data_dir, subset=split, checkpoint=checkpoint, use_ema=use_ema
  )
  run = job_run.begin(hparams, options)

  notes = []
  if split in hparams.train_on.split('+') and not hparams.source:
    notes.append(f'The numbers are of images that the network was trained with: {split}.')
  if split != 'validation' or not hparams.validation_source:  # Its images are of no records.
    trained, here = config.get('data') or {}, manifest.digests(data_dir) or {}
    if trained and here and trained.get(split) != here.get(split):
      notes.append(f"The evaluated images in {data_dir} are not the job's own: SHA-256 differs.")
  if not past.events:
    notes.append('There is no metrics.jsonl: curves, commands, versions, hardware are not known.')
  return JobReport(
    letter,
    path,
    past,
    run.data,
    {**past.started_with('options'), **all_values(hparams)},
    _evaluated(run, split),
    next(iter(checkpoints.read_best(path)), None),
    notes,
  )


def _evaluated(run: Run, split: str) -> Evaluation:
  """Evaluates the predictions of the process's checkpoint for all images of a split."""
  images, labels = examples.held_out(run, split).all_examples()

  def input_fn() -> tf.data.Dataset:
    all_images = tf.data.Dataset.from_tensor_slices({IMAGES: images})
    return input_pipeline.without_autotune(all_images.batch(run.hparams.eval_batch_size))

  def predict(checkpoint: str) -> tuple[str, int, list[Mapping[str, np.ndarray]]]:
    log.info('evaluating %s on %s', checkpoint, split)
    step = checkpoints.global_step(checkpoint)
    answers = inference_estimator(run).predict(
      input_fn, checkpoint_path=checkpoint, yield_single_examples=False
    )
    return checkpoint, step, list(answers)

  checkpoint, step, answers = with_checkpoint(run, predict)
  predicted = np.concatenate([each[CLASSES] for each in answers])  # int64 [n]
  probabilities = np.concatenate([each[PROBABILITIES] for each in answers])  # float32 [n, classes]
  classes = run.data.classes
  matrix = stats.confusion_matrix(labels, predicted, len(classes))
  in_top5 = int(stats.is_among(labels, probabilities, _TOP).sum())
  mistakes = []
  for index in stats.worst_mistakes(labels, predicted, probabilities, _NUM_MISTAKES):
    likeliest = np.argsort(-probabilities[index], kind='stable')[:_LIKELIEST]
    shown = {classes[i]: float(probabilities[index, i]) for i in (*likeliest, labels[index])}
    label, answer = classes[labels[index]], classes[predicted[index]]
    mistakes.append(Mistake(int(index), images[index], label, answer, shown))
  return Evaluation(
    subset=split,
    checkpoint=checkpoint,
    step=step,
    weights='ema' if run.options.use_ema else 'last',
    examples=len(labels),
    accuracy=stats.wilson(int(matrix.trace()), len(labels)),
    accuracy_top5=stats.wilson(in_top5, len(labels)) if len(classes) > _TOP else None,
    cross_entropy=stats.cross_entropy(labels, probabilities),
    confusion_matrix=matrix,
    classes=stats.by_class(matrix, classes),
    calibration=stats.calibration(probabilities.max(1), predicted == labels),
    mistakes=mistakes,
  )
