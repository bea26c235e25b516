"""Reads variables from checkpoints and .npz files, and writes them."""

import errno
import io
import os
import re
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.job import checkpoints, job_config, pretrained
from cifar10.job.checkpoints import EMA_SUFFIX
from cifar10.options.families import PROXY
from cifar10.options.run_options import PRETRAINED, RunOptions

_REMEDY = 'name a job dir, its best/, a checkpoint or an .npz file'
_GLOBAL_STEP = 'global_step'
_MOVING = ('/moving_mean', '/moving_variance')  # Batch norm's.
# What optimizers keep beside a variable; from Adam on those of other programs' jobs.
_SLOT = re.compile(r'/(Momentum|Muon|slow|Adam|Adagrad|Adadelta|Ftrl|RMSProp)(_\d+)?$')


def _beside(name: str) -> str:
  """Returns the name of the variable that this one would be kept beside."""
  return name.rpartition('/')[0]


class VariableFile(NamedTuple):
  """The variables of a checkpoint or an .npz file, by name."""

  named: str  # As the user named it, for messages: '--warm-start-from job'.
  path: str  # The path of the checkpoint or .npz file.
  all_shapes: dict[str, list[int]]
  dtypes: dict[str, tf.DType]
  read: Callable[[str], np.ndarray]

  @property
  def shapes(self) -> dict[str, list[int]]:
    """Returns the shapes of the network's own variables: no proxy, step, optimizer, averages."""
    return {
      name: shape
      for name, shape in self.all_shapes.items()
      if '/' in name
      and not self._is_slot(name)
      and not (name.endswith(EMA_SUFFIX) and _beside(name) in self.all_shapes)
      and name.split('/')[1] != PROXY
    }

  def _is_slot(self, name: str) -> bool:
    """Tells whether an optimizer keeps a variable beside another."""
    return bool(_SLOT.search(name)) and _beside(name) in self.all_shapes

  @property
  def averaged(self) -> dict[str, str]:
    """Returns the names of the variables' moving averages, by the variables' names."""
    names = ((name, name + EMA_SUFFIX) for name in self.shapes)
    return {name: average for name, average in names if average in self.all_shapes}

  @property
  def global_step(self) -> int:
    """Returns the step at which it was saved; 0 if the file has none."""
    return int(self.read(_GLOBAL_STEP)) if _GLOBAL_STEP in self.all_shapes else 0

  @property
  def kinds(self) -> dict[str, str]:
    """Returns each variable's kind: 'trainable', 'average', 'slot' (an optimizer's) or 'other'.

    A variable is trainable if it has a slot. Without any slots that is unknown, and every variable
    of the network counts as trainable unless it is an average.
    """
    slots = {name for name in self.all_shapes if self._is_slot(name)}
    trained = set(map(_beside, slots)) or set(self.shapes)
    averages = {name for name in self.all_shapes if name.endswith((EMA_SUFFIX, *_MOVING))}
    kinds = {'other': self.all_shapes, 'trainable': trained, 'slot': slots, 'average': averages}
    return {name: kind for kind, names in kinds.items() for name in names}  # The last one counts.

  def value(self, name: str) -> np.ndarray:
    """One variable, float32 or, of a counter, whole numbers; raises InputError for NaN."""
    value = np.asarray(self.read(name))
    if self.dtypes[name].is_integer:
      return value
    with np.errstate(over='ignore'):  # float64 has larger numbers.
      value = value.astype(np.float32)
    if not np.isfinite(value).all():
      raise InputError(f'{self.named}: {name} holds what is no finite number; {_REMEDY}')
    return value


def open_source(path: str, flag: str = '') -> VariableFile:
  """Opens the variables that a user has named, by `flag` if it was an option.

  The path is a job dir, its best/, a checkpoint's prefix, an .npz file of arrays by variable name,
  or the name of an included network; else, or if it is damaged, InputError is raised.
  """
  named = f'{flag} {path}'.strip()
  if path in PRETRAINED and not files.exists(path):
    path = pretrained.path(path) + '.npz'
  if not files.is_file(path):
    return open_checkpoint(_checkpoint(path, named), named)
  try:
    with files.opened(path) as file, np.load(file) as archive:  # No pickle, which could run code.
      arrays = dict(archive)
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    dtypes = {name: tf.as_dtype(array.dtype) for name, array in arrays.items()}
    return VariableFile(named, path, shapes, dtypes, arrays.__getitem__)
  except Exception as error:  # Of many kinds: of zip, of what it packs with, of numpy.
    fault = str(error).partition('\n')[0]
    raise InputError(f'{named} cannot be read ({fault}); {_REMEDY}') from None


def open_checkpoint(prefix: str, named: str) -> VariableFile:
  """Opens a whole checkpoint; `named` is how the user named it, for messages."""
  reader = tf.compat.v1.train.NewCheckpointReader(prefix)
  shapes = {name: list(shape) for name, shape in reader.get_variable_to_shape_map().items()}
  dtypes = dict(reader.get_variable_to_dtype_map())
  return VariableFile(named, prefix, shapes, dtypes, reader.get_tensor)


def _checkpoint(path: str, named: str) -> str:
  """Returns the checkpoint that a path stands for; raises InputError."""
  if best := checkpoints.read_best(path, ''):
    path = os.path.join(path, best[0]['checkpoint'])
  if files.exists(path + '.index'):
    if fault := checkpoints.fault_of(path):
      raise InputError(f'{named} is damaged ({fault}); {_REMEDY}')
    return path
  surveyed = checkpoints.survey(path)
  if surveyed.newest and not surveyed.damaged:
    return surveyed.newest
  fault = f'is damaged: {surveyed.described()}' if surveyed.damaged else 'holds no checkpoint'
  raise InputError(f'{named} {fault if files.is_dir(path) else "does not exist"}; {_REMEDY}')


def check_network(source: VariableFile, shapes: Mapping[str, list[int]], family: str) -> None:
  """Raises InputError for another network's variables, some of which TensorFlow might accept.

  `shapes` are those of this network's variables by name, in the scope `family`.
  """
  theirs = source.shapes
  differences = [
    f'has no {name}' if name not in theirs else f'has {name} of {theirs[name]}, not {shape}'
    for name, shape in shapes.items()
    if theirs.get(name) != shape
  ]
  differences += [
    f'has {name}, which is not in this one'
    for name in sorted(theirs)
    if name.startswith(f'{family}/') and name not in shapes
  ]
  if differences:
    raise InputError(
      f'{source.named} is of another network: it {differences[0]}; name one of this job, or the '
      '--job-dir that it belongs to'
    )


def write(
  path: str, values: Mapping[str, np.ndarray], global_step: int, flag: str = '--out'
) -> None:
  """Writes variables atomically, to an .npz file or a checkpoint's prefix, which `flag` named."""
  check_new(path, flag)
  folder = os.path.dirname(files.absolute(path))
  with files.naming_errors(flag, folder), files.refusing_errors(flag, path):
    files.make_folder(folder)
    all_values = {**values, _GLOBAL_STEP: np.asarray(global_step, np.int64)}
    if path.endswith('.npz'):
      content = io.BytesIO()  # A failed writer of zip files would fail once more at its end.
      np.savez(content, **all_values)
      with files.writing(path) as file:
        file.write(content.getbuffer())
    else:
      _write_checkpoint(path, all_values)


def check_new(path: str, flag: str = '--out') -> None:
  """Raises InputError where the path is taken, or is none."""
  if not path:
    raise InputError(f'{flag} is empty; name a file')
  if path.endswith('/'):
    raise InputError(f'{flag} {path} is a folder; name a file in it')
  if not path.endswith('.npz'):
    files.check_no_pattern(path, flag)
  if files.exists(path) or files.exists(path + '.index'):
    raise InputError(f'{flag} {path} is there already; name another')


def _write_checkpoint(path: str, values: Mapping[str, np.ndarray]) -> None:
  """Writes a checkpoint, the index last: without it there is no checkpoint."""
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tensors = [tf.compat.v1.placeholder(value.dtype) for value in values.values()]
    slices = [''] * len(values)
    save = tf.raw_ops.SaveV2(
      prefix=path, tensor_names=list(values), shape_and_slices=slices, tensors=tensors
    )
    try:
      session.run(save, dict(zip(tensors, values.values())))
    except tf.errors.OpError as error:
      message = error.message.partition('\n')[0]
      raise OSError(files.error_number(error) or errno.EIO, message) from error


_unpacking = threading.Lock()  # A server's threads may load a network at the same time.


def unpack_pretrained(options: RunOptions) -> None:
  """Writes the network that `as_job` has accepted into its job dir, unless it is there."""
  assert options.pretrained
  with _unpacking:
    if files.exists(os.path.join(options.job_dir, 'checkpoint')):
      return
    # By its path: a folder of the user's may have the network's name.
    path = pretrained.path(options.pretrained) + '.npz'
    source = open_source(path, '--pretrained')
    step = source.global_step
    values = {each: source.value(each) for each in source.shapes}
    checkpoint = os.path.join(options.job_dir, f'model.ckpt-{step}')
    job_config.write_config(options.job_dir, pretrained.config(options.pretrained))
    if not files.exists(checkpoint + '.index'):  # A process that was killed may have come this far.
      write(checkpoint, values, step, '--job-dir')
    latest = f'model_checkpoint_path: "model.ckpt-{step}"\n'
    files.write_text(os.path.join(options.job_dir, 'checkpoint'), latest)
