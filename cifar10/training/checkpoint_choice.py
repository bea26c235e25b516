"""Which checkpoint a mode uses."""

import tensorflow as tf

from cifar10.core.errors import DamagedError, InputError
from cifar10.job import best_checkpoints, checkpoints

BEST = 'best'
# What TensorFlow's own averages are called, so that programs that know those find these.
AVERAGE_SUFFIX = '/ExponentialMovingAverage'


def find(job_dir: str, named: str | None) -> str:
  """The path of a checkpoint.

  Args:
    job_dir: the job's folder.
    named: a path; BEST; None: the latest.

  Raises:
    InputError: there is none.
    DamagedError: it cannot be read; the message names the newest one that can.
  """
  if named == BEST:
    named = best_checkpoints.checkpoint(job_dir)
  if not named:
    found = checkpoints.survey(job_dir)
    if found.is_new:
      raise InputError(f'--job-dir {job_dir} holds no checkpoint; train first')
    if found.damaged:
      raise _damaged(job_dir, found.described())
    assert found.newest
    return found.newest
  try:
    is_there = checkpoints.exists(named)
  except OSError as error:  # Of a URL.
    raise InputError(
      f'--checkpoint {named} cannot be read ({error.strerror}); name another'
    ) from None
  if not is_there:
    raise InputError(f'--checkpoint {named} does not exist; leave it out for the latest')
  fault = checkpoints.fault_of(named)
  if fault:
    raise _damaged(job_dir, f'{named} ({fault})')
  return named


def _damaged(job_dir: str, described: str) -> DamagedError:
  """What to raise where another checkpoint may take the place of one that cannot be read."""
  newest = checkpoints.survey(job_dir).newest or checkpoints.newest_best(job_dir)
  if not newest:
    return DamagedError(f'damaged: {described}; no checkpoint of {job_dir} is whole: restore it')
  return DamagedError(
    f'damaged: {described}; the newest whole checkpoint is {newest}: name it with --checkpoint, or '
    'train on, which starts there'
  )


def to_go_on_from(job_dir: str) -> checkpoints.Survey:
  """Where training goes on; raises DamagedError where checkpoints are there and none is whole."""
  found = checkpoints.survey(job_dir)
  if found.damaged and not found.newest:
    raise DamagedError(
      f'damaged: {found.described()}; no checkpoint of --job-dir {job_dir} is whole: restore one, '
      'or name another folder'
    )
  return found


def global_step(checkpoint: str) -> int:
  """The step at which it was saved."""
  return int(tf.compat.v1.train.NewCheckpointReader(checkpoint).get_tensor('global_step'))


def has_averages(checkpoint: str) -> bool:
  """Whether a checkpoint has averages of the weights."""
  reader = tf.compat.v1.train.NewCheckpointReader(checkpoint)
  return any(name.endswith(AVERAGE_SUFFIX) for name in reader.get_variable_to_shape_map())


def latest_step(job_dir: str) -> int:
  """Of the newest whole checkpoint; 0 before there is one."""
  newest = checkpoints.survey(job_dir).newest
  return global_step(newest) if newest else 0
