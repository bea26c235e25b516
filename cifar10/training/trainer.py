"""What surrounds the Estimator's loop in a training: lock, configuration, hooks, and the end."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.callbacks import registry
from cifar10.callbacks.base import Meter, TrainingGraph
from cifar10.cluster.control import ControlState
from cifar10.cluster.roles import Role
from cifar10.core import devices, files
from cifar10.core.logs import log
from cifar10.data import manifest
from cifar10.job import checkpoints, control_requests, job_config, metrics_log, stop_record
from cifar10.job.run import Run
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions
from cifar10.training import checkpoint_saver, ema, faults
from cifar10.training.evaluator import Evaluator
from cifar10.training.examples import Examples
from cifar10.training.predictor import Predictor

_LAST_STEP = stop_record.StopReason('train_steps', 'the last step was made')


class Trainer:
  """A job's training in this process.

  Attributes:
    evaluator: evaluates on the way, and calls the training's callbacks.
    ended_by: why training ended, once it has.
  """

  def __init__(self, run: Run, examples: Examples, *, with_evaluations: bool):
    """Writes nothing.

    Args:
      run: from `experiment.for_training`.
      examples: the training's.
      with_evaluations: whether checkpoints are saved for evaluations, in this process or beside it.
    """
    self.evaluator = Evaluator(run)
    self.ended_by = ''
    self._run = run
    self._examples = examples
    self._with_evaluations = with_evaluations
    self._callbacks = self.evaluator.callbacks  # Filled when the job is this process's.
    self._meter = Meter(run, ())
    self._task_hook = _TaskHook(run.role)

  @property
  def steps(self) -> int:
    """Returns how many steps this process has made."""
    return self._task_hook.steps

  def on_graph(self, graph: TrainingGraph) -> None:
    """Takes the training step's graph, for callbacks and the meter."""
    self._meter.on_graph(graph)

  @contextlib.contextmanager
  def training(self, session_config: Any) -> Iterator[list[Any] | None]:
    """A context in which the Estimator trains; yields its hooks, or None if the job has ended.

    Args:
      session_config: the ConfigProto of the training's session.

    Raises:
      InputError: the job belongs to another configuration, or the loss became NaN.
      StorageError: the job dir cannot be written.
      Terminated: the process received SIGTERM, Ctrl-C or SIGHUP; the chief has saved.
    """
    run = self._run
    if reason := still_ended(run.options):
      run.role.announce_done()
      self.ended_by = reason.name
      yield None
      return
    with _lock(run):
      _claim(run)
      _log_start(run)
      savers = self._saver_hooks()
      if savers:
        run.save, run.predictor = savers[0].save_now, self._predictor
      others = registry.make_all(run)
      self._meter = Meter(run, others)
      self._callbacks[:] = [self._meter, *others]
      # The meter and the callbacks precede the savers, so that on_step_end runs before a save. The
      # control hooks, which end training, come after all that may request an end.
      hooks = [*run.role.first_hooks(), *self._callbacks, *savers, self._task_hook]
      hooks += run.role.control_hooks(run.stop_request)
      try:
        self._make_up_for_an_evaluation()
        with self._examples.reading(), run.role.connected(session_config):
          yield hooks
      except BaseException as error:
        faults.tell(error, run, self._callbacks, run.step)
        raise
      self.ended_by = self._end()

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
    run = self._run
    if not run.evaluates:
      return
    step = checkpoints.latest_step(run.job_dir)
    is_due = step > 0 and (step % run.options.eval_every_steps == 0 or step >= run.last_step)
    if is_due and not metrics_log.has_evaluation(run.job_dir, step, run.split_on_the_way):
      self.evaluator.evaluated(run.split_on_the_way, on_the_way=True)

  def _saver_hooks(self) -> list[checkpoint_saver.SaveHook]:
    """Returns the savers: the first one's checkpoints are evaluated, a second one's are not."""
    options, role = self._run.options, self._run.role
    if not role.saves:
      return []
    steps = [options.save_every_steps or options.eval_every_steps]
    if self._with_evaluations:
      steps.insert(0, options.eval_every_steps)
    # An evaluator evaluates all checkpoints: early stopping counts them.
    is_by_steps = options.save_every_steps or role.cluster.has_evaluator
    return [
      checkpoint_saver.SaveHook(
        options.job_dir,
        every,
        self._callbacks,
        every_seconds=math.inf if is_by_steps else checkpoint_saver.SECONDS,
        updates_later=role.updates_later,
      )
      for every in dict.fromkeys(steps)
    ]

  def _end(self) -> str:
    """Calls callbacks, records an early end, releases the servers; returns the reason."""
    run, step = self._run, self._run.step
    run.monitor.closed()
    if (
      run.is_chief
    ):  # A finished job made no step, a synchronous chief no update of its last batch.
      step = checkpoints.latest_step(run.job_dir)
      if run.stop_request.reason:
        stop_record.write(run.job_dir, run.stop_request.reason, step)
    if run.monitor.stopping:
      faults.tell_stop(self._callbacks, run.monitor, step)
      run.monitor.check()
    reason = run.stop_request.reason or _LAST_STEP
    if reason is _LAST_STEP and run.is_chief and step < run.last_step:
      reason = stop_record.StopReason(
        stop_record.BY_CALLBACK, f'a callback ended it at step {step:,}'
      )
    for callback in self._callbacks:
      callback.on_train_end(reason.name, reason.message, step)
    run.role.announce_done()
    return reason.name


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
    checkpoints.read_best(options.job_dir)
  if job_config.CONTROL not in (job_config.read_config(options.job_dir) or {}):
    return surveyed, ControlState()
  return surveyed, ControlState(**control_requests.read_rates(options.job_dir))


@contextlib.contextmanager
def _lock(run: Run) -> Iterator[None]:
  """The chief's lock on the job dir: prevents a second training; `control` reads it."""
  if not run.role.saves:
    yield
    return
  folder = run.job_dir
  with contextlib.ExitStack() as stack:
    with files.refusing_errors('--job-dir', folder):
      stack.enter_context(job_config.training_lock(folder))
    checkpoint_saver.remove_half_saved(folder)
    yield


def _claim(run: Run) -> None:
  """The chief's: checks the job dir, and writes a new job's configuration.

  It also restores the learning rates that `control` has set in this job.
  """
  options, hparams, role = run.options, run.hparams, run.role
  if not role.saves:
    return
  surveyed, role.control.state = check_resumes(hparams, options)
  digests = manifest.digests(run.data_dir)
  changes = job_config.update_config(options.job_dir, hparams, run.data_dir, run.data, digests)
  if changes:
    log.info('unlike before in this job: %s', ', '.join(changes))
  if surveyed.damaged and surveyed.newest:
    checkpoints.set_aside(options.job_dir, surveyed)
  stop_record.lift(options.job_dir)


def _log_start(run: Run) -> None:
  """Logs what is trained, and which options are ignored."""
  options, hparams, role = run.options, run.hparams, run.role
  if options.sync and options.distribute:
    log.info('--sync is ignored: --distribute %s always is', options.distribute)
  elif options.sync and not role.gradients_per_update:
    log.info('--sync is ignored: there is one replica, which waits for no other')
  if options.num_workers != 1:
    log.info('--num-workers is ignored: the cluster says how many there are')
  log.info(
    f'training {hparams.family.describe()} on {run.examples_per_epoch:,} examples, batch '
    f'{hparams.train_batch_size}, {hparams.dtype}, {len(run.placement.tower_devices)} tower(s)'
    f'{role.described()}, to step {hparams.train_steps:,}'
  )
  step = checkpoints.latest_step(options.job_dir) if role.saves else 0
  if step >= hparams.train_steps:
    log.info('the job is at step %s: no step is left; --train-steps counts all', f'{step:,}')
  if not run.placement.num_gpus:
    log.info(devices.described_kernels())


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
    self._monitor.progressed()
