"""Exports the network of a checkpoint as a file or folder that other programs read."""

import dataclasses
import logging
import os
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.data.image_files import as_seen, decode
from cifar10.exporters import freeze_graph, keras_file
from cifar10.exporters.freeze_graph import Frozen
from cifar10.job import checkpoints, metrics_log
from cifar10.job.run import Run
from cifar10.options.hparams import HParams
from cifar10.training.estimator import with_checkpoint
from cifar10.training.inference import CLASSES, ENCODED, FEATURES, IMAGES, PROBABILITIES

_OPSET = 17  # Of 2022; runtimes of the last years support it.
_INSTALLED_BY = (  # In any folder.
  "pip install 'tf2onnx>=1.16,<2' 'onnx<1.18; python_version < \"3.12\"' 'onnxruntime>=1.17,<2'"
)


def export(run: Run) -> dict[str, Any]:
  """Writes a SavedModel or a file to JOB/export/; returns its path and what it was made from.

  Raises InputError where a library is missing, or the format cannot hold the network.
  """
  return with_checkpoint(run, lambda checkpoint: _export(run, checkpoint))


def _export(run: Run, checkpoint: str) -> dict[str, Any]:
  options, hparams = run.options, run.hparams
  if options.format != 'saved_model':  # Variables are float32 always; so are ONNX's convolutions.
    hparams = dataclasses.replace(hparams, dtype='float32')
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
  local = None if files.is_url(options.job_dir) else options.job_dir
  with tempfile.TemporaryDirectory(prefix='temp-', dir=local) as folder:
    written = os.path.join(folder, 'written')
    _WRITERS[options.format](written, network, made_from)
    suffix = '' if options.format == 'saved_model' else f'.{options.format}'
    path = _moved(written, os.path.join(options.job_dir, 'export'), suffix)
  log.info('exported %s to %s', checkpoint, path)
  return {options.format: path, **made_from}


def _moved(written: str, exports: str, suffix: str) -> str:
  """Moves a complete export to a name of the time in seconds: servers take the highest one."""
  files.make_folder(exports)
  names = [os.path.basename(path).partition('.')[0] for path in files.matching(exports, '[0-9]*')]
  before = [int(name) + 1 for name in names if name.isdecimal()]  # A clock may have been ahead.
  path = os.path.join(exports, f'{max([int(time.time()), *before])}{suffix}')
  paths = [os.path.join(folder, name) for folder, _, names in os.walk(written) for name in names]
  if not files.is_url(path):
    for each in paths or [written]:
      files.flush(each)
    os.rename(written, path)
    return path
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
  folder, named = files.absolute(os.path.dirname(checkpoint)), checkpoints.step_of(checkpoint)
  is_own = folder in map(files.absolute, (job_dir, os.path.join(job_dir, checkpoints.BEST)))
  if not is_own or named is None or named > step:  # Workers make steps between naming and save.
    return {}  # `checkpoint average` may have written it.
  found: dict[str, float] = {}
  views = {'tta': hparams.tta, 'tta_below': hparams.tta_below}
  for event in filter(metrics_log.is_evaluation, metrics_log.read(job_dir)):
    is_of_weights = (event['step'], event.get('weights', 'last')) == (step, weights)
    if is_of_weights and (hparams.tta == 'none' or views.items() <= event.items()):
      plain = event.get('accuracy_without_tta') if hparams.tta == 'none' else None
      found[event['subset']] = event['accuracy'] if plain is None else plain
  return found


def write_onnx(path: str, network: Frozen, made_from: Mapping[str, Any]) -> None:
  """Writes a file in float32, `images` uint8 [n, 32, 32, 3] -> classes, probabilities, features."""
  try:
    import onnx  # noqa: PLC0415 - an extra
    from tf2onnx import convert  # noqa: PLC0415
  except ImportError as error:
    raise InputError(
      f'--format onnx needs tf2onnx, which cannot be imported ({error}); run: {_INSTALLED_BY}'
    ) from None
  logging.getLogger('tf2onnx').setLevel(logging.ERROR)
  # 'images:0' is TensorFlow's name of a tensor, not an ONNX one.
  names = {f'{name}:0': name for name in (IMAGES, CLASSES, PROBABILITIES, FEATURES)}
  images, *outputs = names
  try:
    model, _ = convert.from_graph_def(
      network.graph,
      input_names=[images],
      output_names=outputs,
      opset=_OPSET,
      tensors_to_rename=names,
    )
    onnx.helper.set_model_props(model, {'made_from': files.json_text(made_from)})
    onnx.checker.check_model(model)
  except Exception as error:  # An operation that tf2onnx does not know, in a user's own network.
    said = str(error).partition('\n')[0]
    raise InputError(
      f'--format onnx cannot hold this network ({type(error).__name__}: {said}); use --format '
      'saved_model'
    ) from None
  onnx.save(model, path)


def write_saved_model(path: str, network: Frozen, made_from: Mapping[str, Any]) -> None:
  """Writes the folder `path`, which does not exist yet, with the signatures of docs/exports.md."""
  with context.eager_mode():  # Which a user's network or notebook may have switched off.
    module = tf.Module()
    imported = tf.compat.v1.wrap_function(
      lambda: tf.graph_util.import_graph_def(network.graph, name=''), []
    )
    outputs = [f'{name}:0' for name in (CLASSES, PROBABILITIES, FEATURES)]
    module.network = imported.prune(f'{IMAGES}:0', outputs)
    images = tf.TensorSpec([None, 32, 32, 3], tf.uint8, IMAGES)

    @tf.function(input_signature=[images], autograph=False)
    def serve(images: tf.Tensor) -> dict[str, tf.Tensor]:
      classes, probabilities, _ = module.network(images)
      return {CLASSES: classes, PROBABILITIES: probabilities}

    @tf.function(input_signature=[images], autograph=False)
    def features(images: tf.Tensor) -> dict[str, tf.Tensor]:
      return {FEATURES: module.network(images)[2]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, ENCODED)], autograph=False)
    def serve_encoded(encoded: tf.Tensor) -> dict[str, tf.Tensor]:
      read = tf.map_fn(lambda each: as_seen(decode(each)), encoded, fn_output_signature=tf.uint8)
      return serve(read)

    signatures = {'serving_default': serve, 'features': features, 'encoded': serve_encoded}
    tf.saved_model.save(module, path, signatures)
  extra = os.path.join(path, 'assets.extra')  # TensorFlow's name of it.
  os.makedirs(extra)
  files.write_text(f'{extra}/made_from.json', files.json_text(made_from, indent=2) + '\n')


_WRITERS = {'saved_model': write_saved_model, 'onnx': write_onnx, 'keras': keras_file.write}
