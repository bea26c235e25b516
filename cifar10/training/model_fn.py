"""The Estimator's model function: towers, optimizer and metrics as EstimatorSpecs."""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

import model_base
from cifar10.callbacks.base import TrainingGraph
from cifar10.cluster import packing
from cifar10.cluster.placement import Placement
from cifar10.cluster.roles import Role
from cifar10.data import input_pipeline
from cifar10.data.info import DatasetInfo
from cifar10.inference.predictions import CLASSES, IMAGES, PROBABILITIES
from cifar10.job.checkpoints import Saver
from cifar10.networks import families
from cifar10.networks.fastnet import Prepared
from cifar10.options.hparams import HParams
from cifar10.training import (
  ema,
  evaluation,
  gpu_prefetch,
  hard_examples,
  lookahead,
  muon,
  network_builder,
  network_size,
  optimizers,
  schedules,
  step_parts,
  towers,
)
from cifar10.training.network_builder import Inferred, infer
from cifar10.training.step_parts import GroupOf, Shards, StepPart
from estimator_again import estimator as tf_estimator


class Training(NamedTuple):
  """The settings that only training needs."""

  role: Role  # this process's role: how gradients become an update
  examples_per_epoch: int  # of the training split; converts epochs to steps
  prepared: Prepared | None = None  # what `families.prepare` returned
  initializers: Mapping[str, Any] = {}  # of a new job's variables, in place of their layers'
  on_graph: Callable[[TrainingGraph], None] = lambda graph: None  # called with the step's graph


def get_model_fn(
  hparams: HParams,
  placement: Placement,
  data: DatasetInfo,
  training: Training | None = None,
  *,
  use_ema: bool = False,
) -> Callable[..., Any]:
  """Returns the Estimator's model function.

  Args:
    hparams: the network and its optimization.
    placement: the devices of towers and variables.
    data: the data set that the network classifies.
    training: required in the mode TRAIN.
    use_ema: whether to restore averages in place of variables, outside training.

  Returns:
    model_fn(features, labels, mode, config). In TRAIN and EVAL features and labels are tuples with
    a shard for each tower; EVAL takes one, and shares it. In PREDICT features is {'images': uint8
    [n, 32, 32, 3]}.
  """

  def with_weights(spec: Any) -> Any:
    if use_ema:
      return spec._replace(scaffold=ema.scaffold())
    return spec._replace(scaffold=tf.compat.v1.train.Scaffold(saver=Saver(allow_empty=True)))

  def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
    if mode == tf_estimator.ModeKeys.TRAIN:
      assert training
      if not tf.distribute.has_strategy():
        _add_saver(config)
      return _train_spec(hparams, placement, data, training, list(zip(features, labels)))
    network = network_builder.build(
      hparams, data, is_training=False, data_format=placement.data_format
    )
    if mode == tf_estimator.ModeKeys.PREDICT:
      logits = _inferred(hparams, placement, network, features[IMAGES]).logits
      predictions = {CLASSES: tf.argmax(logits, 1), PROBABILITIES: tf.nn.softmax(logits)}
      return with_weights(tf_estimator.EstimatorSpec(mode, predictions=predictions))
    return with_weights(_eval_spec(hparams, placement, network, data, (features[0], labels[0])))

  return model_fn


def _groups(hparams: HParams, *networks: model_base.Layers) -> GroupOf:
  """Returns a function from each variable of the built networks to its parameter group."""
  roles = collections.ChainMap(*(network.roles for network in networks))
  return lambda variable: hparams.family.group(roles[variable.op.name], hparams)


def _train_spec(
  hparams: HParams, placement: Placement, data: DatasetInfo, training: Training, shards: Shards
) -> Any:
  """Builds every tower, the mean of their gradients, and the update.

  Under a strategy of tf.distribute each replica calls this function and builds one tower.
  """
  role, prepared = training.role, training.prepared
  network = network_builder.build(
    hparams, data, is_training=True, data_format=placement.data_format, prepared=prepared
  )
  network.start_from(training.initializers)
  settings = network_builder.layer_settings(hparams, True, placement.data_format)
  # With random initial values and no frozen variables in any case.
  proxy = families.build_proxy(hparams.family, settings, data, prepared)
  group_of = _groups(hparams, network, *([proxy] if proxy else []))
  tower_devices, place_variable = _devices(placement, role)
  # A strategy has its own way to prefetch.
  prefetches = placement.prefetches_to_gpu and not tf.distribute.has_strategy()
  host = f'{role.cluster.job}/device:CPU:0' if role.cluster.num_ps else ''
  step = step_parts.Step(hparams, group_of, tower_devices, prefetches, host, proxy)
  if role.cluster.num_ps:
    shapes = network_size.trained_shapes(hparams, data)
    network.take_values(packing.pull(shapes, place_variable, host))
  added = _parts(step)
  for part in added:
    shards = part.shards(shards)
  built, update_ops = _build_towers(step, network, shards, place_variable, added)
  gradients = towers.average_gradients([tower.gradients for tower in built], step.mean_device)
  more_gradients = [pair for part in added for pair in part.gradients()]
  cross_entropy = tf.add_n([tower.cross_entropy for tower in built]) / len(built)
  loss = cross_entropy + built[0].weight_penalty
  rates = _learning_rates(hparams, role, training.examples_per_epoch)
  train_op, hooks = _update(
    step, role, rates, gradients + more_gradients, update_ops=update_ops, added=added
  )
  loss_parts = {'cross_entropy': cross_entropy, 'weight_penalty': built[0].weight_penalty}
  for part in added:
    train_op = part.train_op(train_op)
    hooks += part.hooks()
    loss_parts.update(part.loss_parts())
  # On all images that the towers learn from.
  correct = [evaluation.is_correct(tower.labels, tower.logits) for tower in built]
  accuracy = tf.reduce_mean(tf.concat(correct, 0))
  scalars = {'loss': loss, 'accuracy': accuracy, 'learning_rate': rates[0]}
  training.on_graph(TrainingGraph(*shards[0], scalars, loss_parts, gradients))
  return tf_estimator.EstimatorSpec(
    tf_estimator.ModeKeys.TRAIN,
    loss=loss / _num_replicas(),  # The Estimator sums it over the replicas.
    train_op=train_op,
    training_hooks=hooks,
    scaffold=role.scaffold(),
  )


def _parts(step: step_parts.Step) -> list[StepPart]:
  """Returns the parts that this step needs, in the order of the data."""
  needed: tuple[tuple[type[StepPart], Any], ...] = (
    (gpu_prefetch.Part, step.prefetches_to_gpu),
    (hard_examples.Part, step.proxy),
    (muon.Part, step.hparams.muon_learning_rate),
    (lookahead.Part, step.hparams.lookahead_steps),
    (ema.Part, step.hparams.ema_decay),
  )
  return [part(step) for part, is_needed in needed if is_needed]


def _devices(placement: Placement, role: Role) -> tuple[list[str], Callable[[tf.Operation], str]]:
  """Each tower's device, and where variables go."""
  if tf.distribute.has_strategy():  # It has put this replica's one tower on its device.
    return [''], lambda op: ''
  cluster = role.cluster
  place_variable = towers.variable_placement(
    placement.variable_strategy, placement.num_gpus, cluster.num_ps, cluster.job
  )
  return [cluster.job + device for device in placement.tower_devices], place_variable


def _build_towers(
  step: step_parts.Step,
  network: model_base.Layers,
  shards: Shards,
  place_variable: Callable[[tf.Operation], str],
  added: Sequence[StepPart],
) -> tuple[list[towers.Tower], list[tf.Operation]]:
  """Builds all towers over one set of variables; returns them and the moving averages' updates."""
  hparams = step.hparams
  built: list[towers.Tower] = []
  update_ops: list[tf.Operation] = []
  for index, (device, shard) in enumerate(zip(step.tower_devices, shards)):
    setter = towers.device_setter(device, place_variable)
    with (
      tf.compat.v1.name_scope(f'tower_{index}') as scope,
      tf.compat.v1.variable_scope(hparams.family.NAME, reuse=index > 0),
      tf.compat.v1.device(setter),
    ):
      images, labels = input_pipeline.normalise(shard[0], tf.as_dtype(hparams.dtype)), shard[1]
      for part in added:
        images, labels = part.examples(images, labels)
      built.append(
        towers.build_tower(images, labels, network, step.weight_decay, hparams.label_smoothing)
      )
      if index == 0:
        # Tower 0 only: else every tower would update the same moving averages at each step.
        update_ops = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, scope)
        if network.statistics:
          moving, batch = zip(*network.statistics)
          for mean, average in packing.push(batch, moving):
            update_ops.append(network.move_average(average, mean))
  return built, update_ops


def _learning_rates(hparams: HParams, role: Role, examples_per_epoch: int) -> tuple[Any, Any]:
  """Returns the rates of the optimizer and of Muon at this step, as scheduled or controlled."""
  examples_per_step = role.examples_per_step(hparams.train_batch_size)
  scheduled = (
    _scheduled(rate, hparams, examples_per_epoch, examples_per_step) if rate else 0.0
    for rate in (hparams.learning_rate, hparams.muon_learning_rate)
  )
  role.control.build()
  return role.control.rates(*scheduled)


def _scheduled(
  rate: float, hparams: HParams, examples_per_epoch: int, examples_per_step: int
) -> tf.Tensor:
  """Returns a learning rate times the schedule's factor at this step: float32 scalar."""
  global_step = tf.compat.v1.train.get_or_create_global_step()
  if hparams.lr_triangle:
    return rate * schedules.triangle(global_step, hparams.train_steps, *hparams.lr_triangle)
  boundaries = list(hparams.lr_boundaries_steps) or schedules.boundaries_in_steps(
    hparams.lr_boundaries_epochs, examples_per_epoch, examples_per_step
  )
  values = [rate * value for value in hparams.lr_values]
  return schedules.learning_rate(global_step, boundaries, values)


def _num_replicas() -> int:
  """Returns the number of replicas of a tf.distribute strategy; 1 without one."""
  return tf.distribute.get_strategy().num_replicas_in_sync


def _update(
  step: step_parts.Step,
  role: Role,
  rates: tuple[Any, Any],
  gradients: towers.GradientsAndVariables,
  *,
  update_ops: Sequence[tf.Operation],
  added: Sequence[StepPart],
) -> tuple[tf.Operation, list[Any]]:
  """Returns the op that updates variables and moving averages, and the hooks that it needs."""
  hparams = step.hparams
  global_step = tf.compat.v1.train.get_or_create_global_step()
  # Lookahead and --ema-decay average the moving averages, too, after their update. The chief of
  # synchronous training updates variables after a step, which includes them.
  is_over = role.updates_later or not role.updates_moving_averages
  before = () if is_over else update_ops
  optimizer = role.optimizer(optimizers.make_optimizer(hparams, rates, added, before))
  gradients = optimizers.in_groups(gradients, step.group_of)
  if _num_replicas() > 1:  # Strategies sum gradients, so divide to get the mean.
    gradients = [(gradient / _num_replicas(), variable) for gradient, variable in gradients]
  train_op = optimizer.apply_gradients(gradients, global_step)
  hooks = role.training_hooks(optimizer, hparams.train_steps)
  if role.updates_moving_averages:
    # Beside the update, not before it: a synchronous chief runs the update alone, between two
    # batches, and would have to compute another batch if the update waited for the averages.
    train_op = tf.group(train_op, *update_ops)
  return train_op, hooks


def _add_saver(config: Any) -> None:
  """Makes the chief write whole checkpoints.

  The Estimator's own saver has each parameter server write its part, to a folder that all of
  them would have to share.
  """
  saver = Saver(max_to_keep=config.keep_checkpoint_max, defer_build=True, save_relative_paths=True)
  tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SAVERS, saver)


def _eval_spec(
  hparams: HParams,
  placement: Placement,
  network: model_base.Layers,
  data: DatasetInfo,
  shard: tuple[tf.Tensor, tf.Tensor],
) -> Any:
  """All towers and the metrics."""
  images, labels = shard
  step = step_parts.Step(hparams, _groups(hparams, network))
  inferred = _inferred(hparams, placement, network, images)
  cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
    labels=labels, logits=inferred.logits
  )
  weight_penalty = towers.weight_penalty(network, step.weight_decay)
  plain_logits = None if hparams.tta == 'none' else inferred.own_logits
  metrics = evaluation.metrics(
    labels,
    inferred.logits,
    data.classes,
    plain_logits=plain_logits,
    cross_entropy=cross_entropy,
    weight_penalty=weight_penalty,
  )
  return tf_estimator.EstimatorSpec(
    tf_estimator.ModeKeys.EVAL,
    loss=tf.reduce_mean(cross_entropy) + weight_penalty,
    eval_metric_ops=metrics,
  )


def _inferred(
  hparams: HParams, placement: Placement, network: model_base.Layers, images: tf.Tensor
) -> Inferred:
  """Of uint8 images, of which each tower sees an equal part."""
  place_variable = towers.variable_placement(placement.variable_strategy, placement.num_gpus)
  count, num_towers = tf.shape(images)[0], len(placement.tower_devices)
  # Black ones fill the last part: an empty batch would fail.
  filled = tf.pad(images, [[0, -count % num_towers], [0, 0], [0, 0], [0, 0]])
  inferred: list[Inferred] = []
  for device, part in zip(placement.tower_devices, tf.split(filled, num_towers)):
    setter = towers.device_setter(device, place_variable)
    with (
      tf.compat.v1.variable_scope(hparams.family.NAME, reuse=bool(inferred)),
      tf.compat.v1.device(setter),
    ):
      inferred.append(infer(hparams, network, part))
  return Inferred(*(tf.concat(parts, 0)[:count] for parts in zip(*inferred)))
