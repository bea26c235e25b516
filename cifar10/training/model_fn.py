"""Towers, optimizer and metrics -> one EstimatorSpec for each mode."""

import collections
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

import model_base
from cifar10.callbacks import progress, shell, summaries
from cifar10.callbacks.meter import MeterHook
from cifar10.cluster import sync
from cifar10.cluster.control_state import SharedControl
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.cluster.tf_config import Cluster
from cifar10.core.estimator import tf_estimator
from cifar10.data import input_pipeline
from cifar10.data.info import DatasetInfo
from cifar10.inference.predictions import CLASSES, IMAGES, PROBABILITIES
from cifar10.networks.family import Group
from cifar10.options.hparams import HParams
from cifar10.training import (
  control_hooks,
  ema,
  evaluation_result,
  gpu_prefetch,
  hard_examples,
  network_builder,
  optimizers,
  preemption,
  schedules,
  towers,
)
from cifar10.training.network_builder import DEFAULT_INIT, Inferred, Initialization, infer
from cifar10.training.placement import Placement, Replication

_SHOWN_IMAGES = 4  # Augmented training images in a summary.


def get_model_fn(
  hparams: HParams,
  placement: Placement,
  data: DatasetInfo,
  *,
  examples_per_epoch: int = 0,
  replication: Replication | None = None,
  meter: MeterHook | None = None,
  histograms: bool = False,
  beginning: Initialization = DEFAULT_INIT,
  use_ema: bool = False,
) -> Callable[..., Any]:
  """The Estimator's model function.

  Args:
    hparams: the network and its optimization.
    placement: towers and variables.
    data: what the network classifies.
    examples_per_epoch: of the training split: turns epochs into steps, in training.
    replication: the cluster, in training; by default one process.
    meter: is told what to measure, in training.
    histograms: whether TensorBoard is to show weights and gradients.
    beginning: what the network of a new training starts from.
    use_ema: restore the averages in place of the variables, outside training.

  Returns:
    model_fn(features, labels, mode, config). In TRAIN and EVAL features and labels are tuples with
    a shard for each tower; EVAL takes one. In PREDICT features is {'images': uint8
    [n, 32, 32, 3]}.
  """

  replication = replication or Replication(
    Cluster(), 0, LivenessMonitor(), SharedControl(Cluster())
  )

  build = functools.partial(network_builder.build, hparams, data, data_format=placement.data_format)
  build_proxy = functools.partial(
    network_builder.build_proxy, hparams, data, data_format=placement.data_format
  )

  def with_weights(spec: Any) -> Any:
    return spec._replace(scaffold=ema.scaffold()) if use_ema else spec

  def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
    if mode == tf_estimator.ModeKeys.PREDICT:
      network = build(is_training=False)
      return with_weights(_predict_spec(hparams, placement, network, features[IMAGES]))
    if mode == tf_estimator.ModeKeys.EVAL:
      network = build(is_training=False)
      hook = preemption.AbandonHook(replication.monitor)
      shard = (features[0], labels[0])
      return with_weights(_eval_spec(hparams, placement, network, data, shard, hook))
    return _train_spec(
      hparams,
      placement,
      replication,
      build(is_training=True, beginning=beginning),
      list(zip(features, labels)),
      proxy=build_proxy(beginning=beginning),
      examples_per_epoch=examples_per_epoch,
      meter=meter,
      histograms=histograms,
      config=config,
    )

  return model_fn


def _groups(hparams: HParams, *networks: model_base.Layers) -> optimizers.GroupOf:
  """How each variable of the networks learns, once they are built."""
  roles = collections.ChainMap(*(network.roles for network in networks))

  def group_of(variable: Any) -> Group:
    return hparams.family.group(roles[variable.op.name], hparams)

  return group_of


def _train_spec(
  hparams: HParams,
  placement: Placement,
  replication: Replication,
  network: model_base.Layers,
  shards: gpu_prefetch.Shards,
  *,
  proxy: model_base.Layers | None,
  examples_per_epoch: int,
  meter: MeterHook | None,
  histograms: bool,
  config: Any,
) -> Any:
  """Every tower, the mean of their gradients, and the update.

  With a `proxy` each tower learns from that half of its shard which is harder for the proxy.
  Under a strategy of tf.distribute this is called once a replica, and builds one tower.
  """
  group_of = _groups(hparams, network, *([proxy] if proxy else []))
  tower_devices, place_variable = _devices(placement, replication)
  staged = None
  if placement.prefetches_to_gpu and not replication.all_reduce:  # A strategy has its own way.
    staged = gpu_prefetch.GpuPrefetch(shards, tower_devices)
    shards = staged.shards
  built, halves, update_ops = _build_towers(
    hparams, network, shards, tower_devices, place_variable, proxy=proxy, group_of=group_of
  )
  gradients = towers.average_gradients([tower.gradients for tower in built])
  of_proxy = towers.average_gradients([half.gradients for half in halves]) if halves else []
  cross_entropy = tf.add_n([tower.cross_entropy for tower in built]) / len(built)
  loss = cross_entropy + built[0].weight_penalty
  rates = _learning_rates(hparams, replication, examples_per_epoch)
  train_op, training_hooks = _update(
    hparams, replication, rates, gradients + of_proxy, update_ops, group_of=group_of
  )
  if staged:
    train_op = tf.group(train_op, staged.put)
    training_hooks.append(staged.make_hook())
  accuracy = _mean_accuracy(built)
  scalars = {'loss': loss, 'accuracy': accuracy, 'learning_rate': rates[0]}
  parts = {'cross_entropy': cross_entropy, 'weight_penalty': built[0].weight_penalty}
  if halves:
    parts['proxy_cross_entropy'] = tf.add_n([half.cross_entropy for half in halves]) / len(halves)
  _summarize(parts, gradients, shards[0][0], histograms)
  if meter:
    meter.measure(scalars)
  shell.offer_batch(*shards[0])
  if not replication.all_reduce:
    _add_saver(config)
  return tf_estimator.EstimatorSpec(
    tf_estimator.ModeKeys.TRAIN,
    loss=loss / _num_replicas(),  # Which the Estimator adds up.
    train_op=train_op,
    training_hooks=training_hooks,
    scaffold=_ready_scaffold() if _is_alone(replication) else None,
  )


def _is_alone(replication: Replication) -> bool:
  return not (replication.all_reduce or replication.cluster.is_distributed)


def _ready_scaffold() -> Any:
  """Asks no variable whether it is initialised, which takes a quarter of a second in all.

  For a process that has initialised or restored all of them itself.
  """
  none = tf.constant([], tf.string)
  return tf.compat.v1.train.Scaffold(ready_op=none, ready_for_local_init_op=none)


def _learning_rates(
  hparams: HParams, replication: Replication, examples_per_epoch: int
) -> tuple[Any, Any]:
  """The optimizer's and Muon's at this step, as they are scheduled and steered."""
  examples_per_step = schedules.examples_per_global_step(
    hparams.train_batch_size, replication.gradients_per_update or 1
  )
  scheduled = (
    _scheduled(rate, hparams, examples_per_epoch, examples_per_step) if rate else 0.0
    for rate in (hparams.learning_rate, hparams.muon_learning_rate)
  )
  replication.control.build()
  return replication.control.rates(*scheduled)


def _num_replicas() -> int:
  """Of a strategy of tf.distribute; 1 without one."""
  return tf.distribute.get_strategy().num_replicas_in_sync


def _update(
  hparams: HParams,
  replication: Replication,
  learning_rates: tuple[Any, Any],
  gradients: towers.GradientsAndVariables,
  update_ops: Sequence[tf.Operation],
  *,
  group_of: optimizers.GroupOf,
) -> tuple[tf.Operation, list[Any]]:
  """What changes the variables, moving averages included, and the hooks that it needs."""
  global_step = tf.compat.v1.train.get_or_create_global_step()
  # Lookahead and --ema-decay average the moving averages, too, after their update. The chief of
  # synchronous training updates variables when a step, those included, is over.
  is_over = replication.updates_together or not replication.updates_moving_averages
  before = () if is_over else update_ops
  optimizer = optimizers.make_optimizer(hparams, *learning_rates, group_of, before)
  gradients = optimizers.in_groups(gradients, group_of)
  training_hooks: list[Any] = []
  if _num_replicas() > 1:  # Strategies add gradients up; what is wanted is the mean.
    gradients = [(gradient / _num_replicas(), variable) for gradient, variable in gradients]
  if replication.updates_together:
    optimizer = sync.SyncReplicas(
      optimizer,
      replication.cluster,
      replication.gradients_per_update,
      replication.control,
      in_order=replication.in_order,
    )
  train_op = optimizer.apply_gradients(gradients, global_step)
  if replication.updates_together:
    training_hooks.append(optimizer.make_hook(hparams.train_steps, replication.monitor))
  if replication.control.is_all_reduce:
    training_hooks.append(
      control_hooks.AllReduceControlHook(replication.monitor, replication.control)
    )
  if replication.updates_moving_averages:
    # Beside the update, not before it: a synchronous chief runs the update alone, between two
    # batches, and would have to compute another batch for the averages that the update waited for.
    train_op = tf.group(train_op, *update_ops)
  return train_op, training_hooks


def _add_saver(config: Any) -> None:
  """Lets the chief write whole checkpoints.

  The Estimator's own saver has each parameter server write its part: into a folder that all of
  them would have to share.
  """
  saver = tf.compat.v1.train.Saver(
    max_to_keep=config.keep_checkpoint_max, defer_build=True, save_relative_paths=True
  )
  tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SAVERS, saver)


def _devices(
  placement: Placement, replication: Replication
) -> tuple[list[str], Callable[[tf.Operation], str]]:
  """Each tower's device, and where variables go."""
  if replication.all_reduce:  # The strategy has put this replica's one tower on its device.
    return [''], lambda op: ''
  cluster = replication.cluster
  place_variable = towers.variable_placement(
    placement.variable_strategy, placement.num_gpus, cluster.num_ps, cluster.job
  )
  return [cluster.job + device for device in placement.tower_devices], place_variable


def _build_towers(
  hparams: HParams,
  network: model_base.Layers,
  shards: gpu_prefetch.Shards,
  tower_devices: Sequence[str],
  place_variable: Callable[[tf.Operation], str],
  *,
  proxy: model_base.Layers | None,
  group_of: optimizers.GroupOf,
) -> tuple[list[towers.Tower], list[hard_examples.HarderHalf], list[tf.Operation]]:
  """All towers over one set of variables, what a proxy left them, the moving averages' updates."""

  def weight_decay(variable: Any) -> float:
    return optimizers.weight_decay(hparams, group_of(variable))

  built: list[towers.Tower] = []
  halves: list[hard_examples.HarderHalf] = []
  update_ops: list[tf.Operation] = []
  for index, (device, shard) in enumerate(zip(tower_devices, shards)):
    setter = towers.device_setter(device, place_variable)
    with (
      tf.compat.v1.name_scope(f'tower_{index}') as scope,
      tf.compat.v1.variable_scope(hparams.family.NAME, reuse=index > 0),
      tf.compat.v1.device(setter),
    ):
      images, labels = input_pipeline.normalise(shard[0], tf.as_dtype(hparams.dtype)), shard[1]
      if proxy:
        half = hard_examples.harder_half(
          images, labels, proxy, weight_decay, hparams.label_smoothing
        )
        halves.append(half)
        images, labels = half.images, half.labels
      built.append(
        towers.build_tower(images, labels, network, weight_decay, hparams.label_smoothing)
      )
      if index == 0:
        # Tower 0 only: every tower would update the same moving averages, N times a step.
        update_ops = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, scope)
  return built, halves, update_ops


def _eval_spec(
  hparams: HParams,
  placement: Placement,
  network: model_base.Layers,
  data: DatasetInfo,
  shard: tuple[tf.Tensor, tf.Tensor],
  *more_hooks: Any,
) -> Any:
  """One tower and the metrics, each an exact mean over the examples."""
  images, labels = shard
  group_of = _groups(hparams, network)
  inferred = _inferred(hparams, placement, network, images)
  logits, plain_logits = inferred.logits, inferred.own_logits
  cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
  weight_penalty = towers.weight_penalty(
    network, lambda variable: optimizers.weight_decay(hparams, group_of(variable))
  )
  correct, plain_correct = (
    tf.cast(tf.equal(tf.argmax(values, 1, tf.int32), labels), tf.float32)
    for values in (logits, plain_logits)
  )
  top5 = tf.cast(tf.nn.in_top_k(labels, logits, min(5, data.num_classes)), tf.float32)
  mean = tf.compat.v1.metrics.mean
  metrics = {
    'accuracy': mean(correct),
    'other_accuracies/top5': mean(top5),
    'loss_parts/cross_entropy': mean(cross_entropy),
    'loss_parts/weight_penalty': mean(weight_penalty),
  }
  if hparams.tta != 'none':
    metrics['other_accuracies/without_tta'] = mean(plain_correct)
  metrics.update(_by_class(labels, tf.argmax(logits, 1, tf.int32), data.classes))
  shown = {
    'accuracy': metrics['accuracy'][0],
    'accuracy_top5': metrics['other_accuracies/top5'][0],
    'cross_entropy': metrics['loss_parts/cross_entropy'][0],
  }
  return tf_estimator.EstimatorSpec(
    tf_estimator.ModeKeys.EVAL,
    loss=tf.reduce_mean(cross_entropy) + weight_penalty,
    eval_metric_ops=metrics,
    evaluation_hooks=[*more_hooks, progress.EvaluationLogHook(shown)],
  )


def _predict_spec(
  hparams: HParams, placement: Placement, network: model_base.Layers, images: tf.Tensor
) -> Any:
  """Classes and probabilities of uint8 images [n, 32, 32, 3]."""
  logits = _inferred(hparams, placement, network, images).logits
  predictions = {CLASSES: tf.argmax(logits, 1), PROBABILITIES: tf.nn.softmax(logits)}
  return tf_estimator.EstimatorSpec(tf_estimator.ModeKeys.PREDICT, predictions=predictions)


def _inferred(
  hparams: HParams, placement: Placement, network: model_base.Layers, images: tf.Tensor
) -> Inferred:
  """Of uint8 images, on the first tower."""
  place_variable = towers.variable_placement(placement.variable_strategy, placement.num_gpus)
  setter = towers.device_setter(placement.tower_devices[0], place_variable)
  with tf.compat.v1.variable_scope(hparams.family.NAME), tf.compat.v1.device(setter):
    return infer(hparams, network, images)


def _scheduled(
  rate: float, hparams: HParams, examples_per_epoch: int, examples_per_step: int
) -> tf.Tensor:
  """A learning rate times the schedule's factor at this step: float32 scalar."""
  global_step = tf.compat.v1.train.get_or_create_global_step()
  if hparams.lr_triangle:
    return rate * schedules.triangle(global_step, hparams.train_steps, *hparams.lr_triangle)
  boundaries = list(hparams.lr_boundaries_steps) or schedules.boundaries_in_steps(
    hparams.lr_boundaries_epochs, examples_per_epoch, examples_per_step
  )
  values = [rate * value for value in hparams.lr_values]
  return schedules.learning_rate(global_step, boundaries, values)


def _mean_accuracy(built: Sequence[towers.Tower]) -> tf.Tensor:
  """Of all images that the towers learn from: float32 scalar."""
  correct = [
    tf.cast(tf.equal(tf.argmax(tower.logits, 1, tf.int32), tower.labels), tf.float32)
    for tower in built
  ]
  return tf.reduce_mean(tf.concat(correct, 0))


def _summarize(
  loss_parts: Mapping[str, tf.Tensor],
  gradients: towers.GradientsAndVariables,
  images: tf.Tensor,
  histograms: bool,
) -> None:
  """What TensorBoard shows of single steps; computed only at those that are written."""
  summary, kept = tf.compat.v1.summary, [summaries.SAMPLED]
  for name, part in loss_parts.items():
    summary.scalar(f'loss_parts/{name}', part, kept)
  norm = tf.linalg.global_norm([gradient for gradient, _ in gradients])
  summary.scalar('optimizer/gradient_norm', norm, kept)
  summary.image('pictures/training', images, _SHOWN_IMAGES, kept)
  for gradient, variable in gradients if histograms else ():
    summary.histogram(f'weights/{variable.op.name}', variable, kept)
    summary.histogram(f'weight_gradients/{variable.op.name}', gradient, kept)


def _by_class(
  labels: tf.Tensor, predicted: tf.Tensor, classes: Sequence[str]
) -> dict[str, tuple[tf.Tensor, tf.Operation]]:
  """Metrics 'per_class_accuracy/cat', and the confusion matrix that they come from.

  The matrix, int64 [true class, predicted class], is for `evaluation.MatrixHook`.

  Args:
    labels: int32 [n].
    predicted: int32 [n].
    classes: their names, by label.
  """
  count = len(classes)
  total = _evaluated_sum('confusion_matrix', [count, count], tf.int64)
  update = total.assign_add(tf.math.confusion_matrix(labels, predicted, count, dtype=tf.int64))
  matrix = total.read_value()
  examples = tf.cast(tf.reduce_sum(matrix, 1), tf.float32)
  accuracy = tf.math.divide_no_nan(tf.cast(tf.linalg.diag_part(matrix), tf.float32), examples)
  tf.compat.v1.add_to_collection(evaluation_result.MATRIX, matrix)
  return {
    f'per_class_accuracy/{name}': (accuracy[label], update) for label, name in enumerate(classes)
  }


def _evaluated_sum(name: str, shape: list[int], dtype: tf.DType = tf.float32) -> Any:
  """A variable that is 0 when an evaluation begins."""
  keys = tf.compat.v1.GraphKeys
  return tf.compat.v1.get_variable(
    name,
    shape,
    dtype,
    tf.compat.v1.zeros_initializer(),
    trainable=False,
    collections=[keys.LOCAL_VARIABLES, keys.METRIC_VARIABLES],
  )
