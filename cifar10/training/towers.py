"""Towers: placement of towers and variables, each tower's loss and gradients, and their mean.

A tower is one device's copy of the network, which works on its shard of the batch. All towers
share one set of variables. One CPU is the one-tower case of the same code.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

import tensorflow as tf

import model_base
from cifar10.cluster.tf_config import Cluster
from cifar10.core.errors import InputError
from cifar10.job.run import Placement

Gradients = list[tuple[tf.Tensor, tf.Variable]]
Shards = Sequence[tuple[tf.Tensor, tf.Tensor]]  # Images and labels of each tower.


class Tower(NamedTuple):
  """The tensors of one tower for n images: its shard, or the part that a proxy has chosen."""

  labels: tf.Tensor  # int32 [n], or probabilities float32 [n, classes]
  logits: tf.Tensor  # float32 [n, classes]
  cross_entropy: tf.Tensor  # float32 scalar, mean over the images
  weight_penalty: tf.Tensor  # float32 scalar, the same in every tower
  gradients: Gradients  # of the sum of the two
  update_ops: Sequence[tf.Operation] = ()  # of moving averages, its own proxy's among them


class GreedyBySize:
  """Puts each new variable on the first of the devices that hold the fewest bytes."""

  def __init__(self, num_devices: int):
    self._held = [0] * num_devices  # Bytes.
    self._chosen: dict[str, int] = {}

  def __call__(self, op: tf.Operation) -> int:
    """Returns the number of the device of the variable that `op` creates, or is a handle of."""
    name = tf.compat.as_str(op.get_attr('shared_name')) or op.name
    if name not in self._chosen:
      device = self._held.index(min(self._held))
      shape = tf.TensorShape(op.get_attr('shape'))
      self._held[device] += shape.num_elements() * op.get_attr('dtype').size
      self._chosen[name] = device
    return self._chosen[name]


def local_device_setter(
  num_devices: int = 1,
  ps_device_type: str = 'cpu',
  worker_device: str = '/cpu:0',
  ps_ops: Collection[str] | None = None,
  ps_strategy: Callable[[tf.Operation], int] | None = None,
  *,
  ps_device: str | None = None,
) -> Callable[[tf.Operation], str]:
  """Returns a device function that spreads variables and puts all other ops on one device.

  Args:
    num_devices: how many devices hold variables.
    ps_device_type: their type, 'cpu' or 'gpu'.
    worker_device: of all other ops.
    ps_ops: the types of ops that make variables; None: TensorFlow's.
    ps_strategy: op -> number of the device; None: `GreedyBySize`.
    ps_device: the devices' names, in place of the type: '/job:ps/task:{}/cpu:0'.
  """
  kinds = ('VarHandleOp', 'VariableV2', 'Variable') if ps_ops is None else ps_ops
  strategy = ps_strategy or GreedyBySize(num_devices)
  holder = ps_device or f'/{ps_device_type}:{{}}'
  worker = tf.DeviceSpec.from_string(worker_device).to_string()

  def choose(op: tf.Operation) -> str:
    if op.device:  # Placed on purpose, such as the moving averages' updates.
      return op.device
    if op.type not in kinds:
      return worker
    return tf.DeviceSpec.from_string(holder.format(strategy(op))).to_string()

  return choose


def device_setters(placement: Placement, cluster: Cluster) -> list[Callable[[tf.Operation], str]]:
  """Returns each tower's device function; they share where the variables go.

  That is to parameter servers if there are any, else to this host's CPU or GPUs.
  """
  count, holders = 1, f'{cluster.job}/cpu:{{}}'
  if cluster.num_ps:
    count, holders = cluster.num_ps, '/job:ps/task:{}/cpu:0'
  elif placement.variable_strategy == 'GPU':
    count, holders = placement.num_gpus, f'{cluster.job}/gpu:{{}}'
  setter = partial(local_device_setter, ps_strategy=GreedyBySize(count), ps_device=holders)
  return [setter(worker_device=cluster.job + device) for device in placement.tower_devices]


def build_tower(
  images: tf.Tensor,
  labels: tf.Tensor,
  network: model_base.Layers,
  weight_decay: Callable[[tf.Variable], float],
  label_smoothing: float = 0.0,
) -> Tower:
  """Builds one tower for n normalised images, [n, 32, 32, 3]; labels as in `cross_entropies`.

  The network's `forward_pass` makes the variables or reuses them; `weight_decay` tells a variable's
  coefficient in the penalty; `label_smoothing` is that of `cross_entropies`.
  """
  logits = network.forward_pass(images)
  cross_entropy = tf.reduce_mean(cross_entropies(labels, logits, label_smoothing))
  variables = trained_variables(network)
  penalty = weight_penalty(network, weight_decay)
  gradients = tf.gradients(cross_entropy + penalty, variables)
  scope = tf.compat.v1.get_default_graph().get_name_scope()
  update_ops = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, scope)
  return Tower(labels, logits, cross_entropy, penalty, list(zip(gradients, variables)), update_ops)


def warmed_up(decay: float, step: tf.Tensor) -> tf.Tensor:
  """Returns the decay of batch norm's moving averages after `step` updates, an int64 scalar.

  It rises: min(decay, (1 + step) / (10 + step)), as that of `optimizers.MovingAverage`, so that the
  initial 0 and 1 soon lose their weight.
  """
  return 1 - tf.maximum(1 - decay, 9 / (10 + tf.cast(step, tf.float32)))


def trained_variables(network: model_base.Layers) -> list[tf.Variable]:
  """Returns the network's trained variables in creation order; call it after `forward_pass`."""
  trainable = tf.compat.v1.trainable_variables()
  return [variable for variable in trainable if variable.op.name in network.values]


def weight_penalty(
  network: model_base.Layers, weight_decay: Callable[[tf.Variable], float]
) -> tf.Tensor:
  """Returns the L2 penalty: each trained variable's coefficient times half its sum of squares."""
  groups: dict[float, list[tf.Tensor]] = {}
  for variable in trained_variables(network):
    loss = tf.nn.l2_loss(network.values[variable.op.name])
    groups.setdefault(weight_decay(variable), []).append(loss)
  return tf.add_n([decay * tf.add_n(losses) for decay, losses in groups.items()])


def cross_entropies(labels: tf.Tensor, logits: tf.Tensor, label_smoothing: float) -> tf.Tensor:
  """Returns each image's cross-entropy, float32 [n], from labels and logits float32 [n, classes].

  Labels are int32 [n], or probabilities, float32 [n, classes]; InputError: of another width.
  `label_smoothing` is the part of the target that is spread evenly over the classes (Szegedy et al.
  2016, arXiv 1512.00567, section 7).
  """
  num_classes = logits.shape[1]
  rest = label_smoothing / num_classes
  if labels.dtype.is_floating:
    if labels.shape[1] != num_classes:  # An unknown one might be 1, which TensorFlow repeats.
      raise InputError(f'--augmentation gives labels {labels.shape}; make them [n, {num_classes}]')
    targets = labels * (1 - label_smoothing) + rest
  elif label_smoothing:
    targets = tf.one_hot(labels, num_classes, 1 - label_smoothing + rest, rest)
  else:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
  return tf.nn.softmax_cross_entropy_with_logits(labels=targets, logits=logits)


def average_gradients(tower_gradients: Sequence[Gradients], device: str = '') -> Gradients:
  """Returns each gradient's mean over the towers, with its variable, in the first tower's order.

  The towers' orders may differ. The `device` computes the means, or with '' each variable's own.
  Raises ValueError, which names them, for variables that not all towers have, or that have no
  gradient.
  """
  by_name = [{v.name: g for g, v in pairs} for pairs in tower_gradients]
  names = set(by_name[0])
  for tower, gradients in enumerate(by_name):
    if set(gradients) != names:
      differing = ', '.join(sorted(names ^ set(gradients)))
      raise ValueError(f'tower {tower} and tower 0 do not share these variables: {differing}')
    missing = ', '.join(sorted(name for name, gradient in gradients.items() if gradient is None))
    if missing:
      raise ValueError(f'tower {tower} has no gradient for: {missing}')
  averaged = []
  for _, variable in tower_gradients[0]:
    with tf.compat.v1.device(device or variable.device):
      total = tf.add_n([gradients[variable.name] for gradients in by_name])
      averaged.append((total / len(by_name), variable))
  return averaged


class Staged(tf.compat.v1.train.SessionRunHook):
  """Keeps one batch ahead on the towers' devices, in the same order.

  By default TensorFlow copies a batch when its step begins, and a GPU waits. Here each step takes
  the batch that the step before has put on its tower's device, and meanwhile puts the next one
  there by `put`, like tensorpack's StagingInput. A step reads `shards` in place of those given. As
  a hook it puts the first ones there.
  """

  def __init__(self, shards: Shards, devices: Sequence[str]):
    puts, clears = [], []
    self.shards: list[tuple[tf.Tensor, tf.Tensor]] = []
    for index, (device, shard) in enumerate(zip(devices, shards)):
      area, dtypes = f'batches_of_tower_{index}', [part.dtype for part in shard]
      with tf.compat.v1.device(device), tf.name_scope(f'staging_{index}'):
        puts.append(tf.raw_ops.Stage(values=list(shard), shared_name=area))
        clears.append(tf.raw_ops.StageClear(dtypes=dtypes, shared_name=area))
        images, labels = tf.raw_ops.Unstage(dtypes=dtypes, shared_name=area)
      images.set_shape(shard[0].shape)
      labels.set_shape(shard[1].shape)
      self.shards.append((images, labels))
    self.put, self._clear = tf.group(*puts), tf.group(*clears)

  def after_create_session(
    self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
  ) -> None:
    # Clears what an earlier session of this process left: a worker that lost a parameter server
    # creates another session.
    session.run(self._clear)
    session.run(self.put)
