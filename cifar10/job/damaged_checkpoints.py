"""JOB/damaged/: unreadable checkpoints, moved there when training resumes from an older one."""

import os
from typing import Any

import tensorflow as tf

from cifar10.core import files
from cifar10.core.errors import InputError, MisfitError
from cifar10.core.logs import log
from cifar10.job import checkpoints

FOLDER = 'damaged'


def without(job_dir: str, misfit: MisfitError) -> str:
  """Sets a checkpoint aside that does not fit the network; returns the newest of the others.

  Raises:
    InputError: no other one is whole, or it has the same variables, or more or fewer of them: it is
      not the checkpoint that has changed. Nothing is moved.
  """
  checkpoints.remember(misfit.checkpoint, misfit.fault)
  surveyed = checkpoints.survey(job_dir)
  if not surveyed.newest or _are_alike(surveyed.newest, misfit.checkpoint):
    checkpoints.remember(misfit.checkpoint)
    raise other_variables(job_dir, misfit)
  set_aside(job_dir, surveyed)
  return surveyed.newest


def other_variables(job_dir: str, misfit: MisfitError) -> InputError:
  """Returns the error for a network, or a callback, with other variables than the job's."""
  return InputError(
    f'--job-dir {job_dir} was trained with other variables: {misfit.checkpoint} does not fit '
    f'({misfit.fault}); undo what changed them, or name another folder'
  )


def _are_alike(one: str, other: str) -> bool:
  """Tells whether what both checkpoints have is of one shape and type, and one of them has it all.

  A callback's variables come and go with it.
  """
  first, second = _variables(one), _variables(other)
  shared = first.keys() & second.keys()
  return len(shared) == min(len(first), len(second)) and all(
    first[name] == second[name] for name in shared
  )


def _variables(checkpoint: str) -> dict[str, Any]:
  """Returns the variables' shapes and types by name."""
  reader = tf.compat.v1.train.NewCheckpointReader(checkpoint)
  types = reader.get_variable_to_dtype_map()
  return {name: (shape, types[name]) for name, shape in reader.get_variable_to_shape_map().items()}


def set_aside(job_dir: str, surveyed: checkpoints.Survey) -> None:
  """Moves damaged checkpoints to JOB/damaged/, where no save replaces them; lists the others.

  Raises:
    OSError: the folder cannot be written.
  """
  assert surveyed.newest
  paths = [
    path
    for damaged in surveyed.damaged
    for path in [*checkpoints.files_of(damaged), damaged]
    if files.is_named(path) and files.absolute(os.path.dirname(path)) == files.absolute(job_dir)
  ]
  folder = _free_folder(job_dir, [os.path.basename(path) for path in paths])
  if paths:
    files.make_folder(folder)
  for path in paths:
    files.move(path, os.path.join(folder, os.path.basename(path)))
  _write_list(job_dir, surveyed.newest)
  moved = f'moved to {folder}; ' if paths else ''
  log.info(
    'damaged: %s; %sgoing on from %s%s',
    surveyed.described(),
    moved,
    surveyed.newest,
    _cost(surveyed),
  )


def _cost(surveyed: checkpoints.Survey) -> str:
  """Returns the steps to repeat, as ': 2 steps are made again'."""
  newest = checkpoints.step_of(surveyed.newest or '')
  damaged = filter(None, map(checkpoints.step_of, surveyed.damaged))
  lost = 0 if newest is None else max(damaged, default=0) - newest
  return f': {lost:,} steps are made again' if lost > 0 else ': no step is lost'


def _free_folder(job_dir: str, names: list[str]) -> str:
  """Returns JOB/damaged, or JOB/damaged-2 and so on if a file of these names exists there."""
  folder, number = os.path.join(job_dir, FOLDER), 1
  while any(files.is_named(os.path.join(folder, name)) for name in names):
    number += 1
    folder = os.path.join(job_dir, f'{FOLDER}-{number}')
  return folder


def _write_list(job_dir: str, newest: str) -> None:
  """Rewrites JOB/checkpoint with names, not paths, because the folder may be moved."""
  latest = checkpoints.step_of(newest)
  by_step = checkpoints.all_by_step(job_dir)
  kept = [
    os.path.basename(by_step[step])
    for step in sorted(by_step)
    if step <= (latest or 0) and files.exists(by_step[step] + '.index')
  ]
  lines = [f'model_checkpoint_path: "{os.path.basename(newest)}"']
  lines += [f'all_model_checkpoint_paths: "{name}"' for name in kept]
  files.write_text(os.path.join(job_dir, checkpoints.LIST), '\n'.join(lines) + '\n')
