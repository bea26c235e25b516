"""The exponential moving average (EMA) of a network's variables, for --ema-decay and --use-ema.

Polyak and Juditsky 1992, 'Acceleration of Stochastic Approximation by Averaging', with weights that
decay exponentially. As in TensorFlow's EfficientNet (tensorflow/tpu, models/official/efficientnet,
`get_ema_vars` in utils.py, main.py), batch norm's moving averages are averaged like the trainable
variables, the decay starts low, and evaluations restore an average in place of its variable.

`tf.train.ExponentialMovingAverage` is not used: with parameter servers it computes on the worker,
so that every variable and its average travel there at every step, and under a strategy of
tf.distribute it reduces each variable over replicas whose copies are equal anyway.
"""

from typing import Any

import tensorflow as tf

from cifar10.core.errors import InputError
from cifar10.job.checkpoints import EMA_SUFFIX, Saver
from cifar10.training.step_parts import StepPart, companion
from cifar10.training.towers import GradientsAndVariables


class Part(StepPart):
  """Is an optimizer whose updates, made by another, are followed by an update of the averages.

  After update t: average = d * average + (1 - d) * variable, d = min(decay, (1 + t) / (10 + t)), as
  in tf.train.ExponentialMovingAverage with `num_updates`. So the random initial values soon lose
  their weight: with a constant decay of 0.999 they would be a third of the average after 1,000
  steps.
  """

  def optimizer(self, optimizer: Any, muon_learning_rate: Any, update_ops: Any) -> Any:
    self._optimizer, self._update_ops = optimizer, update_ops
    return self

  def apply_gradients(self, gradients: GradientsAndVariables, global_step: Any) -> tf.Operation:
    """Returns the op that updates the variables and then the averages."""
    applied = self._optimizer.apply_gradients(gradients, global_step)
    with tf.control_dependencies([applied, *self._update_ops]):
      step = tf.cast(global_step.read_value(), tf.float32)
      decay = self._step.hparams.ema_decay
      part = tf.maximum(1 - decay, 9 / (10 + step))  # 1 - d, without rounding.
      # Runs once for all replicas of a strategy; also without a strategy.
      return tf.distribute.get_replica_context().merge_call(_move_all, args=(part,))


def _averaged_variables() -> list[Any]:
  """Returns the network's trained variables and batch norm's moving averages, but no counters."""
  moving = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.MODEL_VARIABLES)
  return [v for v in (*tf.compat.v1.trainable_variables(), *moving) if v.dtype.is_floating]


def _move_all(strategy: Any, part: Any) -> tf.Operation:
  """Updates every average; each replica's copy on its own device."""
  moved = []
  for variable in _averaged_variables():
    with tf.init_scope():  # Initial values must not depend on the update.
      average = companion(variable, EMA_SUFFIX)
    moved.append(strategy.extended.update(average, _move, args=(variable, part)))
  return tf.group(*moved)


def _move(average: Any, variable: Any, part: tf.Tensor) -> tf.Operation:
  """Moves the average towards the variable by a part of the distance."""
  with tf.compat.v1.device(average.device):  # With parameter servers only `part` travels.
    return average.assign_sub(part * (average - variable), read_value=False)


def scaffold() -> Any:
  """Returns a scaffold that restores averages in place of variables, for evaluation and export.

  A SavedModel of such a graph has the averages, too, because the same saver writes it.
  """
  averaged = {variable.op.name for variable in _averaged_variables()}
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
