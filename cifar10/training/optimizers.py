"""Turns gradients into updates: parameter groups, and the optimizers that options put together.

A group's learning rate is a factor of its gradients. Since SGD with momentum is linear in the
gradients, the update equals that of separate optimizers for each group. Muon, which normalises
gradients, takes it as a factor of its rate.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from cifar10.core.errors import InputError
from cifar10.core.user_code import called
from cifar10.job.checkpoints import EMA_SUFFIX, Saver
from cifar10.options import families
from cifar10.options.hparams import HParams
from cifar10.training.schedules import Rates
from cifar10.training.towers import Gradients

# The part of a slow variable that stays when Lookahead averages it with its fast one:
_DECAY = 0.95  # this, to the power of the steps between two averagings,
_POWER = 3  # times this power of the finished fraction of training.
# Muon's iterations make of a singular value s a polynomial, a s + b s^3 + c s^5.
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_NEWTON_SCHULZ_STEPS = 3
_MUON_MOMENTUM = 0.6  # The part of the accumulated gradient that stays at each step.
_TINY = 1e-7  # In place of a norm of 0.


class Optimizer(Protocol):
  """What makes an update of gradients, as TensorFlow's optimizers do."""

  def apply_gradients(self, gradients: Gradients, global_step: tf.Variable) -> tf.Operation:
    """Returns the op that updates the variables and counts one step."""


@dataclasses.dataclass
class Groups:
  """The parameter groups of variables, by their roles in the network."""

  hparams: HParams
  roles: Mapping[str, str]  # By operation name; filled while the towers are built.

  def of(self, variable: tf.Variable) -> families.Group:
    with families.own_code(self.hparams.family):
      return self.hparams.family.group(self.roles[variable.op.name], self.hparams)

  def weight_decay(self, variable: tf.Variable) -> float:
    """Returns a variable's L2 coefficient: 0 if Muon fixes its norm."""
    group = self.of(variable)
    return 0.0 if group.uses_muon else self.hparams.weight_decay / group.learning_rate_factor

  def scaled(self, gradients: Gradients) -> Gradients:
    """Returns gradients times their groups' factors, or 0 for groups that learn no longer."""
    made: Gradients = []
    for gradient, variable in gradients:
      group, scaled = self.of(variable), gradient
      with tf.device(gradient.device):  # So that it does not travel to be scaled.
        if group.learning_rate_factor != 1:
          scaled = gradient * group.learning_rate_factor
        if group.learns_until:  # The weight decay stops, too.
          learns = tf.compat.v1.train.get_or_create_global_step() < group.learns_until
          scaled = tf.where(learns, scaled, tf.zeros_like(scaled))
      made.append((scaled, variable))
    return made


def make_optimizer(
  hparams: HParams, rates: Rates, groups: Groups, update_ops: Sequence[tf.Operation] = ()
) -> Optimizer:
  """Returns --optimizer, or SGD with momentum, at this step's rates, in what options put around it.

  The groups tell which variables Muon updates; `update_ops` are updates of batch norm's moving
  averages, after which these are averaged, too.
  """
  optimizer: Optimizer
  if hparams.optimizer:
    optimizer = own_optimizer(hparams.optimizer, rates.sgd)
  else:
    optimizer = tf.compat.v1.train.MomentumOptimizer(
      rates.sgd, hparams.momentum, use_nesterov=hparams.nesterov
    )
  if hparams.muon_learning_rate:
    optimizer = MuonAndSgd(optimizer, rates.muon, groups)
  if hparams.lookahead_steps:
    optimizer = Lookahead(optimizer, hparams.lookahead_steps, hparams.train_steps, update_ops)
  if hparams.ema_decay:
    optimizer = MovingAverage(optimizer, hparams.ema_decay, update_ops)
  return optimizer


def own_optimizer(name: str, rate: tf.Tensor) -> Optimizer:
  """Returns what --optimizer NAME makes of a rate, a float32 scalar; InputError if it fails."""
  made = called('--optimizer', name)(rate)
  if not isinstance(made, tf.compat.v1.train.Optimizer):
    raise InputError(
      f'--optimizer {name} returns a {type(made).__name__}; it must return a '
      'tf.compat.v1.train.Optimizer, as tf.compat.v1.train.AdamOptimizer(rate)'
    )
  made.apply_gradients = called('--optimizer', name, made.apply_gradients)
  return made


@dataclasses.dataclass
class MuonAndSgd:
  """Orthogonalised momentum for kernels of Muon's groups, another optimizer for all others.

  Jordan et al. 2024, 'Muon: An optimizer for hidden layers in neural networks', as in airbench94:
  at every step the kernel, as a matrix with a column for each output channel, is scaled to the norm
  sqrt(outputs) and moved by the learning rate times the orthogonal matrix nearest to its Nesterov
  momentum. It suits kernels before a normalisation, which makes their norm irrelevant.
  """

  sgd: Optimizer
  learning_rate: tf.Tensor | float  # Muon's.
  groups: Groups

  def apply_gradients(self, gradients: Gradients, global_step: tf.Variable) -> tf.Operation:
    moved: list[tf.Operation] = []
    others: Gradients = []
    for gradient, variable in gradients:
      if (group := self.groups.of(variable)).uses_muon:
        moved.append(self._move(variable, gradient, group.learning_rate_factor))
      else:
        others.append((gradient, variable))
    with tf.control_dependencies(moved):
      if others:
        return self.sgd.apply_gradients(others, global_step)
      return global_step.assign_add(1, read_value=False)  # With --freeze there may be none.

  def _move(self, kernel: tf.Variable, gradient: tf.Tensor, factor: float) -> tf.Operation:
    momentum = _companion(kernel, '/Muon', tf.zeros_like)
    with tf.compat.v1.device(kernel.device):
      accumulated = momentum.assign(_MUON_MOMENTUM * momentum + gradient)
      direction = orthogonalised(gradient + _MUON_MOMENTUM * accumulated, self.groups.hparams.dtype)
      # It may begin with zeros.
      unit = kernel * (kernel.shape[-1] ** 0.5 / tf.maximum(tf.norm(kernel), _TINY))
      # No update for gradient 0: orthogonalised momentum would move the kernel as far as ever.
      has_gradient = tf.reduce_any(tf.not_equal(gradient, 0))
      moved = tf.where(has_gradient, unit - factor * self.learning_rate * direction, kernel)
      return kernel.assign(moved, read_value=False)


def orthogonalised(kernel: tf.Tensor, dtype: str = 'float32') -> tf.Tensor:
  """Returns nearly the orthogonal matrix nearest to a kernel, by three Newton-Schulz iterations.

  The kernel, [height, width, in, out], is taken as the matrix [height * width * in, out]; `dtype`
  is that of the products, the result float32. Its singular values are about 1 (0.7 to 1.2 suffices
  for Muon), but those that were small stay smaller.
  """
  x = tf.reshape(kernel, [-1, kernel.shape[-1]])
  x = tf.cast(x / (tf.norm(x) + _TINY), dtype)
  a, b, c = _NEWTON_SCHULZ
  is_wide = x.shape[0] < x.shape[1]
  if is_wide:
    x = tf.transpose(x)
  for _ in range(_NEWTON_SCHULZ_STEPS):
    square = tf.matmul(x, x, transpose_a=True)  # The smaller one of the two products.
    x = a * x + tf.matmul(x, b * square + c * tf.matmul(square, square))
  if is_wide:
    x = tf.transpose(x)
  return tf.cast(tf.reshape(x, kernel.shape), tf.float32)


@dataclasses.dataclass
class Lookahead:
  """Averages another optimizer's variables into slow ones, and goes on from the average.

  Zhang et al. 2019, 'Lookahead Optimizer' (arXiv 1907.08610), in airbench's form: after every
  `steps` steps slow = decay * slow + (1 - decay) * fast, and fast = slow, with decay
  0.95^steps (t / last_step)^3; after the last step fast = slow, unless there are fewer than
  `steps`. A training that ends early ends with its fast variables. Includes moving averages.
  """

  optimizer: Optimizer
  steps: int
  last_step: int
  after: Sequence[tf.Operation] = ()  # Updates of the moving averages, which precede theirs.

  def apply_gradients(self, gradients: Gradients, global_step: tf.Variable) -> tf.Operation:
    fast = [variable for _, variable in gradients] + _moving_averages()
    slow = [_companion(variable, '/slow') for variable in fast]
    applied = self.optimizer.apply_gradients(gradients, global_step)
    with tf.control_dependencies([applied, *self.after]):
      step = global_step.read_value()
    is_due = tf.equal(step % self.steps, 0)
    progress = tf.cast(step, tf.float32) / self.last_step
    decay = _DECAY**self.steps * progress**_POWER
    decay = tf.where(is_due, decay, 1.0)  # The last step may not be due.

    def average() -> tf.Operation:
      averaged = []
      for quick, lasting in zip(fast, slow):
        mean = lasting + (1 - decay) * (quick - lasting)  # So that what is frozen stays the same.
        averaged += [variable.assign(mean, read_value=False) for variable in (quick, lasting)]
      return tf.group(*averaged)

    # Before the first averaging the slow variables have their initial values.
    ends = (step >= self.last_step) & (self.last_step >= self.steps)
    return tf.cond(is_due | ends, average, tf.no_op).op


def _moving_averages() -> list[tf.Variable]:
  """Returns batch norm's moving averages in this graph, and what else has no gradient."""
  kept = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.MODEL_VARIABLES)
  return [variable for variable in kept if variable.dtype.is_floating]  # No counters.


def averaged_variables() -> list[tf.Variable]:
  """Returns what --ema-decay averages: trained variables and batch norm's moving averages.

  The latter as in TensorFlow's EfficientNet (tensorflow/tpu, `get_ema_vars` in utils.py).
  """
  return [*tf.compat.v1.trainable_variables(), *_moving_averages()]


def averages_saver() -> Saver:
  """Returns a saver that restores averages in place of their variables, for --use-ema."""
  averaged = {variable.op.name for variable in averaged_variables()}
  names = {each.op.name: each for each in tf.compat.v1.global_variables()}
  return Saver({name + EMA_SUFFIX if name in averaged else name: v for name, v in names.items()})


def has_averages(checkpoint: str) -> bool:
  """Tells whether a checkpoint has moving averages of the weights."""
  return any(name.endswith(EMA_SUFFIX) for name, _ in tf.train.list_variables(checkpoint))


@dataclasses.dataclass
class MovingAverage:
  """Follows another optimizer's updates with an update of the variables' moving averages.

  After update t: average = d * average + (1 - d) * variable, d = min(decay, (1 + t) / (10 + t)), as
  in tf.train.ExponentialMovingAverage with `num_updates`. So the random initial values soon lose
  their weight. TensorFlow's class is not used: with parameter servers it computes on the worker, so
  that every variable and its average travel there at every step.
  """

  optimizer: Optimizer
  decay: float
  after: Sequence[tf.Operation] = ()  # Updates of batch norm's averages, which are averaged, too.

  def apply_gradients(self, gradients: Gradients, global_step: tf.Variable) -> tf.Operation:
    applied = self.optimizer.apply_gradients(gradients, global_step)
    with tf.control_dependencies([applied, *self.after]):
      step = tf.cast(global_step.read_value(), tf.float32)
      part = tf.maximum(1 - self.decay, 9 / (10 + step))  # 1 - d, without rounding.
      moved = []
      for variable in averaged_variables():
        average = _companion(variable, EMA_SUFFIX)
        with tf.compat.v1.device(average.device):  # With parameter servers only `part` travels.
          moved.append(average.assign_sub(part * (average - variable), read_value=False))
      return tf.group(*moved)


def _companion(
  variable: tf.Variable, suffix: str, initial: Callable[[tf.Tensor], tf.Tensor] = tf.identity
) -> tf.Variable:
  """Returns a variable named as another with a suffix, which begins with `initial` of its value."""
  with tf.init_scope(), tf.compat.v1.device(variable.device):  # It depends on no update.
    return tf.compat.v1.get_variable(
      variable.op.name + suffix,
      initializer=initial(variable.initial_value),
      trainable=False,
      use_resource=True,
    )
