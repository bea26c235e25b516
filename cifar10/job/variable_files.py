"""Variables outside of a graph: read from checkpoints and .npz files, and written to them."""

import errno
import io
import os
import zipfile
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core import files, storage_errors, storage_faults
from cifar10.core.errors import InputError
from cifar10.job import best_checkpoints, checkpoints
from cifar10.job.checkpoints import EMA_SUFFIX
from cifar10.networks.family import PROXY

_REMEDY = 'name a job dir, its best/, a checkpoint or an .npz file'
# What readers raise for a damaged file.
_DAMAGE = (
  OSError,
  ValueError,
  TypeError,
  IndexError,
  RuntimeError,
  zipfile.BadZipFile,
  tf.errors.OpError,
)
_GLOBAL_STEP = 'global_step'
_MOVING = ('/moving_mean', '/moving_variance')  # Batch norm's.


class VariableFile(NamedTuple):
  """The variables in a checkpoint or an .npz file, by name."""

  named: str  # As the user wrote it, for messages: '--warm-start-from job'.
  path: str  # Of the checkpoint or the .npz file.
  all_shapes: dict[str, list[int]]
  dtypes: dict[str, tf.DType]
  read: Callable[[str], np.ndarray]

  @property
  def shapes(self) -> dict[str, list[int]]:
    """Shapes of the network's variables: no proxy's, no step, no optimizer's, no averages."""
    return {
      name: shape
      for name, shape in self.all_shapes.items()
      if '/' in name
      and name.rpartition('/')[0] not in self.all_shapes
      and name.split('/')[1] != PROXY
    }

  @property
  def averaged(self) -> dict[str, str]:
    """The names of the averages of variables, by the variables'."""
    names = ((name, name + EMA_SUFFIX) for name in self.shapes)
    return {name: average for name, average in names if average in self.all_shapes}

  @property
  def global_step(self) -> int:
    """The step at which it was saved; 0 where the file lacks it."""
    return int(self._read(_GLOBAL_STEP)) if _GLOBAL_STEP in self.all_shapes else 0

  @property
  def kinds(self) -> dict[str, str]:
    """Kind of each: 'trainable', 'average', 'slot' (an optimizer's variable) or 'other'.

    A variable is trainable if it has a slot. Without any slots that is unknown, and every variable
    of the network counts as trainable unless it is an average.
    """
    slots = {
      name
      for name in self.all_shapes
      if name.rpartition('/')[0] in self.all_shapes and not name.endswith(EMA_SUFFIX)
    }
    trained = {name.rpartition('/')[0] for name in slots} or set(self.shapes)
    kinds = dict.fromkeys(self.all_shapes, 'other')
    kinds.update(dict.fromkeys(trained, 'trainable'))
    kinds.update(dict.fromkeys(slots, 'slot'))
    ends = (EMA_SUFFIX, *_MOVING)
    kinds.update((name, 'average') for name in self.all_shapes if name.endswith(ends))
    return kinds

  def value(self, name: str) -> np.ndarray:
    """One variable, float32; raises InputError for damage and what is no finite number."""
    value = self._read(name)
    if not np.issubdtype(value.dtype, np.floating) or not np.isfinite(value).all():
      raise InputError(f'{self.named}: {name} holds what is no finite number; {_REMEDY}')
    return value.astype(np.float32)

  def _read(self, name: str) -> np.ndarray:
    try:
      return np.asarray(self.read(name))
    except _DAMAGE as error:
      fault = str(error).partition('\n')[0]
      raise InputError(f'{self.named} is damaged at {name} ({fault}); {_REMEDY}') from None


def open_source(path: str, flag: str = '') -> VariableFile:
  """Opens the variables that a user names.

  Args:
    path: a job dir, its best/, a checkpoint's prefix or an .npz file of arrays by variable name.
    flag: with which it was named, for messages.

  Raises:
    InputError: it is none of these, or damaged.
  """
  named = f'{flag} {path}'.strip()
  try:
    if files.is_file(path):
      return _open_arrays(path, named)
    return open_checkpoint(_checkpoint(path, named), named)
  except InputError:
    raise
  except _DAMAGE as error:
    fault = str(error).partition('\n')[0]
    raise InputError(f'{named} cannot be read ({fault}); {_REMEDY}') from None


def open_checkpoint(prefix: str, named: str) -> VariableFile:
  """Opens a checkpoint that is known to be whole; `named`: as the user wrote it, for messages."""
  reader = tf.compat.v1.train.NewCheckpointReader(prefix)
  shapes = {name: list(shape) for name, shape in reader.get_variable_to_shape_map().items()}
  dtypes = dict(reader.get_variable_to_dtype_map())
  return VariableFile(named, prefix, shapes, dtypes, reader.get_tensor)


def _open_arrays(path: str, named: str) -> VariableFile:
  # Never a pickle, which could run code.
  with files.opened(path) as file:
    arrays = np.load(file, allow_pickle=False)
    if not isinstance(arrays, np.lib.npyio.NpzFile):
      raise ValueError('it is one array and no .npz file')
    values = {name: arrays[name] for name in arrays.files}
  if values.get(_GLOBAL_STEP, np.int64(0)).shape:
    raise ValueError(f'{_GLOBAL_STEP} is no number')
  shapes = {name: list(value.shape) for name, value in values.items()}
  dtypes = {name: tf.as_dtype(value.dtype) for name, value in values.items()}
  return VariableFile(named, path, shapes, dtypes, values.__getitem__)


def _checkpoint(path: str, named: str) -> str:
  """The checkpoint that a path means; raises InputError."""
  if not files.is_dir(path):
    if not files.exists(path + '.index'):
      raise InputError(f'{named} does not exist; {_REMEDY}')
    return path
  if files.exists(os.path.join(path, best_checkpoints.NAME)):
    return best_checkpoints.checkpoint(os.path.dirname(files.absolute(path)))
  surveyed = checkpoints.survey(path)
  if surveyed.damaged:
    raise InputError(f'{named} is damaged: {surveyed.described()}; {_REMEDY}')
  if not surveyed.newest:
    raise InputError(f'{named} holds no checkpoint; {_REMEDY}')
  return surveyed.newest


def check_network(source: VariableFile, shapes: Mapping[str, list[int]], family: str) -> None:
  """Raises InputError for another network's variables, of which TensorFlow might take some.

  Args:
    source: whose network's variables are compared.
    shapes: of this network's variables, by name.
    family: the scope of both.
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


def write(path: str, values: Mapping[str, np.ndarray], global_step: int) -> None:
  """Writes variables, whole or not at all.

  Args:
    path: of an .npz file; else a checkpoint's prefix.
    values: by name.
    global_step: at which they were.

  Raises:
    InputError: the file is there, or cannot be written.
    StorageError: the disk is full.
  """
  check_new(path)
  folder = os.path.dirname(files.absolute(path))
  with storage_errors.named('--out', folder), storage_errors.refusing('--out', path):
    files.make_folder(folder)
    if path.endswith('.npz'):
      content = io.BytesIO()  # A failed writer of zip files would fail once more at its end.
      np.savez(content, **{_GLOBAL_STEP: np.int64(global_step)}, **values)
      with files.writing(path) as file:
        file.write(content.getbuffer())
    else:
      _write_checkpoint(path, values, global_step)


def check_new(path: str) -> None:
  """Raises InputError where the path is taken."""
  if files.exists(path) or files.exists(path + '.index'):
    raise InputError(f'--out {path} is there already; name another')


def _write_checkpoint(path: str, values: Mapping[str, np.ndarray], global_step: int) -> None:
  """The index comes last: without it there is no checkpoint."""
  names = [*values, _GLOBAL_STEP]
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    fed = [tf.compat.v1.placeholder(value.dtype) for value in values.values()]
    fed.append(tf.compat.v1.placeholder(tf.int64))
    save = tf.raw_ops.SaveV2(
      prefix=path, tensor_names=names, shape_and_slices=[''] * len(names), tensors=fed
    )
    try:
      session.run(save, dict(zip(fed, [*values.values(), global_step])))
    except tf.errors.OpError as error:
      said = error.message.partition('\n')[0]
      raise OSError(storage_faults.number(error) or errno.EIO, said) from error
