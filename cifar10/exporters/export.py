"""Exports the network of a checkpoint as a file or folder that other programs read."""

import dataclasses
import os
import re
import tempfile
import time
from typing import Any

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data import input_pipeline
from cifar10.exporters import freeze_graph, keras_file, onnx_file, saved_model
from cifar10.job import checkpoints, metrics_log
from cifar10.options.hparams import HParams
from cifar10.training.process import Process

_FOLDER = 'export'

_FORMATS: dict[str, freeze_graph.Format] = {
  'saved_model': saved_model.FORMAT,
  'onnx': onnx_file.FORMAT,
  'keras': keras_file.FORMAT,
}


def export(process: Process) -> dict[str, Any]:
  """Exports the process's checkpoint, as `_export` describes."""
  return process.with_checkpoint(lambda checkpoint: _export(process, checkpoint))


def _export(process: Process, checkpoint: str) -> dict[str, Any]:
  """Writes a SavedModel or a file to JOB/export/; returns its path and what it was made from.

  Raises:
    InputError: the library for the format is missing, or the format cannot hold the network;
      nothing is written.
  """
  options = process.options
  form: freeze_graph.Format = _FORMATS[options.format]
  form.check()
  input_pipeline.check_memory(options.export_batch or 1, '--export-batch')
  hparams = dataclasses.replace(process.hparams, dtype=form.dtype or process.hparams.dtype)
  if hparams.tta != 'none' and not form.has_views:
    raise InputError(f'--format {options.format} has no --tta {hparams.tta}; add --tta none')
  if options.export_batch:  # A fixed batch fixes all shapes; --tta-below needs any number.
    hparams = dataclasses.replace(hparams, tta_below=1.0)
  network = freeze_graph.freeze(
    hparams, process.data, checkpoint, use_ema=options.use_ema, batch=options.export_batch
  )
  made_from = _made_from(process, hparams, checkpoint, network.digest)
  exports = os.path.join(options.job_dir, _FOLDER)
  files.make_folder(exports)
  local = None if files.is_url(exports) else exports
  with tempfile.TemporaryDirectory(prefix='temp-', dir=local) as folder:
    written = os.path.join(folder, 'written')
    form.write(written, network, made_from)
    path = _moved(written, exports, form.suffix)
  log.info('exported %s to %s', checkpoint, path)
  return {options.format: path, **made_from}


def _moved(written: str, exports: str, suffix: str) -> str:
  """Renames a complete export to the time in seconds: servers take the highest number."""
  names = map(os.path.basename, files.matching(exports, '[0-9]*'))
  before = [int(found[0]) for found in map(re.compile('[0-9]{1,18}').match, names) if found]
  number = max([int(time.time()), *(each + 1 for each in before)])  # A clock may have been ahead.
  while files.exists(path := os.path.join(exports, f'{number}{suffix}')):
    number += 1
  _move_in(written, path)
  return path


def _move_in(local: str, path: str) -> None:
  """Moves a file or folder from a temporary folder to its final path, which must not exist."""
  if not files.is_url(path):
    os.rename(local, path)
    return
  if os.path.isfile(local):
    files.copy(local, path)
    return
  paths = [os.path.join(folder, name) for folder, _, names in os.walk(local) for name in names]
  # Behind a URL a folder arrives file by file: what makes it a SavedModel comes last.
  for each in sorted(paths, key=lambda each: (each.endswith(freeze_graph.SAVED_MODEL), each)):
    target = os.path.join(path, os.path.relpath(each, local))
    files.make_folder(os.path.dirname(target))
    files.copy(each, target)


def _made_from(process: Process, hparams: HParams, checkpoint: str, digest: str) -> dict[str, Any]:
  step = checkpoints.global_step(checkpoint)
  weights = 'ema' if process.options.use_ema else 'last'
  return {
    'checkpoint': checkpoint,
    'global_step': step,
    'network': hparams.family.describe(),
    'weights': weights,
    'data_set': process.data.name,
    'classes': list(process.data.classes),
    'accuracy': _accuracies(process.options.job_dir, hparams, checkpoint, step, weights),
    'dtype': hparams.dtype,
    'tta': hparams.tta,
    **({'tta_below': hparams.tta_below} if hparams.tta != 'none' else {}),
    'sha256_of_variables': digest,
  }


def _accuracies(
  job_dir: str, hparams: HParams, checkpoint: str, step: int, weights: str
) -> dict[str, float]:
  """Returns the training's own accuracies by split; only those of these weights and views."""
  found: dict[str, float] = {}
  if not checkpoints.is_saved(checkpoint, job_dir, step):
    return found
  views = {'tta': hparams.tta, 'tta_below': hparams.tta_below}
  options: dict[str, Any] = {}  # Of the run that evaluated, whose views older events do not have.
  for event in metrics_log.read(job_dir):
    if event['event'] == 'start':
      started_with = event.get('options')
      options = started_with if isinstance(started_with, dict) else {}
    elif metrics_log.is_evaluation(event):
      if (event['step'], event.get('weights', 'last')) != (step, weights):
        continue
      plain = event.get('accuracy_without_tta')  # None: `accuracy` is that.
      measured = {'tta_below': 1.0, **options, **event}
      if hparams.tta == 'none':
        found[event['subset']] = event['accuracy'] if plain is None else plain
      elif plain is not None and views.items() <= measured.items():
        found[event['subset']] = event['accuracy']
  return found
