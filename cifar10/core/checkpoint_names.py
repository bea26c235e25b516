"""Changes how TensorFlow takes checkpoints' names, and what it says of one that does not fit."""

import atexit
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.lib.io import file_io
from tensorflow.python.training import py_checkpoint_reader, saver

from cifar10.core.errors import MisfitError

_OF_PATTERNS = re.compile(r'[\\*?[]')  # Characters that TensorFlow's patterns give a meaning.


@functools.cache
def take_literally() -> None:
  """Makes TensorFlow accept checkpoint folders such as 'lr[0.1]', which it takes for patterns.

  Each path of a checkpoint that TensorFlow takes for a pattern passes one of these three functions,
  as their last argument. Two end in C++ code that matches the path with the files and then opens
  the path itself: there is no way to escape it, so that code is given a link to the folder.
  """
  reader = py_checkpoint_reader.CheckpointReader
  places = ((file_io, 'get_matching_files'), (saver.Saver, 'restore'), (reader, '__init__'))
  for place, name in places:
    setattr(place, name, _by_link(getattr(place, name)))
  saver.Saver.restore = _naming_misfits(saver.Saver.restore)


def _by_link(function: Callable[..., Any]) -> Callable[..., Any]:
  @functools.wraps(function)
  def call(*arguments: Any, **named: Any) -> Any:
    *others, path = (*arguments, *named.values())
    return function(*others, _without_patterns(path))

  return call


def _naming_misfits(restore: Callable[..., Any]) -> Callable[..., Any]:
  """Saver.restore with a MisfitError for what TensorFlow says in twenty lines."""

  @functools.wraps(restore)
  def call(saver: Any, sess: Any, save_path: str) -> None:  # Its names: they may be given.
    try:
      _check_shapes(saver._var_list, save_path)  # The one difference that TensorFlow lets pass.
      restore(saver, sess, save_path)
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
      # The line before the operation's name; those above it say where the operation was made.
      said = re.search(r'(.+)\n\t \[\[', str(error))
      raise MisfitError(save_path, said[1] if said else str(error).partition('\n')[0]) from error

  return call


def _check_shapes(variables: Any, path: str) -> None:
  there = tf.compat.v1.train.NewCheckpointReader(path).get_variable_to_shape_map()
  if not isinstance(variables, dict):
    variables = {each.name.partition(':')[0]: each for each in variables or ()}
  for name, variable in variables.items():
    if not hasattr(variable, 'shape'):  # Another object that is saved, a table for example.
      continue
    shape = variable.shape.as_list()
    if there.get(name, shape) != shape:
      raise MisfitError(path, f'it has {name} of {there[name]}, not {shape}')


def _without_patterns(path: Any) -> Any:
  """Returns a checkpoint's path, through a link if its folder's name has pattern characters."""
  folder, name = os.path.split(os.fsdecode(path or ''))
  if not _OF_PATTERNS.search(folder):
    return path
  return os.path.join(_link_to(os.path.abspath(folder)), name)


@functools.cache
def _link_to(folder: str) -> str:
  """Returns a link, in a folder of its own, that exists as long as this process."""
  parent = tempfile.mkdtemp(prefix='cifar10-')
  atexit.register(shutil.rmtree, parent, ignore_errors=True)
  link = os.path.join(parent, 'folder')
  os.symlink(folder, link)
  return link
