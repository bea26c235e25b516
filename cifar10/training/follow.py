"""The evaluator task of a cluster: evaluates the checkpoints that the chief saves."""

import contextlib
import sys
import time
from typing import Any

import tensorflow as tf

from cifar10.callbacks import registry
from cifar10.cluster.liveness import reachable
from cifar10.core.errors import TaskLostError
from cifar10.job import checkpoints, job_config, stop_record
from cifar10.job.run import Run
from cifar10.training.evaluator import Evaluator

_LOOK_SECONDS = 1


def follow(run: Run) -> dict[str, Any]:
  """Evaluates new checkpoints as they appear, and the last one like a chief would.

  Raises:
    InputError: the file of a split is missing or damaged.
    TaskLostError: the chief is gone, and no checkpoint appeared for --start-timeout.
    Terminated: the process received SIGTERM.
  """
  evaluator = Evaluator(run)
  evaluator.check()
  evaluator.callbacks += registry.make_all(run)
  seen, seen_at = '', time.monotonic()
  while True:
    run.role.monitor.check()
    checkpoint = _readable(run.job_dir)
    if checkpoint not in ('', seen):
      seen = checkpoint
      if checkpoints.step_of(checkpoint):  # Not 0: nothing was learned yet.
        evaluator.evaluated(run.split_on_the_way, on_the_way=True)
      seen_at = time.monotonic()
    elif checkpoint and (ended_by := _ended_by(run, checkpoint)):
      return {**evaluator.evaluated(run.final_split), 'ended_by': ended_by}
    if any(map(reachable, run.cluster.addresses.get('chief', ()))):
      seen_at = time.monotonic()
    elif time.monotonic() - seen_at > run.options.start_timeout:
      raise TaskLostError(
        f'no new checkpoint in {run.job_dir} for {run.options.start_timeout:g} s, and the chief '
        'cannot be reached; start it again, or raise --start-timeout'
      )
    time.sleep(_LOOK_SECONDS)


def _readable(job_dir: str) -> str:
  """Returns the latest checkpoint; '' if it cannot be read now: the chief may move or delete it."""
  checkpoint = checkpoints.listed(job_dir)
  with contextlib.suppress(OSError, tf.errors.OpError):
    if checkpoint and not checkpoints.fault_of(checkpoint):
      return checkpoint
  return ''


def _ended_by(run: Run, checkpoint: str) -> str:
  """Returns why training ended with this checkpoint; '' if it did not."""
  try:  # Not by its name: asynchronous workers make steps between the naming and the save.
    step = checkpoints.global_step(checkpoint)
  except tf.errors.OpError:  # It was deleted, so a newer one exists.
    return ''
  ended = stop_record.read(run.job_dir)
  if ended and ended[1] == step and stop_record.holds(ended[0], run.options):
    return ended[0].name
  last_step, epochs = run.hparams.train_steps, run.hparams.train_epochs
  if epochs:  # The chief has counted them in steps, unless it has yet to begin with this command.
    config = job_config.read_config(run.job_dir) or {}
    here = {'train_epochs': epochs, 'train_batch_size': run.hparams.train_batch_size}
    last_step = config['train_steps'] if here.items() <= config.items() else sys.maxsize
  return 'train_steps' if step >= last_step else ''
