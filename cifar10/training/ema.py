"""An exponential moving average of a network's variables: kept in training, used in their place.

Polyak and Juditsky 1992, 'Acceleration of Stochastic Approximation by Averaging', with weights that
fall exponentially. As in TensorFlow's EfficientNet (tensorflow/tpu, models/official/efficientnet,
`get_ema_vars` in utils.py, main.py): batch norm's moving averages are averaged with the trainable
variables, the decay starts low, and evaluations restore an average in place of its variable.

`tf.train.ExponentialMovingAverage` itself is not used: for parameter servers it computes on the
worker, to which every variable and its average would travel at every step, and under a strategy of
tf.distribute it reduces each variable over the replicas, whose copies are equal anyway.
"""

from typing import Any

import tensorflow as tf

from cifar10.core.errors import InputError
from cifar10.job.checkpoints import EMA_SUFFIX
from cifar10.training.step_parts import StepPart
from cifar10.training.towers import GradientsAndVariables


class Part(StepPart):
  """Puts it into a training step."""

  def optimizer(self, optimizer: Any, muon_learning_rate: Any, update_ops: Any) -> Any:
    return EmaOptimizer(optimizer, self._step.hparams.ema_decay, update_ops)


class EmaOptimizer:
  """An optimizer after whose updates the averages follow the variables.

  After update t: average = d * average + (1 - d) * variable, d = min(decay, (1 + t) / (10 + t)), as
  tf.train.ExponentialMovingAverage has it with `num_updates`. So the random initial values are soon
  forgotten: with a decay of 0.999 throughout they would be a third of the average after 1,000
  steps.
  """

  def __init__(self, optimizer: Any, decay: float, update_ops: Any = ()):
    """Args:
    optimizer: makes the updates.
    decay: what an average keeps of itself a step, at most.
    update_ops: change batch norm's moving averages, and come first.
    """
    self._optimizer = optimizer
    self._decay = decay
    self._update_ops = tuple(update_ops)

  def apply_gradients(self, gradients: GradientsAndVariables, global_step: Any) -> tf.Operation:
    """The op that updates the variables, and then the averages."""
    applied = self._optimizer.apply_gradients(gradients, global_step)
    with tf.control_dependencies([applied, *self._update_ops]):
      step = tf.cast(global_step.read_value(), tf.float32)
      part = tf.maximum(1 - self._decay, 9 / (10 + step))  # 1 - d, without its rounding.
      # Once for all replicas of a strategy; without one, too.
      return tf.distribute.get_replica_context().merge_call(_move_all, args=(part,))


def _averaged_variables() -> list[Any]:
  """All of the network's: those that are trained, and batch norm's moving averages."""
  moving = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.MODEL_VARIABLES)
  return [*tf.compat.v1.trainable_variables(), *moving]


def _move_all(strategy: Any, part: Any) -> tf.Operation:
  """Moves every average, each replica's copy on its device."""
  moved = []
  for variable in _averaged_variables():
    with tf.init_scope():  # What it starts as does not wait for the update.
      average = _average(variable)
    moved.append(strategy.extended.update(average, _move, args=(variable, part)))
  return tf.group(*moved)


def _average(variable: Any) -> Any:
  """The variable's average, which starts as the variable does."""
  with tf.compat.v1.device(variable.device):
    return tf.compat.v1.get_variable(
      variable.op.name + EMA_SUFFIX,
      initializer=variable.initial_value,
      trainable=False,
      use_resource=True,
    )


def _move(average: Any, variable: Any, part: tf.Tensor) -> tf.Operation:
  """Moves the average by a part of the way to the variable."""
  with tf.compat.v1.device(average.device):  # On parameter servers only `part` travels.
    return average.assign_sub(part * (average - variable), read_value=False)


def scaffold() -> Any:
  """Restores each average in place of its variable: for a graph that evaluates, predicts, exports.

  A SavedModel of that graph has the averages, too: it is saved by the same saver.
  """
  averaged = {variable.op.name for variable in _averaged_variables()}
  stored = {
    name + EMA_SUFFIX if name in averaged else name: variable
    for name, variable in ((each.op.name, each) for each in tf.compat.v1.global_variables())
  }
  return tf.compat.v1.train.Scaffold(saver=tf.compat.v1.train.Saver(stored))


def _is_in(checkpoint: str) -> bool:
  """Whether a checkpoint has moving averages of the weights."""
  reader = tf.compat.v1.train.NewCheckpointReader(checkpoint)
  return any(name.endswith(EMA_SUFFIX) for name in reader.get_variable_to_shape_map())


def check_are_in(checkpoint: str) -> None:
  """Raises InputError for a checkpoint in which no average of the weights is."""
  if not _is_in(checkpoint):
    raise InputError(
      f'checkpoint {checkpoint} has no average of the weights: its job was trained without '
      '--ema-decay; leave --use-ema out'
    )


def check_resumes(job_dir: str, checkpoint: str | None, ema_decay: float) -> None:
  """Raises InputError for averages in a job older than the option, whose config.json lacks it."""
  if checkpoint and not _is_in(checkpoint):
    raise InputError(
      f'--ema-decay {ema_decay} and --job-dir {job_dir} was trained without; leave it out or name '
      'another folder'
    )
