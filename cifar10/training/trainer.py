"""The training loop of a job in one process: from the options to the last evaluation."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from cifar10.callbacks import registry
from cifar10.callbacks.base import Callback, Run
from cifar10.callbacks.meter import MeterHook
from cifar10.cluster import all_reduce
from cifar10.cluster.control import ControlState
from cifar10.cluster.roles import Role
from cifar10.core import devices, storage_errors
from cifar10.core.logs import log
from cifar10.data import input_pipeline, manifest
from cifar10.job import (
  best_checkpoints,
  checkpoints,
  control_requests,
  job_config,
  stop_record,
)
from cifar10.networks import families
from cifar10.networks.fastnet import Start
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions
from cifar10.training import checkpoint_saver, ema, faults, feed, warm_start
from cifar10.training.evaluator import EvaluateListener, Evaluator
from cifar10.training.model_fn import Training
from cifar10.training.network_size import OwnNetworkHook
from cifar10.training.process import Process, in_steps, tf_config

_LAST_STEP = stop_record.StopReason('train_steps', 'the last step was made')


def train_and_evaluate(process: Process) -> dict[str, Any]:
  """Trains to the last step with evaluations on the way, then evaluates the test split once.

  In a cluster the chief and the workers train. If TF_CONFIG lists an evaluator, it evaluates on
  the way and at the end in place of the chief.

  Returns:
    The last evaluation, as the program prints it; for a worker, its name and steps; for a chief
      with an evaluator, the last checkpoint.

  Raises:
    InputError: data are missing or not the job's, the towers cannot share a batch, or the loss
      became NaN.
    Terminated: the process received SIGTERM, Ctrl-C or SIGHUP; the chief has saved.
  """
  role = process.role
  evaluator = Evaluator(process)
  if role.evaluates_at_the_end:  # So that a damaged split is found before training, not after.
    evaluator.check_splits()
  ended_by, steps = _train(process, evaluator)
  if not role.saves:
    return {'task': role.cluster.name, 'steps': steps}
  if evaluator.callbacks and not steps and role.evaluates_on_the_way:
    evaluator.catch_up()
  last = evaluator.evaluated(process.final_split) if role.evaluates_at_the_end else _saved(process)
  return {**last, 'ended_by': ended_by}


def train(process: Process, more_hooks: Sequence[Any] = ()) -> dict[str, Any]:
  """Trains to the last step with `more_hooks` beside its own, without evaluations."""
  ended_by, steps = _train(process, more_hooks=more_hooks)
  if not process.role.saves:
    return {'task': process.role.cluster.name, 'steps': steps}
  return {**_saved(process), 'ended_by': ended_by}


def _saved(process: Process) -> dict[str, Any]:
  """Returns the last checkpoint, as the program prints it."""
  checkpoint = process.checkpoint()
  return {'global_step': checkpoints.global_step(checkpoint), 'checkpoint': checkpoint}


# Under a strategy AutoGraph would convert all code that builds the graph. There is nothing to
# convert, and AutoGraph's files stay in the temporary folder if the process is killed.
@tf.autograph.experimental.do_not_convert
def _train(
  process: Process, evaluator: Evaluator | None = None, more_hooks: Sequence[Any] = ()
) -> tuple[str, int]:
  """Trains; returns why training ended, and how many steps this process made.

  An evaluator evaluates on the way, and calls the training's callbacks.
  """
  role = process.role
  # Filled when all that they need exists.
  callbacks: list[Callback] = evaluator.callbacks if evaluator else []
  if reason := still_ended(process.options):
    role.announce_done()
    return reason.name, 0
  # Everything that can be refused is refused here, before anything is written.
  examples = feed.training_examples(process.hparams, process.data_dir, role.cluster, process.data)
  training = _check_data(process, examples)
  if process.hparams.family.PLACE:  # A user's own may fail in evaluation alone, hours from here.
    is_deterministic = process.options.deterministic
    hook = OwnNetworkHook(process.hparams, process.data, is_deterministic=is_deterministic)
    more_hooks = [*more_hooks, hook]
  num_examples = training.examples_per_epoch
  process.hparams, process.options = in_steps(process.hparams, process.options, role, num_examples)
  with _lock(process):
    _claim(process)
    _log_start(process, num_examples)
    stop_request = stop_record.StopRequest()
    saver_hooks = _saver_hooks(process, callbacks, evaluator)
    run = Run(
      process.hparams,
      process.options,
      process.data,
      role,
      stop_request,
      examples_per_epoch=num_examples,
      examples_per_step=role.examples_per_step(process.hparams.train_batch_size),
      evaluates=evaluator is not None and role.evaluates_on_the_way,
      save=saver_hooks[0].save_now if saver_hooks else Run.save,
    )
    callbacks += registry.make_all(run, process.own_callbacks)
    meter = MeterHook(callbacks, role.counts_steps, run.epochs)
    task_hook = _TaskHook(role)
    # The meter and the callbacks precede the savers, so that on_step_end runs before a save. The
    # control hooks, which end training, come after all that may request an end.
    hooks = [*role.first_hooks(), meter, *callbacks, *saver_hooks, task_hook, *more_hooks]
    hooks += role.control_hooks(stop_request)
    estimator = process.estimator(training._replace(on_graph=meter.on_graph))
    try:
      with examples.reading(), tf_config(role.cluster):
        role.train(estimator, input_fn(process, examples), process.hparams.train_steps, hooks)
    except BaseException as error:
      faults.tell(error, run, callbacks, meter.step)
      raise
    ended_by = _end(run, callbacks, meter.step)
  return ended_by, task_hook.steps


def still_ended(options: RunOptions) -> stop_record.StopReason | None:
  """Returns the reason of the job's early end if it still holds with these options; logs it."""
  ended = stop_record.read(options.job_dir)
  if not ended or (surveyed := checkpoints.survey(options.job_dir)).is_new:
    return None
  reason, step = ended
  ending = f'the job ended at step {step:,}: {reason.message}'
  # Without its last checkpoint a job has not come so far.
  is_there = surveyed.newest and checkpoints.global_step(surveyed.newest) == step
  if is_there and stop_record.holds(reason, options):
    log.info('%s; %s', ending, stop_record.remedy(reason, options.job_dir))
    return reason
  log.info('%s; that no longer holds', ending)
  return None


def check_resumes(hparams: HParams, options: RunOptions) -> tuple[checkpoints.Survey, ControlState]:
  """Checks what the job dir holds; returns its checkpoints, and the rates that `control` has set.

  Raises:
    InputError: a file there is damaged, or the checkpoints lack the averages of --ema-decay.
  """
  surveyed = checkpoints.to_resume_from(options.job_dir)
  if hparams.ema_decay:
    ema.check_resumes(options.job_dir, surveyed.newest, hparams.ema_decay)
  if options.keep_best:
    best_checkpoints.read(options.job_dir)
  if job_config.CONTROL not in (job_config.read_config(options.job_dir) or {}):
    return surveyed, ControlState()
  return surveyed, ControlState(**control_requests.read_rates(options.job_dir))


def input_fn(process: Process, examples: feed.Examples) -> Callable[[], Any]:
  """Returns an input function whose batches continue where training stands."""

  def make_batches() -> Any:
    if process.strategy is None:
      # A tensor, because a worker may not see the checkpoints, and a session that a lost parameter
      # server has ended is created again. It is read when the iterator is initialised.
      step = tf.cast(tf.compat.v1.train.get_global_step().read_value(), tf.int64)
    else:
      step = checkpoints.latest_step(process.options.job_dir)
    size, worker = process.hparams.train_batch_size, process.role.cluster.worker
    first_example = process.role.batches_done(step) * size
    batches = examples.make_batch(size, process.hparams.seed, worker, first_example)
    batches = input_pipeline.cut(batches, len(process.placement.tower_devices))
    return batches if process.strategy is None else all_reduce.to_replicas(batches)

  return make_batches


def _check_data(process: Process, examples: feed.Examples) -> Training:
  """Checks the data before writing anything; returns what is known of the training by then."""
  hparams = process.hparams
  hparams.family.describe()  # A user's own may fail.
  input_pipeline.check_shards(hparams.train_batch_size, len(process.placement.tower_devices))
  input_pipeline.check_memory(hparams.train_batch_size, '--train-batch-size')
  num_examples = examples.num_examples_per_epoch()
  start = Start(
    examples.first_images, process.data, process.session_config(), process.placement.num_gpus
  )
  prepared = families.prepare(hparams.family, start)
  if not (hparams.freeze or process.options.warm_start_from):
    return Training(process.role, num_examples, prepared)
  initializers = warm_start.initializers_of_job(process)
  return Training(process.role, num_examples, prepared, initializers)


@contextlib.contextmanager
def _lock(process: Process) -> Iterator[None]:
  """The chief's lock on the job dir: prevents a second training; `control` reads it."""
  if not process.role.saves:
    yield
    return
  folder = process.options.job_dir
  with contextlib.ExitStack() as stack:
    with storage_errors.refusing('--job-dir', folder):
      stack.enter_context(job_config.training_lock(folder))
    checkpoint_saver.remove_half_saved(folder)
    yield


def _claim(process: Process) -> None:
  """The chief's: checks the job dir, and writes a new job's configuration.

  It also restores the learning rates that `control` has set in this job.
  """
  options, hparams, role = process.options, process.hparams, process.role
  if not role.saves:
    return
  surveyed, role.control.state = check_resumes(hparams, options)
  digests = manifest.digests(process.data_dir)
  changes = job_config.update_config(
    options.job_dir, hparams, process.data_dir, process.data, digests
  )
  if changes:
    log.info('unlike before in this job: %s', ', '.join(changes))
  if surveyed.damaged and surveyed.newest:
    checkpoints.set_aside(options.job_dir, surveyed)
  stop_record.lift(options.job_dir)


def _log_start(process: Process, num_examples: int) -> None:
  """Logs what is trained, and which options are ignored."""
  options, hparams, role = process.options, process.hparams, process.role
  if options.sync and options.distribute:
    log.info('--sync is ignored: --distribute %s always is', options.distribute)
  elif options.sync and not role.gradients_per_update:
    log.info('--sync is ignored: there is one replica, which waits for no other')
  if options.num_workers != 1:
    log.info('--num-workers is ignored: the cluster says how many there are')
  log.info(
    f'training {hparams.family.describe()} on {num_examples:,} examples, batch '
    f'{hparams.train_batch_size}, {hparams.dtype}, {len(process.placement.tower_devices)} tower(s)'
    f'{role.described()}, to step {hparams.train_steps:,}'
  )
  step = checkpoints.latest_step(options.job_dir) if role.saves else 0
  if step >= hparams.train_steps:
    log.info('the job is at step %s: no step is left; --train-steps counts all', f'{step:,}')
  if not process.placement.num_gpus:
    log.info(devices.described_kernels())


def _saver_hooks(
  process: Process, callbacks: Sequence[Callback], evaluator: Evaluator | None
) -> list[checkpoint_saver.SaveHook]:
  """Returns the savers: the first one's checkpoints are evaluated, a second one's are not."""
  options, role = process.options, process.role
  if not role.saves:
    return []
  steps = [options.save_every_steps or options.eval_every_steps]
  # An evaluator evaluates all checkpoints: early stopping counts them.
  is_by_steps = options.save_every_steps or role.cluster.has_evaluator
  listeners = []
  if evaluator:
    steps.insert(0, options.eval_every_steps)
    if role.evaluates_on_the_way:
      listeners.append(EvaluateListener(evaluator, process))
  return [
    checkpoint_saver.SaveHook(
      options.job_dir,
      every,
      callbacks,
      told,
      every_seconds=math.inf if is_by_steps else checkpoint_saver.SECONDS,
      updates_later=role.updates_later,
    )
    for every, told in zip(dict.fromkeys(steps), (listeners, []))
  ]


class _TaskHook(tf.compat.v1.train.SessionRunHook):
  """Reports every step to the monitor, and ends training after the step in which SIGTERM came."""

  def __init__(self, role: Role):
    self._monitor = role.monitor
    self._decides = role.ends_by_itself
    self._steps_told = 0
    self.steps = 0  # Steps of this process alone.

  def before_run(self, run_context: Any) -> Any:
    # Not in after_run, where another hook may be waiting for the other workers.
    if self.steps > self._steps_told:
      self._steps_told = self.steps
      self._monitor.progressed()

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self.steps += 1
    if self._decides and self._monitor.stopping:
      run_context.request_stop()

  def end(self, session: Any) -> None:
    self._monitor.finish()


def _end(run: Run, callbacks: Sequence[Callback], step: int) -> str:
  """Calls callbacks, records an early end, releases the parameter servers; returns the reason."""
  run.monitor.closed()
  if run.is_chief:  # A finished job made no step, a synchronous chief no update of its last batch.
    step = checkpoints.latest_step(run.job_dir)
    if run.stop_request.reason:
      stop_record.write(run.job_dir, run.stop_request.reason, step)
  if run.monitor.stopping:
    faults.tell_stop(callbacks, run.monitor, step)
    run.monitor.check()
  reason = run.stop_request.reason or _LAST_STEP
  if reason is _LAST_STEP and run.is_chief and step < run.last_step:
    reason = stop_record.StopReason('callback', f'a callback ended it at step {step:,}')
  for callback in callbacks:
    callback.on_train_end(reason.name, reason.message, step)
  run.role.announce_done()
  return reason.name
