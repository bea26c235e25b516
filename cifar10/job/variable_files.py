"""Reads variables from checkpoints and .npz files, and writes them."""

import io
import os
import re
import threading
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.job import checkpoints, job_config, pretrained
from cifar10.options.families import PROXY, FastNetFamily
from cifar10.options.run_options import PRETRAINED, RunOptions

_REMEDY = 'name a job dir, its best/, a checkpoint or an .npz file'
_MOVING = ('/moving_mean', '/moving_variance')  # Batch norm's.
# What optimizers keep beside a variable, named after them: Momentum, Adam_1, a user's own.
_SLOT = re.compile(r'/([A-Z]\w*|slow)$')
_unpacking = threading.Lock()  # A server's threads may load a network at the same time.


class VariableFile(NamedTuple):
  """The variables of a checkpoint or an .npz file."""

  named: str  # As the user named it, for messages: '--warm-start-from job'.
  path: str  # The path of the checkpoint or .npz file.
  arrays: Mapping[str, np.ndarray]  # All, by name.

  def _beside(self, name: str) -> str:
    """Returns the variable beside which an optimizer or an average keeps this one, or ''."""
    variable = name.rpartition('/')[0]
    return variable if _SLOT.search(name) and variable in self.arrays else ''

  @property
  def shapes(self) -> dict[str, list[int]]:
    """Returns the shapes of the network's own variables: no proxy, step, optimizer, averages."""
    proxy = f'{FastNetFamily.NAME}/{PROXY}/'
    return {
      name: list(array.shape)
      for name, array in self.arrays.items()
      if '/' in name and not self._beside(name) and not name.startswith(proxy)
    }

  @property
  def global_step(self) -> int:
    """Returns the step at which it was saved; 0 if the file has none."""
    return int(self.arrays.get('global_step', 0))

  def kinds(self) -> dict[str, str]:
    """Returns each variable's kind: 'trainable', 'average', 'slot' (an optimizer's) or 'other'.

    A variable is trainable if it has a slot. Without any slots that is unknown, and every variable
    of the network counts as trainable unless it is an average.
    """
    averages = {name for name in self.arrays if name.endswith((checkpoints.EMA_SUFFIX, *_MOVING))}
    slots = {name for name in self.arrays if self._beside(name)} - averages
    trained = set(map(self._beside, slots)) or set(self.shapes)
    kinds = {'other': self.arrays, 'trainable': trained, 'slot': slots, 'average': averages}
    return {name: kind for kind, names in kinds.items() for name in names}  # The last one counts.

  def value(self, name: str) -> np.ndarray:
    """One variable, float32 or, of a counter, whole numbers; raises InputError for NaN."""
    value = self.arrays[name]
    if np.issubdtype(value.dtype, np.integer):
      return value
    with np.errstate(over='ignore'):  # float64 has larger numbers.
      value = value.astype(np.float32)
    if not np.isfinite(value).all():
      raise InputError(f'{self.named}: {name} holds what is no finite number; {_REMEDY}')
    return value


def open_source(path: str, flag: str = '') -> VariableFile:
  """Reads the variables that a user has named, by `flag` if it was an option.

  The path is a job dir, its best/, a checkpoint's prefix, an .npz file of arrays by variable name,
  or the name of an included network; else, or if it is damaged, InputError is raised.
  """
  named = f'{flag} {path}'.strip()
  if path in PRETRAINED and not files.exists(path):
    path = pretrained.path(path) + '.npz'
  if not files.is_file(path):
    if best := checkpoints.read_best(path, ''):
      path = os.path.join(path, best[0]['checkpoint'])
    try:
      named_file = path if files.exists(path + '.index') else None
      found = checkpoints.find(path, named_file, how='in its place')
    except InputError as error:
      raise InputError(f'{named}: {error}') from None
    return open_checkpoint(found, named)
  try:
    with files.opened(path) as file, np.load(file) as archive:  # No pickle, which could run code.
      return VariableFile(named, path, {name: archive[name][...] for name in archive})
  except Exception as error:  # Of many kinds: of zip, of what it packs with, of numpy.
    fault = str(error).partition('\n')[0]
    raise InputError(f'{named} cannot be read ({fault}); {_REMEDY}') from None


def open_checkpoint(prefix: str, named: str) -> VariableFile:
  """Reads a whole checkpoint; `named` is how the user named it, for messages."""
  reader = tf.compat.v1.train.NewCheckpointReader(prefix)
  names = reader.get_variable_to_shape_map()
  return VariableFile(named, prefix, {name: np.asarray(reader.get_tensor(name)) for name in names})


def check_network(source: VariableFile, shapes: Mapping[str, list[int]], family: str) -> None:
  """Raises InputError for another network's variables, some of which TensorFlow might accept.

  `shapes` are those of this network's variables by name, in the scope `family`.
  """
  theirs = source.shapes
  for name in [*shapes, *(name for name in sorted(theirs) if name.startswith(f'{family}/'))]:
    if theirs.get(name) != shapes.get(name):
      there, here = (of.get(name, 'missing') for of in (theirs, shapes))
      raise InputError(
        f'{source.named} is of another network: {name} is {there} there, and {here} here; name one '
        'of this job, or the --job-dir that it belongs to'
      )


def check_new(path: str) -> None:
  """Raises InputError for an --out that is taken, or no file's path."""
  if not path.endswith('.npz'):
    files.check_no_pattern(path, '--out')
  if not os.path.basename(path) or files.exists(path) or files.exists(path + '.index'):
    raise InputError(f'--out {path} is a folder, or is there already; name a new file')


def write(path: str, values: Mapping[str, np.ndarray], global_step: int) -> None:
  """Writes variables, which appear whole, to an .npz file or a checkpoint's prefix, for --out."""
  with files.naming_errors('--out', path, is_first=True):
    files.make_folder(os.path.dirname(files.absolute(path)))
    if path.endswith('.npz'):
      content = io.BytesIO()  # A failed writer of zip files would fail once more at its end.
      np.savez(content, global_step=np.int64(global_step), **values)
      with files.writing(path) as file:
        file.write(content.getbuffer())
    else:
      write_checkpoint(path, values, global_step)


def write_checkpoint(path: str, values: Mapping[str, np.ndarray], global_step: int) -> None:
  """Writes a checkpoint, the index last: without it there is no checkpoint."""
  everything = {**values, 'global_step': np.int64(global_step)}
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    save = tf.raw_ops.SaveV2(
      prefix=path,
      tensor_names=list(everything),
      shape_and_slices=[''] * len(everything),
      tensors=[tf.constant(value) for value in everything.values()],
    )
    session.run(save)


def unpack_pretrained(options: RunOptions) -> None:
  """Writes the network that `as_job` has accepted into its job dir, unless it is there."""
  assert options.pretrained
  with _unpacking:
    listed = os.path.join(options.job_dir, checkpoints.LIST)
    if files.exists(listed):
      return
    # By its path: a folder of the user's may have the network's name.
    source = open_source(pretrained.path(options.pretrained) + '.npz', '--pretrained')
    job_config.write_config(options.job_dir, pretrained.config(options.pretrained))
    name = f'model.ckpt-{source.global_step}'
    values = {each: source.value(each) for each in source.shapes}
    write_checkpoint(os.path.join(options.job_dir, name), values, source.global_step)
    files.write_text(listed, f'model_checkpoint_path: "{name}"\n')
