"""The Estimator that trains a job: under its lock, with its configuration, hooks, and end."""

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.callbacks import registry
from cifar10.callbacks.base import Callback, Meter
from cifar10.callbacks.metrics import log_changes
from cifar10.callbacks.validation import EarlyStopping
from cifar10.cluster.control import ControlState
from cifar10.cluster.parameter_server import announce_done, chief_is_done, step_there
from cifar10.cluster.roles import Role
from cifar10.core import devices, files
from cifar10.core.errors import CommandError, InputError, StorageError, TaskLostError, Terminated
from cifar10.core.logs import log
from cifar10.data import manifest
from cifar10.job import checkpoints, control_requests, job_config, metrics_log, stop_record
from cifar10.job.run import Run
from cifar10.job.stop_record import StopReason
from cifar10.options.run_options import RunOptions
from cifar10.training import checkpoint_saver
from cifar10.training.estimator import Predictor, model_function, run_config
from cifar10.training.evaluator import Evaluator, Examples
from cifar10.training.model_fn import Training
from estimator_again import estimator as tf_estimator


class JobEstimator(tf_estimator.Estimator):
  """An Estimator whose `train` and `evaluate` are the job's.

  `train` trains as the command does: with the job's lock, its configuration and the record of an
  early end. `evaluate` restores a checkpoint into a session that it keeps: TensorFlow's builds the
  graph and a session each time, which takes seconds.

  Attributes:
    evaluator: evaluates on the way, and calls the training's callbacks.
    ended_by: why training ended, once it has.
    task_hook: counts the steps of this process.
  """

  def __init__(self, run: Run, training: Training, examples: Examples):
    """Writes nothing; `run` is from `experiment.for_training`."""
    self.evaluator = Evaluator(run)
    self.ended_by = ''
    self.task_hook = _TaskHook(run.role)
    self._run = run
    self._examples = examples
    self._others: list[Callback] = []  # Filled when the job is this process's.
    self._meter = Meter(run, self._others)
    training = training._replace(on_graph=self._meter.on_graph)
    super().__init__(model_function(run, training), config=run_config(run), params=run.hparams)

  @staticmethod
  def _assert_members_are_not_overridden(estimator: Any) -> None:
    """Allows `train` and `evaluate` below, which TensorFlow refuses in subclasses."""

  def train(
    self, input_fn: Callable[..., Any], hooks: Sequence[Any] | None = None, **more: Any
  ) -> 'JobEstimator':
    """As TensorFlow's, unless the job has ended early and that still holds.

    Raises:
      InputError: another process trains there, the job has other data, or the loss became NaN.
      StorageError: the job dir cannot be written.
      Terminated: the process received SIGTERM, Ctrl-C or SIGHUP; the chief has saved.
    """
    run = self._run
    if reason := still_ended(run.options):
      self._make_hooks()  # Whose callbacks hear of the last evaluation, if a kill cut it off.
      announce_done(run.cluster)
      self.ended_by = reason.name
      return self
    with contextlib.ExitStack() as stack:
      if run.is_chief:  # No second process trains there; `control` reads the lock.
        with files.naming_errors('--job-dir', run.job_dir, is_first=True):
          stack.enter_context(job_config.training_lock(run.job_dir))
        checkpoint_saver.remove_half_saved(run.job_dir)
      claim(run)
      _log_start(run)
      own_hooks = self._make_hooks()
      try:
        self._make_up_for_an_evaluation()
        # It is to end where it resumes: no step is made. In a cluster the others hear by a step.
        if run.stop_reason and run.step and not run.cluster.is_distributed:
          more |= {'steps': None, 'max_steps': run.step}
        # TensorFlow skips a finished job's training, and a task of an all-reduce that is gone again
        # would be waited for.
        is_over = run.cluster.is_reduced and checkpoints.latest_step(run.job_dir) >= run.last_step
        is_over &= bool(more.get('max_steps'))
        connected = run.role.connected(self.config.session_config)
        with self._examples.reading(), contextlib.nullcontext() if is_over else connected:
          self._tell_lost_steps()
          super().train(input_fn, [*own_hooks, *(hooks or [])], **more)
        self._check_end()
      except BaseException as error:
        tell_of_error(error, run, self.evaluator.callbacks)
        raise
      self.ended_by = self._end()
    return self

  def evaluate(
    self,
    input_fn: Callable[..., Any],
    steps: int | None = None,
    hooks: Sequence[Any] | None = None,
    checkpoint_path: str | None = None,
    name: str | None = None,
  ) -> Mapping[str, Any]:
    """Returns the metrics by name, 'global_step' among them.

    The job's own input, of the split on the way, counts: callbacks hear of it, best/ is kept, and
    `steps` and `hooks` do nothing. Another input is evaluated as TensorFlow does.
    """
    if input_fn is not self.evaluator.input_fn:
      return super().evaluate(input_fn, steps, hooks, checkpoint_path, name)
    checkpoint = checkpoint_path or checkpoints.find(self._run.job_dir, None)
    return self.evaluator.evaluate(self._run.split_on_the_way, checkpoint, on_the_way=True)

  def _make_hooks(self) -> list[Any]:
    """Returns the job's hooks, in the order of their calls."""
    run, callbacks = self._run, self.evaluator.callbacks
    savers = [checkpoint_saver.SaveHook(run, callbacks)] if run.is_chief else []
    for saver in savers:
      run.save, run.predictor = saver.save_now, self._predictor
    self._others[:] = registry.make_all(run)
    callbacks[:] = [self._meter, *self._others]
    # The meter and the callbacks precede the saver, so that on_step_end runs before a save. The
    # control hook, which ends training, comes after all that may request an end; in an all-reduce
    # it comes first: the step itself sends the chief's orders to all.
    hooks, control = [*callbacks, *savers, self.task_hook], run.role.control
    return [control, *hooks] if run.cluster.is_reduced else [*hooks, control]

  def _predictor(self) -> Callable[[np.ndarray], np.ndarray]:
    network = Predictor(self._run)

    def probabilities(images: np.ndarray) -> np.ndarray:
      network.take(self._meter.session)
      return network(images).probabilities

    return probabilities

  def _make_up_for_an_evaluation(self) -> None:
    """Evaluates the latest checkpoint if a run before ended between saving and evaluating it.

    TensorFlow evaluates none that a training begins with.
    """
    run, step = self._run, self._run.step
    is_due = step > 0 and (step % run.options.eval_every_steps == 0 or step >= run.last_step)
    is_due &= run.evaluates and run.role.evaluates_on_the_way
    if is_due and not metrics_log.evaluations(run.job_dir, step, run.split_on_the_way):
      self.evaluator.evaluated(run.split_on_the_way, on_the_way=True)
    elif is_due:
      EarlyStopping(run).judge_again()

  def _tell_lost_steps(self) -> None:
    """The chief's, before it restores: says which steps the servers have and no checkpoint has."""
    run = self._run
    if run.is_chief and run.cluster.num_ps and run.step:
      run.steps_lost = max(step_there(run.cluster) - run.step, 0)
      if run.steps_lost:
        reached = f'{run.step + run.steps_lost:,}'
        log.info('all go back from step %s to %s, the last one saved', reached, f'{run.step:,}')

  def _check_end(self) -> None:
    """Notes the saved step; raises TaskLostError for a lost task, Terminated for a signal."""
    run, cluster, monitor = self._run, self._run.cluster, self._run.role.monitor
    # What a worker has read is the step before its own. A job may have been finished before.
    is_done = run.step + 1 >= run.last_step or run.role.control.state.ends
    # All tasks of an all-reduce end after the same step.
    waits = is_done and self.task_hook.steps and not (run.is_chief or cluster.is_reduced)
    is_saved = not waits or chief_is_done(cluster, monitor)
    monitor.closed = True
    if run.is_chief:  # A finished job made no step; a synchronous chief's last batch no update.
      run.step = checkpoints.latest_step(run.job_dir)
    monitor.check()
    if not is_saved and (saved := checkpoints.latest_step(run.job_dir)) < run.last_step:
      raise TaskLostError(
        f'the chief has ended before it saved the last step: --job-dir {run.job_dir} has step '
        f'{saved:,}; start the chief and this task again'
      )

  def _end(self) -> str:
    """Calls callbacks, records an early end, releases the servers; returns the reason."""
    run, reason = self._run, self._run.stop_reason
    if run.is_chief and reason:
      stop_record.write(run.job_dir, reason, run.step)
    elif run.is_chief and run.step < run.last_step:
      ended = f'a callback or max_steps ended it at step {run.step:,}'
      reason = StopReason(stop_record.BY_CALLBACK, ended)
    reason = reason or StopReason('train_steps', 'the last step was made')
    for callback in self.evaluator.callbacks:
      callback.on_train_end(reason.name, reason.message, run.step)
    announce_done(run.cluster)
    return reason.name


def still_ended(options: RunOptions) -> StopReason | None:
  """Returns the reason of the job's early end if it still holds with these options; logs it."""
  ended = stop_record.read(options.job_dir)
  if not ended:
    return None
  reason, step = ended
  # Without its last checkpoint a job has not come so far.
  holds = checkpoints.latest_step(options.job_dir) == step and stop_record.holds(reason, options)
  more = stop_record.remedy(reason, options.job_dir) if holds else 'that no longer holds'
  log.info('the job ended at step %s: %s; %s', f'{step:,}', reason.message, more)
  return reason if holds else None


def claim(run: Run, *, writes: bool = True) -> None:
  """The chief's: checks what the job dir holds, and takes it: writes the job's configuration.

  It also restores the learning rates that `control` has set in this job, and its step. Raises
  InputError where a file there is damaged, or the job was trained on other data.
  """
  options, hparams, role, job_dir = run.options, run.hparams, run.role, run.job_dir
  if not role.cluster.is_chief:
    return
  surveyed = checkpoints.survey(job_dir)
  run.step = checkpoints.global_step(surveyed.newest) if surveyed.newest else 0
  if options.keep_best:
    checkpoints.read_best(job_dir)
  rates = control_requests.read_rates(job_dir)
  role.control.state = ControlState(ends=bool(run.stop_reason), **rates)
  digests = manifest.digests(run.data_dir)
  before, now = job_config.before_and_now(job_dir, hparams, run.data_dir, run.data, digests)
  log_changes(run, before)
  if not writes:
    return
  if now != before:
    job_config.write_config(job_dir, now)
  if surveyed.damaged:
    checkpoints.set_aside(job_dir, surveyed)
  stop_record.lift(job_dir)


def _log_start(run: Run) -> None:
  """Logs what is trained, and which options are ignored."""
  options, hparams, role = run.options, run.hparams, run.role
  if options.sync and not role.is_sync:
    log.info('--sync is ignored: one replica waits for no other, and --distribute always does')
  log.info(
    f'training {hparams.family.describe()} on {run.examples_per_epoch:,} examples, batch '
    f'{hparams.train_batch_size}, {hparams.dtype}, {len(run.placement.tower_devices)} tower(s)'
    f'{role.described()}, to step {hparams.train_steps:,}'
  )
  if run.step >= hparams.train_steps:
    log.info('the job is at step %s: no step is left; --train-steps counts all', f'{run.step:,}')
  fast, reason = devices.fast_dtype(run.placement.num_gpus)
  if hparams.dtype == 'float32' and fast == 'bfloat16':
    log.info('--dtype auto would be bfloat16, on a CPU about half again as fast: %s', reason)
  if not run.placement.num_gpus:
    log.info(devices.described_kernels())


class _TaskHook(tf.compat.v1.train.SessionRunHook):
  """Reports every step to the monitor, and ends training after the step in which SIGTERM came."""

  def __init__(self, role: Role):
    self._role = role
    self._steps_told = 0
    self.steps = 0  # Steps of this process alone.

  def before_run(self, run_context: Any) -> Any:
    # Not in after_run, where another hook may be waiting for the other workers.
    if self.steps > self._steps_told:
      self._steps_told = self.steps
      self._role.monitor.progressed()

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self.steps += 1
    if self._role.monitor.stopping and not self._role.cluster.is_reduced:  # All decide together.
      run_context.request_stop()

  def end(self, session: Any) -> None:
    self._role.monitor.progressed()


def tell_of_error(error: BaseException, run: Run, callbacks: Sequence[Callback]) -> None:
  """Tells callbacks of an end by an error or a signal; raises InputError for a user's mistake."""
  first_line = str(error).partition('\n')[0]
  reason = 'error', f'{type(error).__name__}: {first_line}'
  if isinstance(error, KeyboardInterrupt):  # The second Ctrl-C, for which nothing is saved.
    reason = 'SIGINT', 'SIGINT came twice'
  elif isinstance(error, Terminated):
    reason = str(error), f'{error} came'
  elif isinstance(error, TaskLostError):
    reason = 'task_lost', first_line
  if isinstance(error, (Terminated, TaskLostError)) and run.is_chief and run.stop_reason:
    with contextlib.suppress(OSError, CommandError):
      stop_record.write(run.job_dir, run.stop_reason, checkpoints.latest_step(run.job_dir))
  for callback in callbacks:  # None of them can make another end of it.
    try:
      callback.on_train_end(*reason, run.step)
    except (OSError, StorageError, tf.errors.OpError):
      pass  # Where no file can be written, this one cannot write either; the next may still tell.
    except CommandError as failed:
      log.error('error: %s', failed)
  own = run.hparams.augmentation.augmentation
  if own and isinstance(error, (tf.errors.InvalidArgumentError, tf.errors.UnknownError)):
    # Of the cross-entropy, whose labels are no classes, or of an operation in the input pipeline.
    fault = re.search('Received a label value[^.]*', str(error))
    said = fault[0] if fault else str(error).partition('\n\n')[2] or str(error)
    if fault or '[[IteratorGetNext]]' in str(error):
      said = ' '.join(re.split(r'\n\t \[\[|\nTraceback', said)[0].split())
      raise InputError(f'--augmentation {own} fails: {said}') from None
  if isinstance(error, tf.compat.v1.train.NanLossDuringTrainingError):
    schedule, rate = run.hparams.schedule, run.hparams.learning_rate
    said = f'--schedule {schedule}' if schedule else f'--learning-rate {rate}'
    remedy = 'lower it, name a new --job-dir or resume from the last checkpoint'
    for name, rate in run.role.control.state.rates().items():
      said = f'{name}={rate:g}, as control set it'
      remedy = f'`python -m cifar10.control {run.job_dir} {name}=schedule` goes back to the options'
    raise InputError(f'the loss became NaN with {said}; {remedy}') from None
