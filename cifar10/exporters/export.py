"""Exports the network of a checkpoint as a file or folder that other programs read."""

import dataclasses
import functools
import os
import re
import tempfile
import time
from typing import Any

from cifar10.core import files
from cifar10.core.logs import log
from cifar10.exporters import freeze_graph, keras_file, onnx_file, saved_model
from cifar10.job import checkpoints, metrics_log
from cifar10.job.run import Run
from cifar10.options.hparams import HParams
from cifar10.training.estimator import with_checkpoint

FORMATS = {  # By --format.
  'saved_model': saved_model.FORMAT,
  'onnx': onnx_file.FORMAT,
  'keras': keras_file.FORMAT,
}


def export(run: Run) -> dict[str, Any]:
  """Writes a SavedModel or a file to JOB/export/; returns its path and what it was made from.

  Raises:
    InputError: the library for the format is missing, or the format cannot hold the network;
      nothing is written.
  """
  return with_checkpoint(run, functools.partial(_export, run))


def _export(run: Run, checkpoint: str) -> dict[str, Any]:
  options = run.options
  form = FORMATS[options.format]
  hparams = dataclasses.replace(run.hparams, dtype=form.dtype or run.hparams.dtype)
  form.check(hparams)
  network = freeze_graph.freeze(hparams, run.data, checkpoint, use_ema=options.use_ema)
  step = checkpoints.global_step(checkpoint)
  weights = 'ema' if options.use_ema else 'last'
  made_from = {
    'checkpoint': checkpoint,
    'global_step': step,
    'network': hparams.family.describe(),
    'weights': weights,
    'data_set': run.data.name,
    'classes': list(run.data.classes),
    'accuracy': _accuracies(options.job_dir, hparams, checkpoint, step, weights),
    'dtype': hparams.dtype,
    'tta': hparams.tta,
    **({'tta_below': hparams.tta_below} if hparams.tta != 'none' else {}),
    'sha256_of_variables': network.digest,
  }
  exports = os.path.join(options.job_dir, 'export')
  files.make_folder(exports)
  local = None if files.is_url(exports) else exports
  with tempfile.TemporaryDirectory(prefix='temp-', dir=local) as folder:
    written = os.path.join(folder, 'written')
    form.write(written, network, made_from)
    path = _moved(written, exports, form.suffix)
  log.info('exported %s to %s', checkpoint, path)
  return {options.format: path, **made_from}


def _moved(written: str, exports: str, suffix: str) -> str:
  """Moves a complete export to the time in seconds: servers take the highest number."""
  names = map(os.path.basename, files.matching(exports, '[0-9]*'))
  before = [int(found[0]) for found in map(re.compile('[0-9]{1,18}').match, names) if found]
  number = max([int(time.time()), *(each + 1 for each in before)])  # A clock may have been ahead.
  path = os.path.join(exports, f'{number}{suffix}')
  if not files.is_url(path):
    os.rename(written, path)
    return path
  paths = [os.path.join(folder, name) for folder, _, names in os.walk(written) for name in names]
  # Behind a URL a folder arrives file by file: what makes it a SavedModel comes last.
  for each in sorted(paths, key=lambda each: each.endswith('saved_model.pb')) or [written]:
    target = path + each.removeprefix(written)
    files.make_folder(os.path.dirname(target))
    files.copy(each, target)
  return path


def _accuracies(
  job_dir: str, hparams: HParams, checkpoint: str, step: int, weights: str
) -> dict[str, float]:
  """Returns the training's own accuracies by split; only those of these weights and views."""
  found: dict[str, float] = {}
  if not checkpoints.is_saved(checkpoint, job_dir, step):
    return found
  views = {'tta': hparams.tta, 'tta_below': hparams.tta_below}
  for event in filter(metrics_log.is_evaluation, metrics_log.read(job_dir)):
    if (event['step'], event.get('weights', 'last')) == (step, weights):
      plain = event.get('accuracy_without_tta')  # None: `accuracy` is that.
      if hparams.tta == 'none':
        found[event['subset']] = event['accuracy'] if plain is None else plain
      elif views.items() <= event.items():
        found[event['subset']] = event['accuracy']
  return found
