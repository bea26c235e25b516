"""Carries out the requests of `python -m cifar10.control`, and JOB/hyper.txt, while training runs.

JOB/hyper.txt is tensorpack's format: lines like 'learning_rate:0.05', read when the file changes.
"""

import os
import sys
import time
from typing import Any

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.job import control_requests, metrics_log, stop_record
from cifar10.job.control_requests import RATES, Command
from cifar10.job.job_config import HYPER
from cifar10.job.run import Run
from cifar10.job.stop_record import BY_CONTROL, StopReason

_PAUSED_SECONDS = 0.5  # Between two looks for requests while training pauses.


class ControlCommands:
  """Carries out control requests and writes the answers.

  Attributes:
    paused: whether training waits.
  """

  def __init__(self, run: Run):
    self._run = run
    self._step = 0
    self._hyper_signature = (0, 0)
    self.paused = False

  def forget_old(self) -> None:
    """Refuses what was asked before this run; obeys an evaluator's request to stop at a limit."""
    for name, command in control_requests.take(self._run.job_dir):
      refusal = 'the training was only starting; ask again'
      control_requests.answer(self._run.job_dir, name, False, refusal)
      if command and command.reason:
        limit, value, message = command.reason
        reason = StopReason(limit, message, value)
        if stop_record.holds(reason, self._run.options):
          self._run.stop_request.request(reason)
    self._changed_rates()

  def obey(self, session: Any, step: int) -> None:
    """Carries out all pending requests after this step, and later ones while training pauses."""
    self._step = step
    self._obey_pending(session)
    while self.paused and not (self._run.monitor.stopping or self._run.stop_request.reason):
      time.sleep(_PAUSED_SECONDS)
      self._run.monitor.progressed()  # So that a pause is not taken for a hanging step.
      self._obey_pending(session)

  def _obey_pending(self, session: Any) -> None:
    for name, command in control_requests.take(self._run.job_dir):
      ok, text = self._obey(command, session) if command else (False, 'the request is damaged')
      control_requests.answer(self._run.job_dir, name, ok, text)
    for line in self._changed_rates():
      try:
        command = control_requests.parse(line.replace(':', '=', 1))
        ok, text = False, f'{line!r} is not a rate'
        if command.verb in RATES:
          ok, text = self._obey(command, session)
      except InputError as error:
        ok, text = False, str(error)
      if not ok:
        log.info('%s: %s', HYPER, text)

  def _changed_rates(self) -> list[str]:
    """Returns the lines of JOB/hyper.txt if the file has changed since the last call."""
    path, before = os.path.join(self._run.job_dir, HYPER), self._hyper_signature
    try:
      self._hyper_signature = files.signature(path)
      changed = self._hyper_signature != before
      return list(filter(str.strip, files.read_text(path).splitlines())) if changed else []
    except (OSError, UnicodeDecodeError):
      return []

  def _obey(self, command: Command, session: Any) -> tuple[bool, str]:
    """Carries out a command; returns whether it succeeded, and a message."""
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
    if self._run.stop_request.reason:
      raise InputError(f'{command}: the training ends after {at}; ask again when it has ended')
    self._pause(command.verb == 'pause', session)
    return f'training {"pauses" if self.paused else "goes on"} after {at}'

  def _set_rate(self, command: Command, session: Any) -> str:
    if not getattr(self._run.hparams, command.verb):
      raise InputError(f'{command}: this job trains without --{command.verb.replace("_", "-")}')
    control = self._run.control
    ordered: dict[str, Any] = {command.verb: command.value}
    state = control.state._replace(**ordered)
    control_requests.remember_rates(self._run.job_dir, state.rates())
    control.state = state
    control.tell(session)
    rate = 'it follows the schedule' if command.value is None else f'it is {command.value:g}'
    return f'{rate} after step {self._step:,}'

  def _save(self, session: Any, evaluating: bool) -> str:
    checkpoint = self._run.save(session, evaluating)
    if not evaluating:
      return f'saved {checkpoint}'
    # A step that has been evaluated is not evaluated again.
    evaluation = self._run.last_evaluation
    if not evaluation or evaluation.checkpoint != checkpoint:
      evaluator = self._run.cluster.has_evaluator
      follows = 'the evaluator evaluates it' if evaluator else 'nothing evaluates in this training'
      return f'saved {checkpoint}; {follows}'
    accuracy = evaluation.result['accuracy']
    return f'accuracy {accuracy:.4f} on {evaluation.split} with {checkpoint}'

  def _pause(self, pauses: bool, session: Any) -> None:
    self.paused = pauses
    self._run.control.state = self._run.control.state._replace(pauses=pauses)
    self._run.control.tell(session)

  def _open_shell(self, session: Any) -> str:
    if not self._run.open_shell:
      raise InputError('shell: the training was started without --debug-shell')
    if not sys.stdin.isatty():
      raise InputError('shell: the process that trains has no terminal; start it in a terminal')
    was_paused = self.paused
    self._pause(True, session)
    self._run.open_shell(session, self._step)
    self._pause(was_paused, session)
    return 'the shell was closed; training goes on'
