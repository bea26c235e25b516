"""Carries out the requests of `python -m cifar10.control` while training runs, and JOB/hyper.txt.

JOB/hyper.txt is tensorpack's way: a line 'learning_rate:0.05' for each rate, read when it changes.
"""

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

HYPER = 'hyper.txt'
_LOOK_SECONDS = 0.5
_URL_LOOK_SECONDS = 10  # A look stops the steps: for a tenth of a second with an object store.


def make(run: Run) -> Callback | None:
  """In the chief; the other replicas follow it."""
  return ControlListener(run) if run.is_chief else None


class ControlListener(Callback):
  """Looks for requests between two steps, carries them out and answers them."""

  def __init__(self, run: Run):
    self._run = run
    self._looked = 0.0
    self._look_seconds = _URL_LOOK_SECONDS if files.is_url(run.job_dir) else _LOOK_SECONDS
    self._step = 0
    self._paused = False
    self._evaluation: Evaluation | None = None
    self._hyper_read = (0, 0)
    self._hyper_lines()  # An earlier run obeyed what stands there.
    self._batch_tensors: dict[str, Any] = {}  # For the shell.
    self._batch: Any = None  # The last one, for the shell.
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
    """Drops what an earlier run left, but obeys an evaluator's request to stop at a limit."""
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
    for line in self._hyper_lines():
      self._obey_hyper(line, session)

  def _obey(self, command: Command, session: Any) -> tuple[bool, str]:
    """Carries it out -> whether that was possible, and what happened."""
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
    rate = 'the schedule says it' if command.value is None else f'it is {command.value:g}'
    return f'{rate} after step {self._step:,}'

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

  def _hyper_lines(self) -> list[str]:
    """The lines of hyper.txt if it has changed since the last call."""
    path = os.path.join(self._run.job_dir, HYPER)
    try:
      before, self._hyper_read = self._hyper_read, files.signature(path)
      lines = files.read_text(path).splitlines() if self._hyper_read != before else []
    except (OSError, UnicodeDecodeError):
      return []
    return [line for line in lines if line.strip()]

  def _obey_hyper(self, line: str, session: Any) -> None:
    """Sets the rate of a line; the log says what is wrong with one that sets none."""
    try:
      command = control_requests.parse(line.replace(':', '=', 1))
      ok, text = (
        self._obey(command, session) if command.verb in RATES else (False, f'{line!r} is no rate')
      )
    except InputError as error:
      ok, text = False, str(error)
    if not ok:
      log.info('%s: %s', HYPER, text)
