"""Which checkpoint a mode uses."""

import tensorflow as tf

from cifar10.callbacks import best_file
from cifar10.platform.errors import InputError

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


def global_step(checkpoint: str) -> int:
  """The step at which it was saved."""
  return int(tf.train.load_variable(checkpoint, 'global_step'))
