"""Which checkpoint a mode uses."""

import tensorflow as tf

from cifar10.callbacks import best_file
from cifar10.platform.errors import InputError
from cifar10.training import averages

BEST = 'best'


def find(job_dir: str, named: str | None) -> str:
  """The path of a checkpoint.

  Args:
    job_dir: the job's folder.
    named: a path; BEST; None: the latest.

  Raises:
    InputError: there is none.
  """
  if named == BEST:
    named = best_file.checkpoint(job_dir)
  if named and not tf.io.gfile.exists(named + '.index'):
    raise InputError(f'--checkpoint {named} does not exist; leave it out for the latest')
  checkpoint = named or tf.train.latest_checkpoint(job_dir)
  if not checkpoint:
    raise InputError(f'--job-dir {job_dir} holds no checkpoint; train first')
  return checkpoint


def check_classes(checkpoint: str, family: str, num_classes: int) -> None:
  """Raises InputError for a checkpoint of other classes: TensorFlow would take its logits."""
  shapes = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
  head = shapes.get(f'{family}/fully_connected/kernel')
  if head and head[-1] != num_classes:
    raise InputError(
      f'checkpoint {checkpoint} tells {head[-1]} classes apart and the job has {num_classes}; name '
      'one of this job'
    )


def check_has_averages(checkpoint: str) -> None:
  """Raises InputError for a checkpoint in which no average of the weights is."""
  if not averages.are_in(checkpoint):
    raise InputError(
      f'checkpoint {checkpoint} has no average of the weights: its job was trained without '
      '--ema-decay; leave --use-ema out'
    )


def check_resumes_averages(job_dir: str, ema_decay: float) -> None:
  """Raises InputError for averages in a job older than the option, whose config.json lacks it."""
  latest = tf.train.latest_checkpoint(job_dir)
  if ema_decay and latest and not averages.are_in(latest):
    raise InputError(
      f'--ema-decay {ema_decay} and --job-dir {job_dir} was trained without; leave it out or name '
      'another folder'
    )


def global_step(checkpoint: str) -> int:
  """The step at which it was saved."""
  return int(tf.train.load_variable(checkpoint, 'global_step'))


def latest_step(job_dir: str) -> int:
  """Of the latest checkpoint; 0 before there is one."""
  latest = tf.train.latest_checkpoint(job_dir)
  return global_step(latest) if latest else 0
