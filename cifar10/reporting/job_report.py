"""A job dir -> all that a report says of the job."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from cifar10.core import files
from cifar10.core.errors import DamagedError, InputError
from cifar10.core.option import declarations
from cifar10.data import manifest
from cifar10.data.info import DatasetInfo
from cifar10.data.input_pipeline import RecordDataset
from cifar10.job import best_checkpoints, job_config
from cifar10.options.hparams import HParams, all_values, from_values
from cifar10.options.run_options import RunOptions
from cifar10.reporting import formats, history, split_predictions
from cifar10.reporting.history import History
from cifar10.reporting.split_predictions import Evaluated
from cifar10.training.process import Process

DEFAULT_SPLIT = 'eval'


class Wanted(NamedTuple):
  """Which evaluation a report is of; what is None is taken from the job."""

  split: str | None = None
  checkpoint: str | None = None
  data_dir: str | None = None


class JobReport(NamedTuple):
  """One job."""

  letter: str  # What it is called beside others.
  path: str
  history: History
  data: DatasetInfo
  options: dict[str, Any]  # By name, as far as they are known.
  evaluated: Evaluated | None
  best: dict[str, Any] | None  # The evaluation that chose the checkpoint in best/.
  notes: list[str]  # What is missing, and why.

  @property
  def name(self) -> str:
    """The folder's."""
    return formats.text(os.path.basename(files.absolute(self.path)))


def collect(letter: str, path: str, wanted: Wanted) -> JobReport:
  """Reads a job and evaluates its checkpoint.

  Where the data dir or the checkpoint that the job itself names is gone, the job's own evaluation
  takes that one's place, and a note says what is missing.

  Raises:
    InputError: this is no job dir; what was named by a flag is not there; or a file is damaged.
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
  hparams = job_config.adopt_config({}, config, path, training=False) if config else None
  found, notes = _evaluated(path, events, data, hparams, wanted)
  if events.is_from_event_files:
    notes.append(
      'There is no metrics.jsonl: the curves come from the files for TensorBoard; commands, '
      'versions, hardware and restarts are not known.'
    )
  options = {**events.started_with('options'), **(all_values(hparams) if hparams else {})}
  best = next(iter(best_checkpoints.read(path)), None)
  return JobReport(letter, path, events, data, options, found, best, notes)


def defaults(options: Mapping[str, Any]) -> dict[str, Any]:
  """What these options are where nobody sets them, for this network."""
  run = {
    declared.name: None if declared.default is dataclasses.MISSING else declared.default
    for declared in declarations(RunOptions)
  }
  network = options.get('network')
  try:
    return {**run, **all_values(from_values({'network': network} if network else {}))}
  except InputError:  # A family that this program does not have.
    return run


def _evaluated(
  path: str, events: History, data: DatasetInfo, hparams: HParams | None, wanted: Wanted
) -> tuple[Evaluated | None, list[str]]:
  """The evaluation, by the network or as it was written, and what is missing of it."""
  split = wanted.split or DEFAULT_SPLIT
  try:
    return _predicted(path, events, data, hparams, wanted)
  except DamagedError:  # What is there and wrong is not for a note.
    raise
  except InputError as error:
    if wanted.data_dir or wanted.checkpoint:
      raise
    recorded = events.last_evaluation(split)
    if recorded is None and wanted.split is None:
      evaluations = events.of('evaluate')
      recorded = evaluations[-1] if evaluations else None
    missing = 'Worst mistakes and calibration' if recorded else 'An evaluation'
    found = split_predictions.from_event(recorded, data.classes) if recorded else None
    return found, [f'{missing} could not be made: {formats.text(error)}.']


def _predicted(
  path: str, events: History, data: DatasetInfo, hparams: HParams | None, wanted: Wanted
) -> tuple[Evaluated, list[str]]:
  """The network's answers, and doubts about them.

  Raises:
    InputError: the network, its checkpoint or the data are missing.
  """
  if hparams is None:
    raise InputError(f'{path} has no {job_config.CONFIG_NAME}, which says what network it is')
  data_dir = wanted.data_dir or events.start.get('data_dir')
  if not data_dir:
    raise InputError('the job does not say where its data are; give --data-dir DIR')
  if not files.is_dir(data_dir):
    raise InputError(f'its data dir {data_dir} is not there; give --data-dir DIR')
  split = wanted.split or DEFAULT_SPLIT
  use_ema = events.started_with('options').get('use_ema') is True  # As its last run evaluates.
  weights = split_predictions.AVERAGED_WEIGHTS if use_ema else split_predictions.LAST_WEIGHTS
  options = RunOptions(
    job_dir=path,
    data_dir=data_dir,
    subset=split,
    checkpoint=wanted.checkpoint,
    use_ema=use_ema,
  )
  predictions = Process(hparams, options).predictions()
  images, labels = RecordDataset(data_dir, split).all_examples()
  recorded = [
    event
    for event in events.of('evaluate')
    if event['step'] == predictions.global_step
    and event.get('subset') == split
    and event.get('weights', split_predictions.LAST_WEIGHTS) == weights
  ]
  found = split_predictions.from_predictions(
    split,
    predictions,
    images=images,
    labels=labels,
    classes=data.classes,
    weights=weights,
    recorded=recorded[-1] if recorded else None,
  )
  return found, _doubts(path, hparams, data_dir, split)


def _doubts(path: str, hparams: HParams, data_dir: str, split: str) -> list[str]:
  """What an accuracy on these images does not mean."""
  found = []
  if split in hparams.train_on.split('+'):
    found.append(
      f'The numbers are of images that the network was trained with: {formats.split(split)}.'
    )
  trained = (job_config.read_config(path) or {}).get('data') or {}
  here = manifest.digests(data_dir) or {}
  if trained.get(split) != here.get(split) and trained and here:
    found.append(
      f"The evaluated images in {formats.text(data_dir)} are not the job's own: SHA-256 differs."
    )
  return found
