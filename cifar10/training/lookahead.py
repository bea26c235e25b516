"""The Lookahead optimizer: slow copies of the variables, for --lookahead-steps."""

from typing import Any

import tensorflow as tf

from cifar10.training.step_parts import StepPart, companion
from cifar10.training.towers import GradientsAndVariables

# The part of a slow variable that stays when it is averaged with its fast one:
_DECAY = 0.95  # this, to the power of the steps between two averagings,
_POWER = 3  # times this power of the finished fraction of training.


class Part(StepPart):
  """Is an optimizer that averages another's variables into slow ones, and goes on from the average.

  Zhang et al. 2019, 'Lookahead Optimizer' (arXiv 1907.08610), in airbench's form: after every
  `steps` steps slow = decay * slow + (1 - decay) * fast, and fast = slow, with decay
  0.95^steps (t / last_step)^3; after the last step fast = slow, unless there are fewer than
  `steps`. A training that ends early ends with its fast variables. Includes moving averages.
  """

  def optimizer(self, optimizer: Any, muon_learning_rate: Any, update_ops: Any) -> Any:
    self._optimizer, self._update_ops = optimizer, update_ops
    return self

  def apply_gradients(self, gradients: GradientsAndVariables, global_step: Any) -> tf.Operation:
    """Returns the op that updates the variables, and every few steps averages them."""
    steps, last_step = self._step.hparams.lookahead_steps, self._step.hparams.train_steps
    pairs = list(gradients)
    moving = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.MODEL_VARIABLES)
    fast = [variable for _, variable in pairs] + [v for v in moving if v.dtype.is_floating]
    slow = [companion(variable, '/slow') for variable in fast]
    applied = self._optimizer.apply_gradients(pairs, global_step)
    with tf.control_dependencies([applied, *self._update_ops]):
      step = global_step.read_value()
    is_due = tf.equal(step % steps, 0)
    progress = tf.cast(step, tf.float32) / last_step
    decay = _DECAY**steps * progress**_POWER
    decay = tf.where(is_due, decay, 1.0)  # The last step may not be due.

    def average() -> tf.Tensor:
      averaged = []
      for quick, lasting in zip(fast, slow):
        mean = lasting + (1 - decay) * (quick - lasting)  # So that what is frozen stays the same.
        with tf.control_dependencies([mean]):
          averaged += [variable.assign(mean, read_value=False) for variable in (quick, lasting)]
      with tf.control_dependencies(averaged):
        return tf.constant(True)

    # Before the first averaging the slow variables have their initial values.
    ends = (step >= last_step) & (last_step >= steps)
    return tf.cond(is_due | ends, average, lambda: tf.constant(False)).op
