"""Initialises a new job with the variables of others (warm start), for --warm-start-from.

`--warm-start-from` names job dirs, checkpoints, .npz files and .keras files. Their variables are
taken by name and shape; what the optimizer keeps for each variable starts as in any new job, and
so does the global step.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from cifar10.core.errors import InputError
from cifar10.core.logs import log, one_line
from cifar10.job import checkpoints, variable_files
from cifar10.job.run import Run
from cifar10.job.variable_files import VariableFile
from cifar10.networks import fastnet
from cifar10.training import network_builder
from model_base import Initializer

_FLAG = '--warm-start-from'
# What Keras calls the weights of a layer, and what they are called here.
_LEAVES = {'gamma': 'scale', 'beta': 'offset'}
_LEAVES |= {name: name for name in ('kernel', 'bias', 'moving_mean', 'moving_variance')}


def initializers(run: Run) -> dict[str, Initializer]:
  """Returns a new job's initializers by variable's name, for --freeze and --warm-start-from.

  Checks both before any write. Later sources win. The other tasks get the chief's values.

  Raises:
    InputError: a source cannot be read, or none of its variables fits; or --freeze fits none.
  """
  options, role = run.options, run.role
  shapes, trained = network_builder.variable_shapes(run.hparams, run.data)
  check_frozen(run.hparams.freeze, shapes, trained)
  if not (options.warm_start_from and role.saves):
    return {}
  if not checkpoints.survey(options.job_dir).is_new:
    log.info('--warm-start-from is ignored: the job goes on from its own checkpoint')
    return {}
  device = f'{role.cluster.job}/device:CPU:0'  # No other task needs to see the sources.
  made: dict[str, Initializer] = {}
  for path in options.warm_start_from:
    if path.endswith('.keras'):
      source = _open_keras(path, shapes, lambda values: fastnet.unfolded(values, run.data))
    else:
      source = variable_files.open_source(path, _FLAG)
    made |= {name: _initializer(source.value(name), device) for name in _taken(source, shapes)}
  return made


def _open_keras(
  path: str, names: Iterable[str], unfold: Callable[..., Mapping[str, np.ndarray]]
) -> VariableFile:
  """The weights of a .keras file that --format keras wrote, and that Keras may have trained since.

  Its layers are called as the scopes of the variables, with _ for /. A batch norm whose scale is a
  constant a is saved as a (x + offset / a), the product as a layer of its own: keras_file.py.
  `names` are the network's variables. Raises InputError if Keras cannot read the file.
  """
  try:
    model = tf.keras.models.load_model(path, compile=False)
  except Exception as error:  # Of many kinds: of zip, of HDF5, of Keras.
    fault = str(error).strip().partition('\n')[0]
    raise InputError(f'{_FLAG} {path} cannot be read by Keras ({fault}); name another') from None
  layers = {layer.name: layer for layer in model.layers}
  values = {}
  for layer in layers.values():
    for attribute, leaf in _LEAVES.items():
      if (weight := getattr(layer, attribute, None)) is not None:
        factor = layers.get(f'{layer.name}_scale') if leaf == 'offset' else None
        values[f'{layer.name}/{leaf}'] = np.asarray(weight) * (factor.scale if factor else 1)
  known = {}
  for name in names:
    scope, _, leaf = name.rpartition('/')
    known[f'{scope.replace("/", "_")}/{leaf}'] = name
  named = unfold({known.get(key, key): value for key, value in values.items()})
  shapes = {name: list(value.shape) for name, value in named.items()}
  dtypes = dict.fromkeys(named, tf.float32)
  return VariableFile(f'{_FLAG} {path}', path, shapes, dtypes, named.__getitem__)


def _taken(source: VariableFile, shapes: Mapping[str, list[int]]) -> list[str]:
  """Returns the names of variables that fit; logs those that do not, on both sides."""
  theirs = source.shapes
  # A counter of a user's network begins anew.
  common = [name for name in shapes if name in theirs and source.dtypes[name].is_floating]
  other = [name for name in common if theirs[name] != shapes[name]]
  taken = [name for name in common if name not in other]
  if not taken:
    raise InputError(
      f'--warm-start-from {source.path}: none of its {len(theirs)} variables is by name and '
      f"shape one of this network's {len(shapes)}; name one of the same --network"
    )
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


def check_frozen(pattern: str, shapes: Mapping[str, list[int]], trained: set[str]) -> None:
  """Raises InputError if --freeze matches no variable, or all of them."""
  if not pattern:
    return
  if not any(re.search(pattern, name) for name in shapes):
    raise InputError(
      f'--freeze {pattern!r} matches none of the {len(shapes)} variables, as {next(iter(shapes))}; '
      'leave it out or change it'
    )
  if not trained:
    raise InputError(f'--freeze {pattern!r} leaves no variable to train; change it')
  log.info('%s of %s variables are trained', len(trained), len(shapes))
