"""The weights' moving averages in graphs and checkpoints, for --use-ema and --ema-decay.

As in TensorFlow's EfficientNet (tensorflow/tpu, models/official/efficientnet, `get_ema_vars` in
utils.py), batch norm's moving averages are averaged like the trained variables, and evaluations
restore an average in place of its variable. `optimizers.MovingAverage` makes the averages.
"""

import tensorflow as tf

from cifar10.core.errors import InputError
from cifar10.job.checkpoints import EMA_SUFFIX, Saver


def moving_averages() -> list[tf.Variable]:
  """Returns batch norm's moving averages in this graph, and what else has no gradient."""
  return tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.MODEL_VARIABLES)


def averaged_variables() -> list[tf.Variable]:
  """Returns the network's trained variables and batch norm's moving averages, but no counters."""
  variables = (*tf.compat.v1.trainable_variables(), *moving_averages())
  return [variable for variable in variables if variable.dtype.is_floating]


def scaffold() -> tf.compat.v1.train.Scaffold:
  """Returns a scaffold that restores averages in place of variables, for evaluation and export.

  A SavedModel of such a graph has the averages, too, because the same saver writes it.
  """
  averaged = {variable.op.name for variable in averaged_variables()}
  stored = {
    name + EMA_SUFFIX if name in averaged else name: variable
    for name, variable in ((each.op.name, each) for each in tf.compat.v1.global_variables())
  }
  return tf.compat.v1.train.Scaffold(saver=Saver(stored))


def is_in(checkpoint: str) -> bool:
  """Tells whether a checkpoint has moving averages of the weights."""
  reader = tf.compat.v1.train.NewCheckpointReader(checkpoint)
  return any(name.endswith(EMA_SUFFIX) for name in reader.get_variable_to_shape_map())


def check_are_in(checkpoint: str) -> None:
  """Raises InputError if a checkpoint has no moving averages of the weights."""
  if not is_in(checkpoint):
    raise InputError(
      f'checkpoint {checkpoint} has no average of the weights: its job was trained without '
      '--ema-decay; leave --use-ema out'
    )


def check_resumes(job_dir: str, checkpoint: str | None, ema_decay: float) -> None:
  """Raises InputError for --ema-decay in a job that older code trained without averages."""
  if checkpoint and not is_in(checkpoint):
    raise InputError(
      f'--ema-decay {ema_decay} and --job-dir {job_dir} was trained without; leave it out or name '
      'another folder'
    )
