"""The Estimator's model function: towers, optimizer and metrics as EstimatorSpecs."""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import model_base
from cifar10.callbacks.base import TrainingGraph
from cifar10.cluster.roles import ALONE, Role
from cifar10.core.errors import InputError
from cifar10.data import input_pipeline
from cifar10.data.augmentation import downsampled
from cifar10.data.input_pipeline import Cifar10DataSet
from cifar10.data.manifest import CIFAR10, DatasetInfo
from cifar10.job.checkpoints import Saver
from cifar10.job.run import Placement
from cifar10.networks import families
from cifar10.options.hparams import HParams, from_params
from cifar10.training import evaluation, towers
from cifar10.training.hard_examples import HarderHalf, harder_half
from cifar10.training.inference import CLASSES, IMAGES, PROBABILITIES, Inferred, infer
from cifar10.training.optimizers import Groups, averages_saver, make_optimizer
from cifar10.training.schedules import Rates, learning_rates, resolution
from cifar10.training.towers import Shards, Staged, Tower
from estimator_again import estimator as tf_estimator

_KEPT = 5  # Checkpoints, where no RunConfig says how many.


class Training(NamedTuple):
  """The settings that only training needs."""

  role: Role  # this process's role: how gradients become an update
  examples_per_epoch: int  # of the training split; converts epochs to steps
  # What `fastnet.prepare` finds out of data and processor:
  whitening: np.ndarray | None = None  # from `whitening_kernel`; None: the checkpoint has it
  # Whether XLA makes one loop of operations in a row, and one of their gradients, on CPUs where it
  # can: of each activation of a fastnet, of the end of a ResNet's large block in bfloat16. There
  # each operation costs about as much as reading and writing its memory.
  compiles: bool = False
  # Of a new job's variables, in place of their layers' own:
  initializers: Mapping[str, model_base.Initializer] = {}
  on_graph: Callable[[TrainingGraph], None] = lambda graph: None  # called with the step's graph


def get_model_fn(
  num_gpus: int,
  variable_strategy: str,
  num_workers: int,
  *,
  num_cpu_towers: int = 1,
  data_format: str | None = None,
  data: DatasetInfo = CIFAR10,
  training: Training | None = None,
  use_ema: bool = False,
) -> Callable[..., tf_estimator.EstimatorSpec]:
  """Returns the Estimator's model function, `model_fn(features, labels, mode, params)`.

  In TRAIN and EVAL features and labels are tuples with a shard for each tower, as `input_fn` has
  them; in PREDICT features may also be {'images': uint8 [n, 32, 32, 3]}. `params` are the
  hyper-parameters, or a dict or an object that has some of them by name.

  Args:
    num_gpus: each has a tower.
    variable_strategy: where variables lie: 'CPU', or by size 'GPU', the command's for a single GPU.
    num_workers: how many workers' batches make an update: 1 if each is applied when it comes.
    num_cpu_towers: without GPUs; each on a virtual CPU.
    data_format: of activations; None: what the devices are fast with.
    data: the data set that the network classifies.
    training: of a job; None: a training on CIFAR-10 in one process.
    use_ema: whether to restore averages in place of variables, outside training.
  """
  placement = Placement(num_gpus, variable_strategy, num_cpu_towers, data_format)
  return ModelFn(placement, data, num_workers, training, use_ema)


@dataclasses.dataclass
class ModelFn:
  """What `get_model_fn` returns; the fields are as its arguments."""

  placement: Placement
  data: DatasetInfo
  num_workers: int
  training: Training | None = None
  use_ema: bool = False

  def __call__(
    self, features: Any, labels: Any, mode: str, params: Any, config: Any = None
  ) -> tf_estimator.EstimatorSpec:
    hparams = from_params(params)
    if mode == tf_estimator.ModeKeys.TRAIN:
      if len(features) != (count := len(self.placement.tower_devices)):  # Else some go unused.
        raise InputError(f'num_shards is {len(features)} for {count} towers; make it {count}')
      # The Estimator's saver has each parameter server write a part, to a folder that all share.
      kept = config.keep_checkpoint_max if config else _KEPT
      saver = Saver(max_to_keep=kept, defer_build=True, save_relative_paths=True)
      tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SAVERS, saver)
      return self._train_spec(hparams, list(zip(features, labels)))
    if mode == tf_estimator.ModeKeys.EVAL:
      spec = self._eval_spec(hparams, features, labels)
    else:
      images = features[IMAGES] if isinstance(features, Mapping) else tf.concat(features, 0)
      logits = self._inferred(hparams, images)[1].logits
      predictions = {CLASSES: tf.argmax(logits, 1), PROBABILITIES: tf.nn.softmax(logits)}
      spec = tf_estimator.EstimatorSpec(mode, predictions=predictions)
    saver = averages_saver() if self.use_ema else Saver(allow_empty=True)
    return spec._replace(scaffold=tf.compat.v1.train.Scaffold(saver=saver))

  def _train_spec(self, hparams: HParams, shards: Shards) -> tf_estimator.EstimatorSpec:
    """A step of training: shards -> towers -> mean gradients -> update."""
    placement = self.placement
    training = self.training or Training(Role(), Cifar10DataSet.num_examples_per_epoch('train'))
    role, cluster = training.role, training.role.cluster
    staged = []
    if placement.num_gpus:  # Batches are copied to the towers' devices a step ahead: to GPUs only.
      staged.append(Staged(shards, [cluster.job + device for device in placement.tower_devices]))
      shards = staged[0].shards
    settings = families.layer_settings(hparams, True, placement.data_format, training.compiles)
    global_step = tf.compat.v1.train.get_or_create_global_step()
    step = global_step.read_value()
    if hparams.batch_norm_warmup:
      decay = towers.warmed_up(hparams.batch_norm_decay, step)
      settings = settings._replace(batch_norm_decay=decay)
    network = families.build(hparams, settings, self.data, training.whitening)
    proxy = families.build_proxy(hparams.family, settings, self.data, training.whitening)
    groups = Groups(hparams, collections.ChainMap(network.roles, proxy.roles if proxy else {}))
    built, halves = self._build_towers(training, shards, groups, network, proxy)
    # On this worker, from where they travel to the parameter servers together.
    host = f'{cluster.job}/device:CPU:0' if cluster.num_ps else ''
    gradients = towers.average_gradients([tower.gradients for tower in built], host)
    of_proxy = towers.average_gradients([half.gradients for half in halves], host) if halves else []
    examples = training.examples_per_epoch, hparams.train_batch_size * self.num_workers
    with tf.control_dependencies([step]):  # Read before it rises, even if a --schedule ignores it.
      rates = learning_rates(hparams, step, *examples)
    role.control.build()
    rates = Rates(*role.control.rates(*rates))  # Or as `control` has set them.
    # Else every tower would update the same moving averages at each step.
    update_ops = built[0].update_ops if role.updates_moving_averages else ()
    # Lookahead and --ema-decay average the moving averages, too, after their update. A synchronous
    # chief updates the variables after the whole step, and so after the moving averages.
    optimizer = make_optimizer(hparams, rates, groups, () if role.is_sync else update_ops)
    optimizer = role.optimizer(optimizer, hparams.train_steps)
    exchanged = role.exchanged(groups.scaled(gradients + of_proxy))
    train_op = optimizer.apply_gradients(exchanged, global_step)
    scalars, loss_parts = _losses(built, halves, rates)
    training.on_graph(TrainingGraph(*shards[0], scalars, loss_parts, gradients))
    return tf_estimator.EstimatorSpec(
      tf_estimator.ModeKeys.TRAIN,
      loss=scalars['loss'],
      # Beside the update, not before it: a synchronous chief runs the update alone, between two
      # batches, and would have to compute another batch if the update waited for the averages.
      train_op=tf.group(train_op, *update_ops, *(each.put for each in staged)),
      training_hooks=[*staged, *([optimizer] if role.is_sync else [])],
      scaffold=role.scaffold(),
    )

  def _build_towers(
    self,
    training: Training,
    shards: Shards,
    groups: Groups,
    network: model_base.Layers,
    proxy: model_base.Layers | None,
  ) -> tuple[list[Tower], list[HarderHalf]]:
    """Builds all towers over one set of variables; with a proxy each learns a harder half."""
    hparams, built, halves = groups.hparams, [], []
    side = resolution(hparams)
    setters = towers.device_setters(self.placement, training.role.cluster)

    def get_variable(getter: Callable[..., tf.Variable], name: str, **given: Any) -> tf.Variable:
      if name in training.initializers:
        given['initializer'] = training.initializers[name]
      return getter(name, **given)

    for index, (setter, (images, labels)) in enumerate(zip(setters, shards)):
      with (
        tf.compat.v1.name_scope(f'tower_{index}'),
        tf.compat.v1.variable_scope(
          hparams.family.NAME, reuse=index > 0, custom_getter=get_variable
        ),
        tf.compat.v1.device(setter),
      ):
        shown = images if side is None else downsampled(images, side)
        seen = input_pipeline.normalise(shown, tf.as_dtype(hparams.dtype)), labels
        rules = groups.weight_decay, hparams.label_smoothing
        if proxy:
          halves.append(harder_half(*seen, proxy, *rules))
          seen = halves[-1].images, halves[-1].labels
        built.append(towers.build_tower(*seen, network, *rules))
    return built, halves

  def _eval_spec(
    self, hparams: HParams, features: Sequence[tf.Tensor], shards_labels: Sequence[tf.Tensor]
  ) -> tf_estimator.EstimatorSpec:
    """The loss and the metrics of all shards."""
    network, inferred = self._inferred(hparams, tf.concat(features, 0))
    labels = tf.concat(shards_labels, 0)
    cross_entropy = towers.cross_entropies(labels, inferred.logits, label_smoothing=0)
    penalty = towers.weight_penalty(network, Groups(hparams, network.roles).weight_decay)
    parts = {'cross_entropy': cross_entropy, 'weight_penalty': penalty}
    found = evaluation.metrics(labels, inferred, self.data.classes, parts, hparams.tta != 'none')
    loss = tf.reduce_mean(cross_entropy) + penalty
    return tf_estimator.EstimatorSpec(tf_estimator.ModeKeys.EVAL, loss=loss, eval_metric_ops=found)

  def _inferred(self, hparams: HParams, images: tf.Tensor) -> tuple[model_base.Layers, Inferred]:
    """Returns the network and what it says of uint8 images; each tower sees an equal part."""
    settings = families.layer_settings(hparams, False, self.placement.data_format)
    network = families.build(hparams, settings, self.data)
    setters = towers.device_setters(self.placement, ALONE)
    count, num_towers = tf.shape(images)[0], len(setters)
    # Black ones fill the last part: an empty batch would fail.
    filled = tf.pad(images, [[0, -count % num_towers], [0, 0], [0, 0], [0, 0]])
    # cuDNN tries its algorithms for each shape anew: GPUs see batches of training's shape alone.
    chunk = -(-hparams.train_batch_size // num_towers) if self.placement.num_gpus else 0
    inferred: list[Inferred] = []
    for setter, part in zip(setters, tf.split(filled, num_towers)):
      with (
        tf.compat.v1.variable_scope(hparams.family.NAME, reuse=bool(inferred)),
        tf.compat.v1.device(setter),
      ):
        inferred.append(infer(hparams, network, part, chunk))
    return network, Inferred(*(tf.concat(parts, 0)[:count] for parts in zip(*inferred)))


def _losses(
  built: Sequence[Tower], halves: Sequence[HarderHalf], rates: Rates
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
  """Returns the scalars of a step, and the parts of the loss with the proxy's beside them."""
  parts = {
    'cross_entropy': tf.add_n([tower.cross_entropy for tower in built]) / len(built),
    'weight_penalty': built[0].weight_penalty,
  }
  loss = parts['cross_entropy'] + parts['weight_penalty']
  if halves:
    parts['proxy_cross_entropy'] = tf.add_n([half.cross_entropy for half in halves]) / len(halves)
  # On all images that the towers learn from.
  correct = [evaluation.is_correct(tower.labels, tower.logits) for tower in built]
  accuracy = tf.reduce_mean(tf.concat(correct, 0))
  return {'loss': loss, 'accuracy': accuracy, 'learning_rate': rates.sgd}, parts
