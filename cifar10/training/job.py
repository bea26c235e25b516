"""One job: an Estimator on its job dir, and what each mode does with it."""

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from cifar10.callbacks import (
  control_channel,
  ending,
  progress,
  registry,
  saving,
  steered,
  stopping,
)
from cifar10.callbacks.callback import Callback, Run
from cifar10.callbacks.meter import MeterHook
from cifar10.cluster import parameter_server
from cifar10.cluster.steering import Orders, Steering
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
from cifar10.training import (
  checkpoints,
  evaluation,
  job_dir,
  model_fn,
  placement,
  run_config,
  schedules,
)

JsonObject = dict[str, Any]

_ALONE = Cluster()
_LAST_STEP = ending.Reason('train_steps', 'the last step was made')


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
    self._hparams = placement.with_dtype(hparams, num_gpus)
    self._data = job_dir.described_data(options.job_dir, options.data_dir)
    self._last_evaluation: JsonObject = {}
    self._matrix = evaluation.MatrixHook()
    self._options = options
    self._cluster = cluster
    self._watch = watch or Watch()
    self._strategy = None
    self._steering = Steering(cluster, options.distribute is not None)
    self._ending = ending.Ending()
    self._callbacks: list[Callback] = []
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
    if evaluates_at_the_end:  # Before an hour of training, not after it.
      self.check_evaluations()
    ended_by, steps = self._train_unless_over(evaluating=True)
    if not self._cluster.is_chief:
      return {'task': self._cluster.name, 'steps': steps}
    result = self._evaluated(self._final_subset) if evaluates_at_the_end else self._saved()
    return {**result, 'ended_by': ended_by}

  def train(self, more_hooks: Sequence[Any] = ()) -> JsonObject:
    """Trains to the last step, with `more_hooks` beside its own, and evaluates nothing."""
    ended_by, steps = self._train_unless_over(evaluating=False, more_hooks=more_hooks)
    if not self._cluster.is_chief:
      return {'task': self._cluster.name, 'steps': steps}
    return {**self._saved(), 'ended_by': ended_by}

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
    self.check_evaluations()
    self._callbacks = registry.make_all(self._run())
    patience = self._options.evaluator_patience
    seen, seen_at = None, time.monotonic()
    while True:
      self._watch.check()
      checkpoint = tf.train.latest_checkpoint(self._options.job_dir)
      if checkpoint and checkpoint != seen:
        seen, seen_at = checkpoint, time.monotonic()
        self._evaluated(self._subset_on_the_way, on_the_way=True)
      elif checkpoint and self._is_last(checkpoint):
        return self._evaluated(self._final_subset)
      elif self._chief_is_there():
        seen_at = time.monotonic()
      elif time.monotonic() - seen_at > patience:
        raise TaskLostError(
          f'no new checkpoint in {self._options.job_dir} for {patience:g} s, and the chief cannot '
          'be reached; start it again, or raise --evaluator-patience'
        )
      time.sleep(1)

  def check_evaluations(self) -> None:
    """Raises InputError where a split that is evaluated has a file missing or damaged."""
    for subset in (self._subset_on_the_way, self._final_subset):
      self._check_subset(subset)

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
    checkpoint = self._checkpoint()
    log.info('evaluating %s on %s', checkpoint, self._final_subset)
    return read_answers(self._estimator(), self._eval_input_fn(self._final_subset), checkpoint)

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
    meter: MeterHook | None = None,
  ) -> Any:
    """The Estimator. Only training knows, and needs, the data and the other tasks."""
    options = self._options
    replication = placement.Replication(
      cluster, self._gradients_per_update, self._watch, self._steering, strategy is not None
    )
    estimator = tf_estimator.Estimator(
      model_fn.get_model_fn(
        self._hparams,
        self._placement,
        self._data,
        examples_per_epoch=examples_per_epoch,
        replication=replication,
        meter=meter,
        histograms=options.histograms,
        prepared=prepared,
        use_ema=options.use_ema,
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
    # TensorBoard's names of runs are those of folders: not 'eval_validation' and 'eval_eval'. An
    # Estimator's methods cannot be overridden in a subclass.
    estimator.eval_dir = lambda name: os.path.join(options.job_dir, name)
    return estimator

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

  def _train_unless_over(self, evaluating: bool, more_hooks: Sequence[Any] = ()) -> tuple[str, int]:
    """Trains -> why that ended, and how many steps this process made."""
    job_dir = self._options.job_dir
    ended = ending.read(job_dir)
    if ended:
      reason, step = ended
      said = f'the job ended at step {step:,}: {reason.message}'
      if ending.holds(reason, self._options):
        log.info('%s; %s', said, ending.remedy(reason, job_dir))
        self._announce_done()
        return reason.name, 0
      log.info('%s; that holds no longer', said)
      if self._cluster.is_chief:
        ending.lift(job_dir)
    steps = self._train(evaluating, more_hooks)
    return (self._ending.reason or _LAST_STEP).name, steps

  def _train(self, evaluating: bool, more_hooks: Sequence[Any]) -> int:
    """Trains to the last step -> how many of the steps this process made."""
    evaluates = evaluating and not self._cluster.has_evaluator and not self._cluster.is_distributed
    run = self._run(evaluates=evaluates)
    estimator, meter = self._start(run)
    task_hook = stopping.TaskHook(self._watch, decides=not self._reduces_with_others)
    # The meter and the callbacks before the savers: they hear of a step before it is saved. Who
    # orders an end comes last, after all who may ask for one.
    hooks = [meter, *self._callbacks, *self._saver_hooks(run, evaluating), task_hook, *more_hooks]
    hooks += self._steering_hooks()
    with self._naming_nan(), run_config.tf_config(self._cluster), self._presence():
      if evaluates or self._cluster.is_distributed:  # In a cluster it evaluates nothing here.
        tf_estimator.train_and_evaluate(
          estimator,
          tf_estimator.TrainSpec(self._train_input_fn(), self._hparams.train_steps, hooks=hooks),
          self._eval_spec(),
        )
      else:
        estimator.train(self._train_input_fn(), max_steps=self._hparams.train_steps, hooks=hooks)
    self._end(meter.step)
    return task_hook.steps

  def _end(self, step: int) -> None:
    """Tells callbacks, remembers an early end, and lets parameter servers go."""
    if self._watch.stopping:
      self._tell_ended('SIGTERM', 'SIGTERM came', step)
      self._watch.check()
    reason = self._ending.reason or _LAST_STEP
    if self._ending.reason and self._cluster.is_chief:
      ending.write(self._options.job_dir, reason, _latest_step(self._options.job_dir))
    self._tell_ended(reason.name, reason.message, step)
    self._announce_done()

  def _tell_ended(self, reason: str, message: str, step: int) -> None:
    for callback in self._callbacks:
      callback.ended(reason, message, step)

  def _announce_done(self) -> None:
    if self._cluster.is_distributed:
      parameter_server.announce_done(self._cluster)

  def _presence(self) -> contextlib.AbstractContextManager[Any]:
    """Lets `control` see who trains."""
    is_chief = self._cluster.is_chief
    return control_channel.Presence(self._options.job_dir) if is_chief else contextlib.nullcontext()

  def _steering_hooks(self) -> list[Any]:
    if self._cluster.is_chief:
      return [steered.LeaderHook(self._steering, self._ending)]
    return [] if self._steering.agrees else [steered.FollowerHook(self._steering, self._watch)]

  def _run(self, evaluates: bool = False) -> Run:
    """What callbacks know; the data's part of it is added where training starts."""
    return Run(
      self._hparams,
      self._options,
      self._data,
      self._cluster,
      self._watch,
      self._steering,
      self._ending,
      evaluates=evaluates,
      remember=functools.partial(job_dir.remember_control, self._options.job_dir),
    )

  def _eval_spec(self) -> Any:
    subset = self._subset_on_the_way

    def heard(metrics: Mapping[str, Any], checkpoint: str) -> None:
      self._heard(metrics, subset, checkpoint, on_the_way=True)

    return tf_estimator.EvalSpec(
      self._eval_input_fn(subset),
      steps=None,
      name=subset,
      hooks=[self._evaluation_bar(subset), self._matrix],
      exporters=[evaluation.Listener(heard)],
      start_delay_secs=0,
      throttle_secs=0,  # Every checkpoint: eval_every_steps says how many there are.
    )

  def _evaluation_bar(self, subset: str) -> Any:
    count = dataset.Cifar10DataSet(self._data_dir, subset).num_examples_per_epoch()
    return progress.EvaluationBarHook(subset, count, self._hparams.eval_batch_size)

  def _is_last(self, checkpoint: str) -> bool:
    """Whether training ended with it, at the last step or before."""
    step = checkpoints.global_step(checkpoint)
    ended = ending.read(self._options.job_dir)
    ended_here = ended and ended[1] == step and ending.holds(ended[0], self._options)
    return step >= self._hparams.train_steps or bool(ended_here)

  def _chief_is_there(self) -> bool:
    return any(map(reachable, self._cluster.addresses.get('chief', ())))

  def _start(self, run: Run) -> tuple[Any, MeterHook]:
    """Checks data and job dir, writes a new job's configuration, makes the callbacks.

    Returns:
      The Estimator to train, and what measures its steps.
    """
    hparams, options = self._hparams, self._options
    num_towers = len(self._placement.tower_devices)
    dataset.check_shards(hparams.train_batch_size, num_towers)
    train_set = dataset.Cifar10DataSet(self._data_dir, hparams.train_on)
    num_examples = train_set.num_examples_per_epoch()
    session = self._session_config()
    start = Start(train_set.first_images, self._data, session, self._placement.num_gpus)
    prepared = hparams.family.prepare(start)
    if self._cluster.is_chief:
      checkpoints.check_resumes_averages(options.job_dir, hparams.ema_decay)
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
    self._resume_control()
    run.examples_per_epoch = num_examples
    run.examples_per_step = schedules.examples_per_global_step(
      hparams.train_batch_size, self._gradients_per_update or 1
    )
    self._callbacks = registry.make_all(run)
    counts = self._cluster.is_chief and (
      bool(self._gradients_per_update) or not self._cluster.is_distributed
    )
    meter = MeterHook(self._callbacks, counts)
    estimator = self._estimator(num_examples, self._cluster, self._strategy, prepared, meter)
    return estimator, meter

  def _resume_control(self) -> None:
    """Takes up what `control` has set in this job."""
    if not self._cluster.is_chief:
      return
    rates: dict[str, Any] = job_dir.read_control(self._options.job_dir)
    self._steering.orders = Orders(**rates)
    for name, value in rates.items():
      log.info(
        '%s is %g, as control set it; `%s=%s` goes back to the options',
        name,
        value,
        name,
        control_channel.SCHEDULE,
      )

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
    return _latest_step(self._options.job_dir)

  def _eval_input_fn(self, subset: str) -> Callable[[], Any]:
    def input_fn() -> Any:
      self._watch.check()  # SIGTERM leaves no time to evaluate what was just saved.
      return dataset.input_fn(
        self._data_dir, subset, 1, self._hparams.eval_batch_size, is_training=False
      )

    return input_fn

  def _saver_hooks(self, run: Run, evaluating: bool) -> list[Any]:
    """The Estimator evaluates when the first one saves; a second may save at other steps."""
    if not self._cluster.is_chief:
      return []
    options = self._options
    steps = [options.save_every_steps or options.eval_every_steps]
    if evaluating:
      steps.insert(0, options.eval_every_steps)
    hooks = [
      saving.SaveHook(options.job_dir, every, self._callbacks) for every in dict.fromkeys(steps)
    ]
    run.save = hooks[0].save_now
    return hooks

  def _check_subset(self, subset: str) -> None:
    """Raises InputError where the split's file is missing or damaged."""
    dataset.Cifar10DataSet(self._data_dir, subset).num_examples_per_epoch()

  def _saved(self) -> JsonObject:
    """The last checkpoint, as the program prints it."""
    checkpoint = self._checkpoint()
    return {'global_step': checkpoints.global_step(checkpoint), 'checkpoint': checkpoint}

  def _evaluated(self, subset: str, on_the_way: bool = False) -> JsonObject:
    """One evaluation, as the program prints it; not made again if it was the last one made."""
    checkpoint = self._checkpoint()
    last = self._last_evaluation
    step = checkpoints.global_step(checkpoint)
    if (last.get('subset'), last.get('global_step')) != (subset, step):
      metrics = self._estimator().evaluate(
        self._eval_input_fn(subset),
        name=subset,
        checkpoint_path=checkpoint,
        hooks=[self._evaluation_bar(subset), self._matrix],
      )
      self._heard(metrics, subset, checkpoint, on_the_way)
    return self._last_evaluation

  def _heard(
    self, metrics: Mapping[str, Any], subset: str, checkpoint: str, on_the_way: bool
  ) -> None:
    """Remembers an evaluation, and tells callbacks of it."""
    made = evaluation.make_evaluation(
      metrics,
      self._matrix.matrix,
      subset,
      checkpoint,
      self._data.classes,
      on_the_way=on_the_way,
      use_ema=self._options.use_ema,
    )
    self._last_evaluation = dict(made.result)
    for callback in self._callbacks:
      callback.evaluated(made)

  def _checkpoint(self) -> str:
    """The one that was named, or the latest; raises InputError where there is none."""
    checkpoint = checkpoints.find(self._options.job_dir, self._options.checkpoint)
    checkpoints.check_classes(checkpoint, self._hparams.family.NAME, self._data.num_classes)
    if self._options.use_ema:
      checkpoints.check_has_averages(checkpoint)
    return checkpoint

  @contextlib.contextmanager
  def _naming_nan(self) -> Iterator[None]:
    try:
      yield
    except tf.compat.v1.train.NanLossDuringTrainingError:
      raise InputError(
        f'the loss became NaN with --learning-rate {self._hparams.learning_rate}; lower it, name a '
        'new --job-dir or resume from the last checkpoint'
      ) from None


def _latest_step(job_dir: str) -> int:
  """Of the latest checkpoint; 0 before there is one."""
  latest = tf.train.latest_checkpoint(job_dir)
  return checkpoints.global_step(latest) if latest else 0
