"""What a new job begins with: the variables of others (warm start), and those that stay frozen."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from cifar10.core.errors import InputError
from cifar10.core.logs import log, one_line
from cifar10.job import checkpoints, variable_files
from cifar10.job.run import Run
from cifar10.training import network_builder
from model_base import Initializer

_FLAG = '--warm-start-from'


def initializers(run: Run) -> dict[str, Initializer]:
  """Returns a new job's initializers by variable's name, for --freeze and --warm-start-from.

  Checks both before any write. Later sources win. The other tasks get the chief's values; the
  global step and what the optimizer keeps start as in any new job.

  Raises InputError where a source cannot be read, or none of its variables fits; or --freeze
  matches no variable, or leaves none to train.
  """
  options = run.options
  if not (run.hparams.freeze or options.warm_start_from):
    return {}
  shapes, trained = network_builder.variable_shapes(run.hparams, run.data)
  if pattern := run.hparams.freeze:
    if not (trained and any(re.search(pattern, name) for name in shapes)):
      raise InputError(
        f'--freeze {pattern!r} leaves {len(trained)} variables to train of {len(shapes)}, as '
        f'{next(iter(shapes))}; it must match some of them: change it or leave it out'
      )
    log.info('%s of %s variables are trained', len(trained), len(shapes))
  if not (options.warm_start_from and run.is_chief):
    return {}
  if checkpoints.survey(options.job_dir).newest:
    log.info('%s is ignored: the job goes on from its own checkpoint', _FLAG)
    return {}
  device = f'{run.cluster.job}/device:CPU:0'  # No other task needs to see the sources.
  made: dict[str, Initializer] = {}
  for path in options.warm_start_from:
    source = variable_files.open_source(path, _FLAG)
    made |= {name: _initializer(source.value(name), device) for name in _taken(source, shapes)}
  return made


def _taken(source: variable_files.VariableFile, shapes: Mapping[str, list[int]]) -> list[str]:
  """Returns the names of variables that fit; logs those that do not, on both sides."""
  theirs = source.shapes
  # A counter of a user's network begins anew. 'V' is bfloat16.
  common = [name for name in shapes if name in theirs and source.arrays[name].dtype.kind in 'fV']
  taken = [name for name in common if theirs[name] == shapes[name]]
  if not taken:
    raise InputError(
      f'{_FLAG} {source.path}: none of its {len(theirs)} variables is by name and shape one of '
      f"this network's {len(shapes)}; name one of the same --network"
    )
  other = [name for name in common if theirs[name] != shapes[name]]
  left = {
    'of another shape': [f'{name} {theirs[name]}, here {shapes[name]}' for name in other],
    'not there': [name for name in shapes if name not in theirs],
    'only there': [name for name in theirs if name not in shapes],
  }
  log.info('warm start from %s: %s of %s variables', source.path, len(taken), len(shapes))
  for what, names in left.items():
    if names:
      log.info('%s %s: %s', len(names), what, one_line('; '.join(names)))
  return taken


def _initializer(value: np.ndarray, device: str) -> Initializer:
  """Returns an initializer that reads the value when it is run."""

  def initialize(shape: Sequence[int], *_: object, **__: object) -> tf.Tensor:
    with tf.compat.v1.device(device):
      [tensor] = tf.compat.v1.py_func(lambda: value, [], [tf.float32], stateful=True)
    return tf.ensure_shape(tensor, shape)

  return initialize
