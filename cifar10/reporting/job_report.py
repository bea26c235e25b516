"""Collects what a report says of a job: its history, and an evaluation of one checkpoint."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data import manifest
from cifar10.data.manifest import DatasetInfo
from cifar10.job import checkpoints, job_config, metrics_log
from cifar10.job import run as job_run
from cifar10.job.metrics_log import Event
from cifar10.job.run import Run
from cifar10.options.hparams import all_values
from cifar10.options.run_options import RunOptions
from cifar10.reporting import stats
from cifar10.reporting.stats import Bin, ClassResult, Interval
from cifar10.training import evaluator, optimizers
from cifar10.training.estimator import Predictor, with_checkpoint

_NUM_MISTAKES, _LIKELIEST = 40, 3
_TOP = 5


class History(NamedTuple):
  """What happened in a job: the events of its metrics.jsonl in order."""

  events: list[Event]

  def of(self, kind: str) -> list[Event]:
    return [event for event in self.events if event['event'] == kind]

  @property
  def start(self) -> Event:
    """The last one, which recorded 'data_dir', 'options', ...; {} if none is known."""
    return (self.of('start') or [{}])[-1]

  @property
  def restarts(self) -> list[int]:
    """The steps at which training resumed."""
    return [event['step'] for event in self.of('start') if event.get('resumed')]

  @property
  def last_step(self) -> int:
    """The last step made; commands and earlier starts may be of steps that were lost."""
    made = [event for event in self.events if event['event'] not in ('control', 'start')]
    return max(event['step'] for event in [*made, {'step': 0, **self.start}])

  @property
  def seconds(self) -> float | None:
    """The training time of all runs together; None if it was not recorded."""
    return max((event['seconds'] for event in self.events if event.get('seconds')), default=None)

  def splits(self) -> list[str]:
    """Returns the evaluated splits in the order of their first evaluations."""
    return list(dict.fromkeys(event['subset'] for event in self.of('evaluate')))

  def curve(self, name: str, split: str | None = None) -> list[tuple[int, float]]:
    """Returns (step, number) of the evaluations of a split; without one, of the training."""
    events = self.of('evaluate' if split else 'train')
    of_split = [event for event in events if event.get('subset') == split]
    points = {event['step']: event[name] for event in of_split if event.get(name) is not None}
    return sorted(points.items())

  def moments(self) -> Iterator[tuple[str, int, str, str]]:
    """Yields starts, restarts, commands and ends: time (UTC), step, what it was, and details."""
    is_running = False
    for event in self.events:
      kind, detail = event['event'], ''
      if kind == 'start':
        what = 'went on' if event.get('resumed') else 'started'
        if event.get('resumed'):
          detail = f'{event["steps_lost"]:,} steps were made again'
        if is_running:
          detail += '; the run before was killed, failed, or its machine went down'
      elif kind == 'end':
        what, detail = f'ended ({event["reason"]})', event.get('message', '')
      elif kind == 'control':
        what, detail = f'control: {event["command"]}', event['answer']
      else:
        continue
      is_running = kind != 'end'
      time = datetime.datetime.fromtimestamp(event['time'], datetime.timezone.utc)
      yield f'{time:%Y-%m-%d %H:%M:%S}', event['step'], what, detail


class Mistake(NamedTuple):
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
  calibration: Sequence[Bin]
  calibration_error: float
  mistakes: Sequence[Mistake]  # The worst first.

  @property
  def wrong(self) -> np.ndarray:
    """The confusion matrix without the right answers."""
    return self.confusion_matrix - np.diag(self.confusion_matrix.diagonal())

  def confusions(self, count: int) -> Iterator[tuple[str, str, int]]:
    """Yields the most frequent mistakes: class, what it was taken for, and how often."""
    names = list(self.classes)
    for place in np.argsort(-self.wrong, axis=None, kind='stable')[:count].tolist():
      label, predicted = divmod(place, len(names))
      yield names[label], names[predicted], self.wrong[label, predicted]


class JobReport(NamedTuple):
  """One job."""

  letter: str  # The job's name in a comparison: A, B, ...
  path: str
  name: str  # That of its folder.
  history: History
  data: DatasetInfo
  options: dict[str, Any]  # By name.
  evaluation: Evaluation
  best: Mapping[str, Any] | None  # The evaluation that chose the checkpoint in best/.
  notes: list[str]  # Doubts about the numbers, and what is missing.


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
  history = History(metrics_log.read(path))
  data_dir = data_dir or history.start.get('data_dir')
  if not data_dir or not files.is_dir(data_dir):
    raise InputError(
      f'the data dir of {path} is not there ({data_dir or "not known"}); give --data-dir DIR'
    )
  use_ema = any(event.get('weights') == 'ema' for event in history.of('evaluate')[-1:])
  if use_ema and checkpoint:  # It may be one that `checkpoint dump` wrote.
    use_ema = optimizers.has_averages(checkpoints.find(path, checkpoint))
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
  if not history.events:
    notes.append('There is no metrics.jsonl: curves, commands, versions, hardware are not known.')
  return JobReport(
    letter,
    path,
    files.absolute(path).rpartition('/')[2],
    history,
    run.data,
    {**history.start.get('options', {}), **all_values(hparams)},
    _evaluated(run, split),
    next(iter(checkpoints.read_best(path)), None),
    notes,
  )


def _evaluated(run: Run, split: str) -> Evaluation:
  """Evaluates the predictions of the run's checkpoint for all images of a split."""
  images, labels = evaluator.held_out(run, split).all_examples()
  network = Predictor(run)
  checkpoint, step = with_checkpoint(
    run, lambda path: (network.restore(path), checkpoints.global_step(path))
  )
  log.info('evaluating %s on %s', checkpoint, split)
  predicted, probabilities = network(images)
  network.close()
  classes, count = run.data.classes, len(labels)
  matrix = tf.math.confusion_matrix(labels, predicted, len(classes), dtype=tf.int64).numpy()
  in_top5 = int(tf.reduce_sum(tf.cast(tf.math.in_top_k(labels, probabilities, _TOP), tf.int32)))
  bins = stats.calibration(probabilities.max(1), predicted == labels)
  mistakes = []
  wrong = np.flatnonzero(labels != predicted)
  worst_first = np.argsort(probabilities[wrong, labels[wrong]], kind='stable')
  for index in wrong[worst_first][:_NUM_MISTAKES].tolist():
    likeliest = np.argsort(-probabilities[index], kind='stable')[:_LIKELIEST]
    shown = {classes[i]: float(probabilities[index, i]) for i in (*likeliest, labels[index])}
    label, answer = classes[labels[index]], classes[predicted[index]]
    mistakes.append(Mistake(index, images[index], label, answer, shown))
  return Evaluation(
    subset=split,
    checkpoint=checkpoint,
    step=step,
    weights='ema' if run.options.use_ema else 'last',
    examples=count,
    accuracy=stats.wilson(int(matrix.trace()), count),
    accuracy_top5=stats.wilson(in_top5, count) if len(classes) > _TOP else None,
    cross_entropy=stats.cross_entropy(labels, probabilities),
    confusion_matrix=matrix,
    classes=stats.by_class(matrix, classes),
    calibration=bins,
    calibration_error=stats.calibration_error(bins),
    mistakes=mistakes,
  )
