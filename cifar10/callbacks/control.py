"""Carries out the requests of `python -m cifar10.control`, and JOB/hyper.txt, between two steps.

JOB/hyper.txt is tensorpack's format: lines like 'learning_rate:0.05', read when the file changes.
"""

import contextlib
import os
import time

from tensorflow.compat.v1 import Session
from tensorflow.compat.v1.train import SessionRunContext, SessionRunValues

from cifar10.callbacks.base import Callback
from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.job import control_requests, metrics_log, stop_record
from cifar10.job.run import Run
from cifar10.job.stop_record import StopReason


class Control(Callback):
  """The chief's: looks for requests after a step, carries them out and writes the answers."""

  def __init__(self, run: Run):
    self._run = run
    self._looked = 0.0
    # Training waits while it looks: 0.1 s with an object store.
    self._look_seconds = 10 if files.is_url(run.job_dir) else 0.5
    self._hyper_text = self._read_hyper()  # What it holds by now is not meant for this training.

  def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
    if time.monotonic() - self._looked < self._look_seconds:
      return
    self._looked, job_dir = time.monotonic(), self._run.job_dir
    for name, order, reason in control_requests.take(job_dir):
      done = self._obey(order, reason, run_context.session)
      if not reason:  # An evaluator's `Run.stop` reads no answer.
        control_requests.answer(job_dir, name, *done)
    before, self._hyper_text = self._hyper_text, self._read_hyper()
    for line in self._hyper_text.replace(' ', '').split() if self._hyper_text != before else ():
      self._obey(line.replace(':', '=', 1), None, run_context.session)

  def _read_hyper(self) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
      return files.read(os.path.join(self._run.job_dir, 'hyper.txt')).decode()
    return ''

  def _obey(self, order: str, reason: StopReason | None, session: Session) -> tuple[bool, str]:
    """Carries out an order, or a line of hyper.txt; returns whether it did, and the answer."""
    run = self._run
    try:
      text = self._done(order, reason, session)
    except ValueError as error:  # InputError among them.
      log.info('control: %s', error)
      return False, str(error)
    log.info('control: %s: %s', order, text)
    said = {'command': order, 'answer': text}
    metrics_log.append(run.job_dir, 'control', run.step, run.cluster.name, **said)
    return True, text

  def _done(self, order: str, reason: StopReason | None, session: Session) -> str:
    """Carries out an order; returns the answer, or raises ValueError."""
    run, at = self._run, f'step {self._run.step:,}'
    verb, value = control_requests.parse(order)
    if verb in control_requests.RATES:
      run.set_rate(value, verb)
      return f'{order} after {at}'
    if verb == 'stop':
      reason = reason or StopReason(stop_record.BY_CONTROL, f'stopped by control at {at}')
      if not stop_record.holds(reason, run.options):  # It waited while nobody trained.
        raise InputError(f'{reason.message}: that no longer holds')
      run.stop(reason.message, reason.name, reason.value)
      return f'training ends after {at}'
    if verb == 'go-on':
      raise InputError('go-on: this job trains; when it has ended early, that lifts its end')
    checkpoint = run.save(session, verb == 'evaluate')
    evaluations = filter(metrics_log.is_evaluation, metrics_log.read(run.job_dir))
    found = [each for each in evaluations if each.get('checkpoint') == checkpoint]
    if verb == 'save' or not found:  # Of a cluster's chief an evaluator evaluates it.
      return f'saved {checkpoint}'
    return f'accuracy {found[-1]["accuracy"]:.4f} on {found[-1]["subset"]} with {checkpoint}'
