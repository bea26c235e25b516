"""The Estimator's model function: towers, optimizer and metrics as EstimatorSpecs."""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

import model_base
from cifar10.callbacks.base import TrainingGraph
from cifar10.cluster.placement import Placement
from cifar10.cluster.roles import Role
from cifar10.data import input_pipeline
from cifar10.data.info import DatasetInfo
from cifar10.inference.predictions import CLASSES, IMAGES, PROBABILITIES
from cifar10.job.checkpoints import Saver
from cifar10.networks import families
from cifar10.networks.fastnet import Prepared
from cifar10.options.hparams import HParams
from cifar10.training import ema, evaluation, network_builder, towers
from cifar10.training.gpu_prefetch import staged
from cifar10.training.hard_examples import HardExamples
from cifar10.training.network_builder import Inferred, infer
from cifar10.training.optimizers import Groups, make_optimizer
from cifar10.training.schedules import Rates, learning_rates
from cifar10.training.towers import GradientsAndVariables, Shards, Tower
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


def _train_spec(
  hparams: HParams, placement: Placement, data: DatasetInfo, training: Training, shards: Shards
) -> Any:
  """shards -> towers -> mean gradients -> update."""
  role = training.role
  network, hard_examples, groups = _networks(hparams, placement, data, training.prepared)
  devices, place_variable = _devices(placement, role)
  hooks, puts = [], []
  if placement.prefetches_to_gpu:
    shards, put, hook = staged(shards, devices)
    puts.append(put)
    hooks.append(hook)

  built: list[Tower] = []
  for index, (device, shard) in enumerate(zip(devices, shards)):
    with (
      tf.compat.v1.name_scope(f'tower_{index}') as scope,
      tf.compat.v1.variable_scope(
        hparams.family.NAME, reuse=index > 0, custom_getter=_starting_from(training.initializers)
      ),
      tf.compat.v1.device(towers.device_setter(device, place_variable)),
    ):
      images, labels = input_pipeline.normalise(shard[0], tf.as_dtype(hparams.dtype)), shard[1]
      if hard_examples:
        images, labels = hard_examples.harder_half(images, labels)
      built.append(
        towers.build_tower(images, labels, network, groups.weight_decay, hparams.label_smoothing)
      )
      if index == 0:  # Else every tower would update the same moving averages at each step.
        update_ops = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, scope)

  # On this worker, from where they travel to the parameter servers together.
  host = f'{role.cluster.job}/device:CPU:0' if role.cluster.num_ps else ''
  gradients = towers.average_gradients([tower.gradients for tower in built], host)
  all_gradients = gradients + (hard_examples.gradients(host) if hard_examples else [])
  rates = _learning_rates(hparams, role, training.examples_per_epoch)
  train_op, more_hooks = _update(
    hparams, role, rates, groups, gradients=all_gradients, update_ops=update_ops
  )

  cross_entropy = tf.add_n([tower.cross_entropy for tower in built]) / len(built)
  loss = cross_entropy + built[0].weight_penalty
  loss_parts = {'cross_entropy': cross_entropy, 'weight_penalty': built[0].weight_penalty}
  if hard_examples:
    loss_parts['proxy_cross_entropy'] = hard_examples.cross_entropy()
  # On all images that the towers learn from.
  correct = [evaluation.is_correct(tower.labels, tower.logits) for tower in built]
  accuracy = tf.reduce_mean(tf.concat(correct, 0))
  scalars = {'loss': loss, 'accuracy': accuracy, 'learning_rate': rates.sgd}
  training.on_graph(TrainingGraph(*shards[0], scalars, loss_parts, gradients))
  return tf_estimator.EstimatorSpec(
    tf_estimator.ModeKeys.TRAIN,
    loss=loss,
    train_op=tf.group(train_op, *puts),
    training_hooks=hooks + more_hooks,
    scaffold=role.scaffold(),
  )


def _networks(
  hparams: HParams, placement: Placement, data: DatasetInfo, prepared: Prepared | None
) -> tuple[model_base.Layers, HardExamples | None, Groups]:
  """Returns the network to train, the proxy that picks its examples, and both one's groups."""
  settings = network_builder.layer_settings(hparams, True, placement.data_format)
  network = families.build(hparams.family, settings, data, prepared)
  network.freeze(hparams.freeze)
  # Nothing of it is frozen in any case.
  proxy = families.build_proxy(hparams.family, settings, data, prepared)
  if not proxy:
    return network, None, Groups(hparams, network.roles)
  groups = Groups(hparams, collections.ChainMap(network.roles, proxy.roles))
  return network, HardExamples(proxy, groups.weight_decay, hparams.label_smoothing), groups


def _devices(placement: Placement, role: Role) -> tuple[list[str], Callable[[tf.Operation], str]]:
  """Each tower's device, and where variables go."""
  cluster = role.cluster
  place_variable = towers.variable_placement(
    placement.variable_strategy, placement.num_gpus, cluster.num_ps, cluster.job
  )
  return [cluster.job + device for device in placement.tower_devices], place_variable


def _starting_from(initializers: Mapping[str, Any]) -> Callable[..., tf.Variable]:
  """Returns a getter of variables that begin with these in place of their layers' initializers."""

  def get_variable(getter: Callable[..., tf.Variable], name: str, **given: Any) -> tf.Variable:
    if name in initializers:
      given['initializer'] = initializers[name]
    return getter(name, **given)

  return get_variable


def _learning_rates(hparams: HParams, role: Role, examples_per_epoch: int) -> Rates:
  """Returns the rates at this step, as scheduled or as `control` has set them."""
  global_step = tf.compat.v1.train.get_or_create_global_step()
  examples_per_step = role.examples_per_step(hparams.train_batch_size)
  scheduled = learning_rates(hparams, global_step, examples_per_epoch, examples_per_step)
  role.control.build()
  return Rates(*role.control.rates(*scheduled))


def _update(
  hparams: HParams,
  role: Role,
  rates: Rates,
  groups: Groups,
  *,
  gradients: GradientsAndVariables,
  update_ops: Sequence[tf.Operation],
) -> tuple[tf.Operation, list[Any]]:
  """Returns the op that updates variables and moving averages, and the hooks that it needs."""
  # Lookahead and --ema-decay average the moving averages, too, after their update. The chief of
  # synchronous training updates variables after a step, which includes them.
  is_over = role.updates_later or not role.updates_moving_averages
  before = () if is_over else update_ops
  optimizer = role.optimizer(make_optimizer(hparams, rates, groups, before))
  global_step = tf.compat.v1.train.get_or_create_global_step()
  train_op = optimizer.apply_gradients(groups.scaled(gradients), global_step)
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
  inferred = _inferred(hparams, placement, network, images)
  cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
    labels=labels, logits=inferred.logits
  )
  weight_penalty = towers.weight_penalty(network, Groups(hparams, network.roles).weight_decay)
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
