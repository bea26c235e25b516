"""Starting a new job with the variables of others.

`--warm-start-from` names job dirs, checkpoints and .npz files. Their variables are taken by name
and shape; what the network's optimizer keeps for each variable starts as in any new job, and so
does the global step.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.core.errors import InputError
from cifar10.core.logs import log, one_line
from cifar10.data.info import DatasetInfo
from cifar10.job import checkpoints, variable_files
from cifar10.job.variable_files import VariableFile
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions
from cifar10.training import network_size

_FLAG = '--warm-start-from'


def initializers_of_job(
  hparams: HParams, options: RunOptions, data: DatasetInfo, saves: bool, task: str
) -> dict[str, Any]:
  """What --freeze and --warm-start-from ask for, checked before the job dir is touched.

  Args:
    hparams: the network.
    options: the sources.
    data: what it classifies.
    saves: whether this process is the chief; the other tasks get its values.
    task: the start of its device names: '' for one process.

  Returns:
    The chief's initializers of a new job.
  """
  shapes, trained = network_size.variable_shapes(hparams, data)
  check_frozen(hparams.freeze, shapes, trained)
  if not (options.warm_start_from and saves):
    return {}
  if not checkpoints.survey(options.job_dir).is_new:
    log.info('--warm-start-from is ignored: the job goes on from its own checkpoint')
    return {}
  device = task + '/device:CPU:0'
  return initializers(options.warm_start_from, options.warm_start_skip, shapes, device)


def initializers(
  paths: Sequence[str], skipped: str | None, shapes: Mapping[str, list[int]], device: str
) -> dict[str, Any]:
  """Finds the network's variables in others, and says what was found and what was not.

  Args:
    paths: of sources, as `variables.open_source` takes them; later ones win.
    skipped: regular expression; variables whose names match are not taken.
    shapes: of the network's variables, by name.
    device: of this process, where the values are; no other task needs to see the sources.

  Returns:
    An initializer for each variable that was found, by its name.

  Raises:
    InputError: a source cannot be read, or none of its variables fits.
  """
  found = {}
  for path in paths:
    source = variable_files.open_source(path, _FLAG)
    taken = _taken(source, skipped, shapes)
    for name in taken:
      found[name] = _initializer(source.value(name), device)
  return found


def _taken(source: VariableFile, skipped: str | None, shapes: Mapping[str, list[int]]) -> list[str]:
  """The names of what fits; logs what does not, on both sides."""
  common = [name for name in shapes if name in source.shapes]
  left = [name for name in common if skipped is not None and re.search(skipped, name)]
  other = [name for name in common if name not in left and source.shapes[name] != shapes[name]]
  taken = [name for name in common if name not in left and name not in other]
  if not taken:
    raise InputError(
      f'--warm-start-from {source.path}: none of its {len(source.shapes)} variables is by name and '
      f"shape one of this network's {len(shapes)}{' that are not skipped' if left else ''}; name "
      'one of the same --network'
    )
  not_taken = {
    'of another shape': [f'{name} {source.shapes[name]}, here {shapes[name]}' for name in other],
    'skipped': left,
    'not there': [name for name in shapes if name not in source.shapes],
    'only there': [name for name in source.shapes if name not in shapes],
  }
  counts = ', '.join(f'{len(names)} {what}' for what, names in not_taken.items())
  log.info(
    'warm start from %s: %s of %s variables; %s', source.path, len(taken), len(shapes), counts
  )
  for what, names in not_taken.items():
    if names:
      log.info('%s: %s', what, one_line('; '.join(names)))
  return taken


def _initializer(value: np.ndarray, device: str) -> Callable[..., tf.Tensor]:
  """Not a constant, of which a graph can hold 2 GB only: read in this process when it is run."""

  def initialize(shape: Any, dtype: Any = None, partition_info: Any = None) -> tf.Tensor:
    del dtype, partition_info
    with tf.compat.v1.device(device):
      [tensor] = tf.compat.v1.py_func(lambda: value, [], [tf.float32], stateful=True)
    return tf.ensure_shape(tensor, shape)

  return initialize


def check_frozen(pattern: str, shapes: Mapping[str, list[int]], trained: set[str]) -> None:
  """Raises InputError for a --freeze that freezes nothing, or everything."""
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
