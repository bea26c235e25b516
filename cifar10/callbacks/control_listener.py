"""Obeys what is asked for while training runs: `python -m cifar10.control`, and JOB/hyper.txt."""

import os
import sys
import time
from typing import Any

import tensorflow as tf

from cifar10.callbacks.base import Callback, Evaluation, Run, Step, TrainingGraph
from cifar10.core import files, parts
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.job import control_requests, metrics_log, stop_record
from cifar10.job.control_requests import RATES, Command
from cifar10.job.stop_record import BY_CONTROL, StopReason

HYPER = 'hyper.txt'  # As tensorpack has it: a line 'learning_rate:0.05' for each.
_LOOK_SECONDS = 0.5
_URL_LOOK_SECONDS = 10  # Steps wait while one looks: a tenth of a second, from a store of objects.


def make(run: Run) -> Callback | None:
  """In the process that others follow."""
  return Control(run) if run.is_chief else None


class Control(Callback):
  """The chief's ear."""

  def __init__(self, run: Run):
    self._run = run
    self._looked = 0.0
    self._look_seconds = _URL_LOOK_SECONDS if files.is_url(run.job_dir) else _LOOK_SECONDS
    self._step = 0
    self._paused = False
    self._evaluation: Evaluation | None = None
    self._hyper_read = self._hyper_changed()  # What stood there before was obeyed before.
    self._batch_tensors: dict[str, Any] = {}  # For a shell.
    self._batch: Any = None
    self._forget_old_requests()

  def on_graph(self, graph: TrainingGraph) -> None:
    if self._run.options.debug_shell:
      self._batch_tensors = {'images': graph.images, 'labels': graph.labels}

  def begin(self) -> None:
    self._global_step = tf.compat.v1.train.get_global_step()

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._step = int(session.run(self._global_step))

  def before_run(self, run_context: Any) -> Any:
    tensors = self._batch_tensors
    return tf.compat.v1.train.SessionRunArgs(tensors) if tensors else None

  def on_step_end(self, step: Step) -> None:
    self._step = step.step

  def on_evaluate_end(self, evaluation: Evaluation) -> None:
    self._evaluation = evaluation

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self._batch = run_values.results
    if time.monotonic() - self._looked >= self._look_seconds:
      self._look(run_context.session)
    while self._paused and not (self._run.monitor.stopping or self._run.stop_request.reason):
      time.sleep(_LOOK_SECONDS)
      self._run.monitor.progressed()  # Nobody is being waited for.
      self._look(run_context.session)

  def _forget_old_requests(self) -> None:
    """What nobody took in an earlier run holds no more, but for an evaluator's word on a limit."""
    for _, command in control_requests.take(self._run.job_dir):
      if command and command.reason:
        name, value, message = command.reason
        reason = StopReason(name, message, value)
        if stop_record.holds(reason, self._run.options):
          self._run.stop_request.request(reason)

  def _look(self, session: Any) -> None:
    self._looked = time.monotonic()
    for name, command in control_requests.take(self._run.job_dir):
      ok, text = self._obey(command, session) if command else (False, 'the request is damaged')
      control_requests.answer(self._run.job_dir, name, ok, text)
    if self._hyper_changed() != self._hyper_read:
      self._hyper_read = self._hyper_changed()
      self._read_hyper(session)

  def _obey(self, command: Command, session: Any) -> tuple[bool, str]:
    """Does it -> whether that was possible, and what happened."""
    try:
      text = self._do(command, session)
    except InputError as error:
      return False, str(error)
    log.info('control: %s: %s', command, text)
    event = metrics_log.event(
      'control', self._step, self._run.cluster.name, command=str(command), answer=text
    )
    metrics_log.append(self._run.job_dir, event)
    return True, text

  def _do(self, command: Command, session: Any) -> str:
    at = f'step {self._step:,}'
    if command.verb in RATES:
      return self._set_rate(command, session)
    if command.verb in ('save', 'evaluate'):
      return self._save(session, command.verb == 'evaluate')
    if command.verb == 'stop':
      reason = command.reason or (BY_CONTROL, 0.0, f'stopped by control at {at}')
      self._run.stop_request.request(StopReason(reason[0], reason[2], reason[1]))
      return f'training ends after {at}'
    if command.verb == 'shell':
      return self._open_shell(session)
    self._pause(command.verb == 'pause', session)
    return f'training {"pauses" if self._paused else "goes on"} after {at}'

  def _set_rate(self, command: Command, session: Any) -> str:
    if not getattr(self._run.hparams, command.verb):
      raise InputError(f'{command}: this job trains without --{command.verb.replace("_", "-")}')
    control = self._run.control
    ordered: dict[str, Any] = {command.verb: command.value}
    control.state = control.state._replace(**ordered)
    control.tell(session)
    now = {rate: getattr(control.state, rate) for rate in RATES}
    self._run.remember({rate: value for rate, value in now.items() if value is not None})
    said = 'the schedule says it' if command.value is None else f'it is {command.value:g}'
    return f'{said} after step {self._step:,}'

  def _save(self, session: Any, evaluating: bool) -> str:
    self._evaluation = None
    checkpoint = self._run.save(session, evaluating)
    if not evaluating:
      return f'saved {checkpoint}'
    if not self._evaluation:
      evaluator = self._run.cluster.has_evaluator
      follows = 'the evaluator takes it' if evaluator else 'nothing evaluates in this cluster'
      return f'saved {checkpoint}; {follows}'
    accuracy, split = self._evaluation.result['accuracy'], self._evaluation.split
    return f'accuracy {accuracy:.4f} on {split} with {checkpoint}'

  def _pause(self, pauses: bool, session: Any) -> None:
    self._paused = pauses
    self._run.control.state = self._run.control.state._replace(pauses=pauses)
    self._run.control.tell(session)

  def _open_shell(self, session: Any) -> str:
    if not self._run.options.debug_shell:
      raise InputError('shell: the training was started without --debug-shell')
    if not sys.stdin.isatty():
      raise InputError('shell: the process that trains has no terminal; start it in one')
    was_paused = self._paused
    self._pause(True, session)
    parts.load('shell').open_shell(session, self._step, self._batch, self._run)
    self._pause(was_paused, session)
    return 'the shell was left; training goes on'

  def _hyper_changed(self) -> tuple[int, int]:
    """What is another when hyper.txt was written again, or is no longer there."""
    try:
      return files.signature(os.path.join(self._run.job_dir, HYPER))
    except OSError:
      return 0, 0

  def _read_hyper(self, session: Any) -> None:
    """Obeys its lines; what is no order is named in the log."""
    try:
      text = files.read_text(os.path.join(self._run.job_dir, HYPER))
    except (OSError, UnicodeDecodeError) as error:
      log.info('%s cannot be read: %s', HYPER, error)
      return
    for line in filter(str.strip, text.splitlines()):
      try:
        command = control_requests.parse(line.replace(':', '=', 1))
        if command.verb not in RATES:
          raise InputError(f'{line!r} is no hyper-parameter')
      except InputError as error:
        log.info('%s: %s', HYPER, error)
        continue
      ok, text = self._obey(command, session)
      if not ok:
        log.info('%s: %s', HYPER, text)
