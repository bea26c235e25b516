"""Trains a job in one process: what runs beside its steps, and how it begins and ends."""

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from cifar10.callbacks import registry
from cifar10.callbacks.base import Callback, Run
from cifar10.callbacks.meter import MeterHook
from cifar10.cluster import parameter_server
from cifar10.cluster.control_state import ControlState
from cifar10.core import devices, storage_errors
from cifar10.core.errors import InputError, Terminated
from cifar10.core.estimator import tf_estimator
from cifar10.core.logs import log
from cifar10.data import input_pipeline, manifest
from cifar10.job import checkpoints, control_requests, job_config, stop_record
from cifar10.networks.family import Start
from cifar10.training import (
  checkpoint_saver,
  control_hooks,
  ema,
  network_size,
  preemption,
  run_config,
  schedules,
  warm_start,
)
from cifar10.training.evaluator import Evaluator
from cifar10.training.network_builder import Initialization
from cifar10.training.process import Process

_LAST_STEP = stop_record.StopReason('train_steps', 'the last step was made')
_SIGTERM = ('SIGTERM', 'SIGTERM came')


def make_run(process: Process, end: stop_record.StopRequest, evaluates: bool = False) -> Run:
  """What callbacks know; the data's part of it is added where training starts."""
  return Run(
    process.hparams,
    process.options,
    process.data,
    process.cluster,
    process.monitor,
    process.control,
    end,
    evaluates=evaluates,
    remember=functools.partial(job_config.remember_control, process.options.job_dir),
  )


class Trainer:
  """Trains to the last step, or until somebody ends it."""

  def __init__(self, process: Process, evaluator: Evaluator):
    """Args:
    process: what is trained, and where.
    evaluator: evaluates on the way; it tells this one's callbacks.
    """
    self._process = process
    self._evaluator = evaluator
    self._stop_request = stop_record.StopRequest()
    self._callbacks: Sequence[Callback] = ()

  # A strategy would have AutoGraph convert all that builds the graph, which has nothing to convert,
  # and its files stay in the temporary folder when the process is killed.
  @tf.autograph.experimental.do_not_convert
  def train(self, evaluating: bool, more_hooks: Sequence[Any] = ()) -> tuple[str, int]:
    """Trains -> why that ended, and how many steps this process made."""
    folder = self._process.options.job_dir
    ended = stop_record.read(folder)
    if ended:
      reason, step = ended
      said = f'the job ended at step {step:,}: {reason.message}'
      if stop_record.holds(reason, self._process.options):
        log.info('%s; %s', said, stop_record.remedy(reason, folder))
        self._announce_done()
        return reason.name, 0
      log.info('%s; that holds no longer', said)
    num_examples, beginning = self._checked_data()
    with self._lock():
      if ended and self._process.cluster.is_chief:
        stop_record.lift(folder)
      steps = self._train(evaluating, more_hooks, num_examples, beginning)
    return (self._stop_request.reason or _LAST_STEP).name, steps

  def _checked_data(self) -> tuple[int, Initialization]:
    """Checks the data before anything is written -> how many there are; what to start with."""
    process = self._process
    hparams, num_towers = process.hparams, len(process.placement.tower_devices)
    input_pipeline.check_shards(hparams.train_batch_size, num_towers)
    input_pipeline.check_memory(hparams.train_batch_size, '--train-batch-size')
    num_examples = process.feed.num_examples()
    session, num_gpus = process.session_config(), process.placement.num_gpus
    start = Start(process.feed.first_images, process.data, session, num_gpus)
    return num_examples, Initialization(hparams.family.prepare(start), self._initializers())

  @contextlib.contextmanager
  def _lock(self) -> Iterator[None]:
    """The chief's: nobody else trains in the job dir, and `control` sees that this one does."""
    folder = self._process.options.job_dir
    with contextlib.ExitStack() as stack:
      if self._process.cluster.is_chief:
        with storage_errors.refusing('--job-dir', folder):
          stack.enter_context(control_requests.taking(folder))
        checkpoint_saver.remove_half_saved(folder)
      yield

  def _train(
    self, evaluating: bool, more_hooks: Sequence[Any], num_examples: int, beginning: Initialization
  ) -> int:
    """Trains to the last step -> how many of the steps this process made."""
    process, cluster = self._process, self._process.cluster
    evaluates = evaluating and not cluster.has_evaluator and not cluster.is_distributed
    run = make_run(process, self._stop_request, evaluates)
    estimator, meter = self._start(run, num_examples, beginning)
    if evaluates:  # Where nothing is, an all-reduce copies the Estimator, deeply.
      estimator.evaluate = self._evaluator.evaluate
    task_hook = preemption.TaskHook(process.monitor, decides=not process.control.is_all_reduce)
    # The meter and the callbacks before the savers: they hear of a step before it is saved. Who
    # orders an end comes last, after all who may ask for one.
    hooks = [meter, *self._callbacks, *self._saver_hooks(run, evaluating), task_hook, *more_hooks]
    hooks += self._control_hooks()
    last_step = process.hparams.train_steps
    with (
      self._naming_nan(),
      self._telling_errors(meter),
      process.feed.reading(),
      run_config.tf_config(cluster),
    ):
      if evaluates or cluster.is_distributed:  # In a cluster it evaluates nothing here.
        train_spec = tf_estimator.TrainSpec(process.train_input_fn(), last_step, hooks=hooks)
        tf_estimator.train_and_evaluate(estimator, train_spec, self._evaluator.spec())
      else:
        estimator.train(process.train_input_fn(), max_steps=last_step, hooks=hooks)
    self._end(meter.step)
    return task_hook.steps

  @contextlib.contextmanager
  def _telling_errors(self, meter: MeterHook) -> Iterator[None]:
    """Tells callbacks of an end that is none of the training's own."""
    try:
      yield
    except Terminated:  # It came while a checkpoint was evaluated.
      self._tell_train_end(*_SIGTERM, meter.step)
      raise
    except BaseException as error:
      said = str(error).partition('\n')[0]
      # Where files cannot be written, this one cannot either.
      with contextlib.suppress(OSError, tf.errors.OpError):
        self._tell_train_end('error', f'{type(error).__name__}: {said}', meter.step)
      raise

  def _start(self, run: Run, num_examples: int, beginning: Initialization) -> tuple[Any, MeterHook]:
    """Checks the job dir, writes a new job's configuration, makes the callbacks.

    Returns:
      The Estimator to train, and what measures its steps.
    """
    hparams, options = self._process.hparams, self._process.options
    num_towers = len(self._process.placement.tower_devices)
    if self._process.cluster.is_chief:
      found = checkpoints.to_resume_from(options.job_dir)
      if hparams.ema_decay:
        ema.check_resumes(options.job_dir, found.newest, hparams.ema_decay)
      data = manifest.digests(self._process.data_dir)
      changes = job_config.claim(
        options.job_dir, hparams, self._process.data_dir, self._process.data, data
      )
      if changes:
        log.info('unlike before in this job: %s', ', '.join(changes))
      checkpoints.set_aside(options.job_dir, found)
    elif self._process.strategy is not None:
      self._wait_for_whole_checkpoints()
    if options.sync and options.distribute:
      log.info('--sync is ignored: --distribute %s always is', options.distribute)
    elif options.sync and not self._process.gradients_per_update:
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
    if not self._process.placement.num_gpus:
      log.info(devices.described_kernels())
    self._resume_control()
    run.examples_per_epoch = num_examples
    run.examples_per_step = schedules.examples_per_global_step(
      hparams.train_batch_size, self._process.gradients_per_update or 1
    )
    self._callbacks = self._evaluator.callbacks = registry.make_all(run)
    counts = self._process.cluster.is_chief and (
      bool(self._process.gradients_per_update) or not self._process.cluster.is_distributed
    )
    meter = MeterHook(self._callbacks, counts)
    estimator = self._process.estimator(
      num_examples, self._process.cluster, self._process.strategy, beginning, meter
    )
    return estimator, meter

  def _initializers(self) -> dict[str, Any]:
    """What --freeze and --warm-start-from ask for, checked before the job dir is touched.

    Returns:
      The chief's initializers of a new job; the other tasks get its values.
    """
    hparams, options = self._process.hparams, self._process.options
    if not (hparams.freeze or options.warm_start_from):
      return {}
    shapes, trained = network_size.variable_shapes(hparams, self._process.data)
    warm_start.check_frozen(hparams.freeze, shapes, trained)
    if not (options.warm_start_from and self._process.cluster.is_chief):
      return {}
    if not checkpoints.survey(options.job_dir).is_new:
      log.info('--warm-start-from is ignored: the job goes on from its own checkpoint')
      return {}
    device = self._process.cluster.job + '/device:CPU:0'
    return warm_start.initializers(options.warm_start_from, options.warm_start_skip, shapes, device)

  def _wait_for_whole_checkpoints(self) -> None:
    """Returns when the chief has set aside what is damaged: each replica restores by itself."""
    while checkpoints.to_resume_from(self._process.options.job_dir).damaged:
      self._process.monitor.check()
      time.sleep(1)

  def _resume_control(self) -> None:
    """Takes up what `control` has set in this job."""
    if not self._process.cluster.is_chief:
      return
    rates: dict[str, Any] = job_config.read_control(self._process.options.job_dir)
    self._process.control.state = ControlState(**rates)
    for name, value in rates.items():
      log.info(
        '%s is %g, as control set it; `%s=%s` goes back to the options',
        name,
        value,
        name,
        control_requests.SCHEDULE,
      )

  def _described_cluster(self) -> str:
    """', as worker 0 of 3 workers and 1 parameter server(s), updating asynchronously'."""
    cluster = self._process.cluster
    if not cluster.is_distributed:
      return ''
    gradients = self._process.gradients_per_update
    updates = f'every {gradients} gradients' if gradients else 'asynchronously'
    servers = f' and {cluster.num_ps} parameter server(s)' if cluster.num_ps else ''
    return f', as {cluster.name} of {cluster.num_workers} workers{servers}, updating {updates}'

  def _saver_hooks(self, run: Run, evaluating: bool) -> list[Any]:
    """The Estimator evaluates when the first one saves; a second may save at other steps."""
    if not self._process.cluster.is_chief:
      return []
    options = self._process.options
    steps = [options.save_every_steps or options.eval_every_steps]
    if evaluating:
      steps.insert(0, options.eval_every_steps)
    process = self._process
    updates_later = process.replication(process.cluster, process.strategy).updates_together
    hooks = [
      checkpoint_saver.SaveHook(
        options.job_dir, every, self._callbacks, updates_later=updates_later
      )
      for every in dict.fromkeys(steps)
    ]
    run.save = hooks[0].save_now
    return hooks

  def _control_hooks(self) -> list[Any]:
    if self._process.cluster.is_chief:
      return [control_hooks.ChiefControlHook(self._process.control, self._stop_request)]
    return (
      []
      if self._process.control.is_all_reduce
      else [control_hooks.WorkerControlHook(self._process.control, self._process.monitor)]
    )

  def _end(self, step: int) -> None:
    """Tells callbacks, remembers an early end, and lets parameter servers go."""
    monitor = self._process.monitor
    monitor.closed()
    if monitor.stopping:
      self._tell_train_end(*(('task_lost', monitor.lost) if monitor.lost else _SIGTERM), step)
      monitor.check()
    reason = self._stop_request.reason or _LAST_STEP
    if self._stop_request.reason and self._process.cluster.is_chief:
      stop_record.write(
        self._process.options.job_dir,
        reason,
        checkpoints.latest_step(self._process.options.job_dir),
      )
    self._tell_train_end(reason.name, reason.message, step)
    self._announce_done()

  def _tell_train_end(self, reason: str, message: str, step: int) -> None:
    for callback in self._callbacks:
      callback.on_train_end(reason, message, step)

  def _announce_done(self) -> None:
    if self._process.cluster.is_distributed:
      parameter_server.announce_done(self._process.cluster)

  @contextlib.contextmanager
  def _naming_nan(self) -> Iterator[None]:
    try:
      yield
    except tf.compat.v1.train.NanLossDuringTrainingError:
      raise InputError(
        f'the loss became NaN with --learning-rate {self._process.hparams.learning_rate}; lower '
        'it, name a new --job-dir or resume from the last checkpoint'
      ) from None
