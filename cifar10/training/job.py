"""One job: an Estimator on its job dir, and what each mode does with it."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from cifar10.callbacks import stopping
from cifar10.cluster import parameter_server
from cifar10.cluster.tf_config import Cluster, reachable
from cifar10.cluster.watch import Watch
from cifar10.data import dataset, manifest
from cifar10.inference import predict, serving
from cifar10.inference.answers import Answers, read_answers
from cifar10.networks.family import Start
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions
from cifar10.platform import devices, sessions
from cifar10.platform.errors import InputError, TaskLostError
from cifar10.platform.estimator import tf_estimator
from cifar10.platform.logs import log
from cifar10.training import job_dir, model_fn, placement, run_config

JsonObject = dict[str, Any]

_ALONE = Cluster()


class Job:
  """Trains, evaluates, predicts with and exports one network in one job dir."""

  def __init__(
    self,
    hparams: HParams,
    options: RunOptions,
    cluster: Cluster = _ALONE,
    watch: Watch | None = None,
  ):
    """Checks devices and data set; writes nothing.

    For an all-reduce between processes it also waits until all of them are there.

    Args:
      hparams: the network and its optimization.
      options: where it runs.
      cluster: which task of a run this process is.
      watch: hears SIGTERM; by default nobody does.

    Raises:
      InputError: devices that cannot run, or another data set than the job's.
      Terminated: SIGTERM came while it waited.
    """
    placement.check_distribution(options)
    num_gpus = placement.num_gpus(options, len(tf.config.list_physical_devices('GPU')))
    if hparams.dtype == 'auto':
      dtype, reason = devices.fast_dtype(num_gpus)
      hparams = dataclasses.replace(hparams, dtype=dtype)
      log.info('--dtype auto is %s: %s', dtype, reason)
    self._hparams = hparams
    self._data = job_dir.described_data(options.job_dir, options.data_dir)
    self._last_evaluation: tuple[str, JsonObject] | None = None  # The split, its metrics.
    self._options = options
    self._cluster = cluster
    self._watch = watch or Watch()
    self._strategy = None
    self._placement = placement.placement(options, num_gpus)
    if options.distribute and cluster.task_type != 'evaluator':
      # Before any operation runs: between processes it starts TensorFlow's server, and then waits
      # for the others where no other thread runs.
      self._watch.wait_for_peers()
      self._strategy = run_config.strategy(
        options.distribute, cluster, self._placement.tower_devices, num_gpus
      )
      self._watch.listen()

  def train_and_evaluate(self) -> JsonObject:
    """Trains to the last step, evaluating on the way; then evaluates the test split once.

    In a cluster the chief and the workers train. An evaluator evaluates on the way, and at the end
    in the chief's place, where TF_CONFIG lists one.

    Returns:
      The last evaluation, as `evaluate` returns it; of a worker, its name and steps; of a chief
      with an evaluator, the last checkpoint.

    Raises:
      InputError: data that is missing or not the job's, a batch that the towers cannot share, or a
        loss that became NaN.
      Terminated: SIGTERM came; the chief has saved.
    """
    evaluates_at_the_end = self._cluster.is_chief and not self._cluster.has_evaluator
    subsets = (self._subset_on_the_way, self._final_subset) if evaluates_at_the_end else ()
    for subset in subsets:  # Before an hour of training, not after it.
      self._check_subset(subset)
    steps = self._train(evaluating=True)
    if not self._cluster.is_chief:
      return {'task': self._cluster.name, 'steps': steps}
    return self._evaluated(self._final_subset) if evaluates_at_the_end else self._saved()

  def train(self, more_hooks: Sequence[Any] = ()) -> JsonObject:
    """Trains to the last step, with `more_hooks` beside its own, and evaluates nothing."""
    steps = self._train(evaluating=False, more_hooks=more_hooks)
    return self._saved() if self._cluster.is_chief else {'task': self._cluster.name, 'steps': steps}

  def serve(self) -> JsonObject:
    """Is a parameter server until everyone is done; raises Terminated on SIGTERM."""
    parameter_server.serve(self._cluster, self._watch)
    return {'task': self._cluster.name}

  def evaluate_on_the_way(self) -> JsonObject:
    """Is an evaluator: evaluates new checkpoints as they come, and the last one like the chief.

    Raises:
      InputError: the chief has gone, and no checkpoint came for so long as the options say.
      Terminated: SIGTERM came.
    """
    for subset in (self._subset_on_the_way, self._final_subset):
      self._check_subset(subset)
    patience = self._options.evaluator_patience
    seen, seen_at = None, time.monotonic()
    while True:
      self._watch.check()
      checkpoint = tf.train.latest_checkpoint(self._options.job_dir)
      if checkpoint and checkpoint != seen:
        seen, seen_at = checkpoint, time.monotonic()
        if _global_step(checkpoint) >= self._hparams.train_steps:
          return self._evaluated(self._final_subset)
        self._evaluated(self._subset_on_the_way)
      elif self._chief_is_there():
        seen_at = time.monotonic()
      elif time.monotonic() - seen_at > patience:
        raise TaskLostError(
          f'no new checkpoint in {self._options.job_dir} for {patience:g} s, and the chief cannot '
          'be reached; start it again, or raise --evaluator-patience'
        )
      time.sleep(1)

  def evaluate(self) -> JsonObject:
    """Evaluates one checkpoint on one split."""
    self._check_subset(self._final_subset)
    return self._evaluated(self._final_subset)

  def predict(self, images: Sequence[str]) -> list[JsonObject]:
    """One result for each image file, in order."""
    classes = self._data.classes
    return predict.predict(self._estimator(), images, self._checkpoint(), classes)

  def answers(self) -> Answers:
    """What one checkpoint says of every image of one split."""
    self._check_subset(self._final_subset)
    input_fn = self._eval_input_fn(self._final_subset)
    return read_answers(self._estimator(), input_fn, self._checkpoint())

  def export(self) -> JsonObject:
    """Writes a SavedModel under JOB/export/ and names it."""
    checkpoint = self._checkpoint()
    path = self._estimator().export_saved_model(
      os.path.join(self._options.job_dir, 'export'),
      serving.serving_input_receiver_fn,
      checkpoint_path=checkpoint,
    )
    return {'saved_model': path.decode(), 'checkpoint': checkpoint}

  @property
  def _final_subset(self) -> str:
    return self._options.subset or 'eval'

  @property
  def _data_dir(self) -> str:
    assert self._options.data_dir  # The command asks for it in the modes that read data.
    return self._options.data_dir

  @property
  def _subset_on_the_way(self) -> str:
    # Choosing by the test set would leak it; it serves only where nothing else is left.
    return self._options.subset or ('validation' if self._hparams.train_on == 'train' else 'eval')

  @property
  def _reduces_with_others(self) -> bool:
    return self._strategy is not None and self._cluster.is_distributed

  @property
  def _gradients_per_update(self) -> int:
    sync = self._options.sync or self._strategy is not None
    return self._cluster.gradients_per_update(sync, self._options.backup_workers)

  def _estimator(
    self,
    examples_per_epoch: int = 0,
    cluster: Cluster = _ALONE,
    strategy: Any = None,
    prepared: Any = None,
  ) -> Any:
    """The Estimator. Only training knows, and needs, the data and the other tasks."""
    options = self._options
    replication = placement.Replication(
      cluster, self._gradients_per_update, self._watch, strategy is not None
    )
    return tf_estimator.Estimator(
      model_fn.get_model_fn(
        self._hparams,
        self._placement,
        self._data,
        examples_per_epoch=examples_per_epoch,
        replication=replication,
        prepared=prepared,
      ),
      config=run_config.run_config(
        job_dir=options.job_dir,
        seed=self._hparams.seed,
        # The Estimator must be given some number, but `_saver_hooks` do the saving.
        save_every_steps=options.eval_every_steps,
        keep_checkpoints=options.keep_checkpoints,
        session=self._session_config(cluster),
        cluster=cluster,
        strategy=strategy,
      ),
    )

  def _session_config(self, cluster: Cluster = _ALONE) -> Any:
    options = self._options
    return sessions.session_config(
      options.num_cpu_towers,
      options.num_intra_threads,
      options.num_inter_threads,
      options.log_device_placement,
      cluster.device_filters,
      # In a cluster TensorFlow would join operations in bfloat16 into some that it can run in a
      # single process only.
      fuses=not (cluster.is_distributed and self._hparams.dtype == 'bfloat16'),
    )

  def _train(self, evaluating: bool, more_hooks: Sequence[Any] = ()) -> int:
    """Trains to the last step -> how many of the steps this process made."""
    estimator = self._start()
    task_hook = stopping.TaskHook(self._watch, decides=not self._reduces_with_others)
    train_spec = tf_estimator.TrainSpec(
      self._train_input_fn(),
      self._hparams.train_steps,
      hooks=[*self._saver_hooks(evaluating), task_hook, *more_hooks],
    )
    eval_spec = tf_estimator.EvalSpec(
      self._eval_input_fn(self._subset_on_the_way),
      steps=None,
      name=self._subset_on_the_way,
      start_delay_secs=0,
      throttle_secs=0,  # Every checkpoint: eval_every_steps says how many there are.
    )
    with self._naming_nan(), run_config.tf_config(self._cluster):
      evaluates = evaluating and not self._cluster.has_evaluator
      if evaluates or self._cluster.is_distributed:  # In a cluster it evaluates nothing here.
        result = tf_estimator.train_and_evaluate(estimator, train_spec, eval_spec)
        if result and result[0]:  # Of one process only.
          self._last_evaluation = (self._subset_on_the_way, result[0])
      else:
        estimator.train(
          train_spec.input_fn, max_steps=train_spec.max_steps, hooks=list(train_spec.hooks)
        )
    self._watch.check()
    if self._cluster.is_distributed:
      parameter_server.announce_done(self._cluster)
    return task_hook.steps

  def _chief_is_there(self) -> bool:
    return any(map(reachable, self._cluster.addresses.get('chief', ())))

  def _start(self) -> Any:
    """Checks data and job dir, writes a new job's configuration -> the Estimator to train."""
    hparams, options = self._hparams, self._options
    num_towers = len(self._placement.tower_devices)
    dataset.check_shards(hparams.train_batch_size, num_towers)
    train_set = dataset.Cifar10DataSet(self._data_dir, hparams.train_on)
    num_examples = train_set.num_examples_per_epoch()
    session = self._session_config()
    start = Start(train_set.first_images, self._data, session, self._placement.num_gpus)
    prepared = hparams.family.prepare(start)
    if self._cluster.is_chief:
      data = manifest.digests(self._data_dir)
      changes = job_dir.claim(options.job_dir, hparams, self._data_dir, self._data, data)
      if changes:
        log.info('unlike before in this job: %s', ', '.join(changes))
    if options.sync and options.distribute:
      log.info('--sync is ignored: --distribute %s always is', options.distribute)
    elif options.sync and not self._gradients_per_update:
      log.info('--sync is ignored: there is one replica, which waits for nobody')
    if options.num_workers != 1:
      log.info('--num-workers is ignored: the cluster says how many there are')
    log.info(
      'training %s on %s examples, batch %s, %s, %s tower(s)%s, to step %s',
      hparams.family.describe(),
      f'{num_examples:,}',
      hparams.train_batch_size,
      hparams.dtype,
      num_towers,
      self._described_cluster(),
      f'{hparams.train_steps:,}',
    )
    if not self._placement.num_gpus:
      log.info(devices.described_kernels())
    return self._estimator(num_examples, self._cluster, self._strategy, prepared)

  def _described_cluster(self) -> str:
    """', as worker 0 of 3 workers and 1 parameter server(s), updating asynchronously'."""
    cluster = self._cluster
    if not cluster.is_distributed:
      return ''
    gradients = self._gradients_per_update
    updates = f'every {gradients} gradients' if gradients else 'asynchronously'
    servers = f' and {cluster.num_ps} parameter server(s)' if cluster.num_ps else ''
    return f', as {cluster.name} of {cluster.num_workers} workers{servers}, updating {updates}'

  def _train_input_fn(self) -> Callable[[], Any]:
    """Batches that go on where training stands when the session is made."""
    hparams = self._hparams

    def input_fn() -> Any:
      batches_done = self._global_step_at_start()
      if not self._gradients_per_update:  # About that many: each worker goes at its own pace.
        batches_done //= self._cluster.num_workers
      batches = dataset.input_fn(
        self._data_dir,
        hparams.train_on,
        len(self._placement.tower_devices),
        hparams.train_batch_size,
        hparams.use_distortion_for_training,
        distortion=hparams.distortion,
        seed=hparams.seed,
        worker=self._cluster.worker,
        first_example=batches_done * hparams.train_batch_size,
        is_training=True,
      )
      return batches if self._strategy is None else dataset.deal(batches)

    return input_fn

  def _global_step_at_start(self) -> Any:
    """Of a strategy, the latest checkpoint's; else a tensor, int64.

    A worker need not see the checkpoints, and a session that a lost parameter server has ended is
    made again within the process: whoever initialises the iterator then reads the variable.
    """
    if self._strategy is None:
      return tf.cast(tf.compat.v1.train.get_global_step().read_value(), tf.int64)
    latest = tf.train.latest_checkpoint(self._options.job_dir)
    return _global_step(latest) if latest else 0

  def _eval_input_fn(self, subset: str) -> Callable[[], Any]:
    def input_fn() -> Any:
      self._watch.check()  # SIGTERM leaves no time to evaluate what was just saved.
      return dataset.input_fn(
        self._data_dir, subset, 1, self._hparams.eval_batch_size, is_training=False
      )

    return input_fn

  def _saver_hooks(self, evaluating: bool) -> list[Any]:
    """The Estimator evaluates when the first one saves; a second may save at other steps."""
    if not self._cluster.is_chief:
      return []
    options = self._options
    steps = [options.save_every_steps or options.eval_every_steps]
    if evaluating:
      steps.insert(0, options.eval_every_steps)
    saver = tf.compat.v1.train.CheckpointSaverHook
    return [saver(options.job_dir, save_steps=every) for every in dict.fromkeys(steps)]

  def _check_subset(self, subset: str) -> None:
    """Raises InputError where the split's file is missing or damaged."""
    dataset.Cifar10DataSet(self._data_dir, subset).num_examples_per_epoch()

  def _saved(self) -> JsonObject:
    """The last checkpoint, as the program prints it."""
    checkpoint = self._checkpoint()
    return {'global_step': _global_step(checkpoint), 'checkpoint': checkpoint}

  def _evaluated(self, subset: str) -> JsonObject:
    """One evaluation, as the program prints it."""
    checkpoint = self._checkpoint()
    seen, metrics = self._last_evaluation or (None, {})
    if seen != subset or metrics['global_step'] != _global_step(checkpoint):
      metrics = self._estimator().evaluate(
        self._eval_input_fn(subset), name=subset, checkpoint_path=checkpoint
      )
    per_class = {name: metrics[f'accuracy/{name}'] for name in self._data.classes}
    plain = {
      name: _rounded(value) for name, value in metrics.items() if name == 'accuracy_without_tta'
    }
    return {
      'accuracy': _rounded(metrics['accuracy']),
      **plain,
      'accuracy_top5': _rounded(metrics['accuracy_top5']),
      # The Estimator's own `loss` is a mean over batches, and the last batch may be smaller.
      'loss': _rounded(metrics['cross_entropy'] + metrics['weight_penalty']),
      'cross_entropy': _rounded(metrics['cross_entropy']),
      'accuracy_by_class': {name: _rounded(value) for name, value in per_class.items()},
      'global_step': int(metrics['global_step']),
      'examples': int(metrics['examples']),
      'subset': subset,
      'checkpoint': checkpoint,
    }

  def _checkpoint(self) -> str:
    """The one that was named, or the latest; raises InputError where there is none."""
    named = self._options.checkpoint
    if named and not tf.io.gfile.exists(named + '.index'):
      raise InputError(f'--checkpoint {named} does not exist; leave it out for the latest')
    checkpoint = named or tf.train.latest_checkpoint(self._options.job_dir)
    if not checkpoint:
      raise InputError(f'--job-dir {self._options.job_dir} holds no checkpoint; train first')
    self._check_classes(checkpoint)
    return checkpoint

  def _check_classes(self, checkpoint: str) -> None:
    """Raises InputError for a checkpoint of other classes: TensorFlow would take its logits."""
    shapes = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
    head = shapes.get(f'{self._hparams.family.NAME}/fully_connected/kernel')
    if head and head[-1] != self._data.num_classes:
      raise InputError(
        f'checkpoint {checkpoint} tells {head[-1]} classes apart and the job has '
        f'{self._data.num_classes}; name one of this job'
      )

  @contextlib.contextmanager
  def _naming_nan(self) -> Iterator[None]:
    try:
      yield
    except tf.compat.v1.train.NanLossDuringTrainingError:
      raise InputError(
        f'the loss became NaN with --learning-rate {self._hparams.learning_rate}; lower it, name a '
        'new --job-dir or resume from the last checkpoint'
      ) from None


def _global_step(checkpoint: str) -> int:
  return int(tf.train.load_variable(checkpoint, 'global_step'))


def _rounded(value: Any) -> float:
  return round(float(value), 6)
