"""Collects what a report says of a job: its history, and an evaluation with its statistics."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data import manifest
from cifar10.job import checkpoints, job_config, metrics_log
from cifar10.job import run as job_run
from cifar10.options.hparams import all_values
from cifar10.options.run_options import RunOptions
from cifar10.training import estimator, evaluator, optimizers

_NUM_MISTAKES, _LIKELIEST, _TOP = 40, 3, 5
_BINS = 15  # Guo et al. 2017, "On Calibration of Modern Neural Networks", section 5.
_Z = 1.959963984540054  # 95 % of a normal distribution lie within this many standard deviations.
Bin = tuple[int, float, float]  # A number of answers, their mean confidence, their accuracy.


class History(NamedTuple):
  """What happened in a job: the events of its metrics.jsonl in order."""

  events: list[metrics_log.Event]

  def of(self, kind: str) -> list[metrics_log.Event]:
    return [event for event in self.events if event['event'] == kind]

  @property
  def start(self) -> metrics_log.Event:
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

  def curve(self, name: str, split: str | None = None) -> list[tuple[int, float]]:
    """Returns (step, number) of the evaluations of a split; without one, of the training."""
    events = self.of('evaluate' if split else 'train')
    of_split = [event for event in events if event.get('subset') == split]
    points = {event['step']: event[name] for event in of_split if event.get(name) is not None}
    return sorted(points.items())

  def moments(self) -> Iterator[tuple[str, int, str, str]]:
    """Yields starts, restarts, commands and ends: time (UTC), step, what it was, and details."""
    for event in self.events:
      if event['event'] == 'start' and event.get('resumed'):
        what, detail = 'went on', f'{event["steps_lost"]:,} steps were made again'
      elif event['event'] == 'start':
        what, detail = 'started', ''
      elif event['event'] == 'end':
        what, detail = f'ended ({event["reason"]})', event.get('message', '')
      elif event['event'] == 'control':
        what, detail = f'control: {event["command"]}', event['answer']
      else:
        continue
      at = time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(event['time']))
      yield at, event['step'], what, detail


class Mistake(NamedTuple):
  place: int  # Index in the split's file, from 0.
  image: np.ndarray  # uint8 [32, 32, 3]
  label: str
  predicted: str
  probabilities: dict[str, float]  # Of the likeliest classes, and of the true one.


@dataclass(frozen=True)
class Interval:
  """A number and its 95 % confidence interval."""

  value: float
  low: float
  high: float


@dataclass(frozen=True)
class ClassResult:
  examples: int
  accuracy: Interval | None  # Of its examples; None: it has none.
  precision: Interval | None  # Of the examples predicted as this class; None: there are none.


@dataclass(frozen=True)
class Evaluation:
  subset: str
  checkpoint: str
  step: int
  weights: str  # 'last', or 'ema': their moving average.
  examples: int
  accuracy: Interval
  accuracy_top5: Interval | None  # None: of five classes or fewer.
  cross_entropy: Interval
  confusion_matrix: list[list[int]]  # [true class][predicted class]
  classes: dict[str, ClassResult]
  calibration: list[Bin]
  calibration_error: float  # The mean distance from confidence to accuracy, weighted by answers.


class JobReport(NamedTuple):
  letter: str  # The job's name in a comparison: A, B, ...
  path: str
  name: str  # That of its folder.
  history: History
  data: manifest.DatasetInfo
  options: dict[str, Any]  # By name.
  best: Mapping[str, Any] | None  # The evaluation that chose the checkpoint in best/.
  notes: list[str]  # Doubts about the numbers, and what is missing.
  evaluation: Evaluation
  mistakes: Sequence[Mistake]  # The worst first.


def collect(
  letter: str, path: str, split: str, checkpoint: str | None = None, data_dir: str | None = None
) -> JobReport:
  """Reads a job and evaluates a checkpoint: the latest, if none is named, with the job's own data.

  Raises InputError if there is no job, or its checkpoint or data are missing or damaged.
  """
  config = job_config.read_config(path) or {}
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
  notes = []
  if split in hparams.train_on.split('+') and not hparams.source:
    notes.append(f'The numbers are of images that the network was trained with: {split}.')
  if split != 'validation' or not hparams.validation_source:  # Its images are of no records.
    trained, here = config.get('data') or {}, manifest.digests(data_dir) or {}
    if trained and here and trained.get(split) != here.get(split):
      notes.append(f"The evaluated images in {data_dir} are not the job's own: SHA-256 differs.")
  if not history.events:
    notes.append('There is no metrics.jsonl: curves, commands, versions, hardware are not known.')
  run = job_run.begin(hparams, options)
  found, mistakes = _evaluated(run, split)
  if split not in hparams.train_on.split('+'):
    given = history.events, found.step, found.accuracy.value, run.data.num_classes
    notes += filter(None, [evaluator.low_accuracy(*given)])
  name = files.absolute(path).rpartition('/')[2]
  best = next(iter(checkpoints.read_best(path)), None)
  # The schedule, too, which an evaluation has not; a command that made no step does not count.
  used = {each: config.get(each, value) for each, value in all_values(hparams).items()}
  used |= history.start.get('options', {})
  return JobReport(letter, path, name, history, run.data, used, best, notes, found, mistakes)


def _evaluated(run: job_run.Run, split: str) -> tuple[Evaluation, list[Mistake]]:
  """Evaluates the predictions of the run's checkpoint for all images of a split."""
  images, labels = evaluator.held_out(run, split).all_examples()
  with estimator.load(run) as network:
    log.info('evaluating %s on %s', network.checkpoint, split)
    predicted, probabilities = network(images)
    step = int(network.session.run(network.global_step))
  classes, count = run.data.classes, len(labels)
  matrix = tf.math.confusion_matrix(labels, predicted, len(classes), dtype=tf.int64).numpy()
  in_top5 = int(tf.reduce_sum(tf.cast(tf.math.in_top_k(labels, probabilities, _TOP), tf.int32)))
  bins, error = calibration(probabilities.max(1), predicted == labels)
  found = Evaluation(
    subset=split,
    checkpoint=network.checkpoint,
    step=step,
    weights='ema' if run.options.use_ema else 'last',
    examples=count,
    accuracy=wilson(int(matrix.trace()), count),
    accuracy_top5=wilson(in_top5, count) if len(classes) > _TOP else None,
    cross_entropy=cross_entropy(labels, probabilities),
    confusion_matrix=matrix.tolist(),
    classes=by_class(matrix, classes),
    calibration=bins,
    calibration_error=error,
  )
  mistakes, wrong = [], np.flatnonzero(labels != predicted)
  worst_first = wrong[np.argsort(probabilities[wrong, labels[wrong]], kind='stable')]
  for index in worst_first[:_NUM_MISTAKES].tolist():
    likeliest = np.argsort(-probabilities[index], kind='stable')[:_LIKELIEST]
    shown = {classes[i]: float(probabilities[index, i]) for i in (*likeliest, labels[index])}
    label, answer = classes[labels[index]], classes[predicted[index]]
    mistakes.append(Mistake(index, images[index], label, answer, shown))
  return found, mistakes


def wilson(successes: int, trials: int) -> Interval:
  """Returns a rate with Wilson's score interval (Wilson 1927), within 0 and 1; trials > 0."""
  rate, z2 = successes / trials, _Z**2
  middle = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
  spread = rate * (1 - rate) / trials + z2 / (4 * trials**2)
  half = _Z * math.sqrt(spread) / (1 + z2 / trials)
  # At 0 and 1 a bound is the rate itself; rounding must not move it beyond.
  return Interval(rate, min(max(middle - half, 0.0), rate), max(min(middle + half, 1.0), rate))


def cross_entropy(labels: np.ndarray, probabilities: np.ndarray) -> Interval:
  """Returns the mean cross-entropy in nats with its normal interval."""
  of_label = probabilities[np.arange(len(labels)), labels].astype(np.float64)
  each = -np.log(np.maximum(of_label, np.finfo(np.float32).smallest_subnormal))  # Of 0, too.
  deviation = np.std(each, ddof=1) if len(each) > 1 else 0
  mean, half = float(np.mean(each)), float(_Z * deviation / math.sqrt(len(each)))
  return Interval(mean, mean - half, mean + half)


def by_class(matrix: np.ndarray, classes: Sequence[str]) -> dict[str, ClassResult]:
  """Returns the results of every class from a confusion matrix."""
  results = {}
  for name, *counts in zip(classes, matrix.diagonal(), matrix.sum(1), matrix.sum(0)):
    right, *totals = map(int, counts)  # Examples of the class, and answers with it.
    results[name] = ClassResult(totals[0], *(wilson(right, n) if n else None for n in totals))
  return results


def calibration(confidences: np.ndarray, is_right: np.ndarray) -> tuple[list[Bin], float]:
  """Sorts answers by confidence, float [n], into bins of equal width; `is_right`: bool [n].

  Returns the bins that have answers, and the mean distance from confidence to accuracy, weighted by
  answers: of those with 80 % confidence 80 % should be right.
  """
  upper = np.clip(np.ceil(np.nan_to_num(confidences) * _BINS), 1, _BINS)
  found = [(confidences[upper == bound], is_right[upper == bound]) for bound in np.unique(upper)]
  bins = [(len(right), float(given.mean()), float(right.mean())) for given, right in found]
  distances = sum(count * abs(accuracy - confidence) for count, confidence, accuracy in bins)
  return bins, distances / len(confidences)
