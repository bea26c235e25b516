"""Runs one mode of a job, from a checked plan to results, for the command and the Python API."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from cifar10.callbacks import registry
from cifar10.cluster import parameter_server, roles
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.cluster.signals import SignalMonitor
from cifar10.core import files
from cifar10.exporters import export, predict
from cifar10.job import run as job_run
from cifar10.job.run import Run
from cifar10.networks import own_network
from cifar10.options import flags
from cifar10.plan import Plan
from cifar10.training import dry_run, evaluator, experiment, follow


def results(
  plan: Plan, callbacks: Sequence[Any] = (), monitor: Any = None
) -> Iterator[dict[str, Any]]:
  """Runs the plan; yields the JSON objects to print as they come, the result last.

  Args:
    plan: a checked command.
    callbacks: the user's, beside those of --callback.
    monitor: of a single process, in place of a SignalMonitor.
  """
  with own_network.naming_failures(plan.hparams.family):
    yield from _results(plan, callbacks, monitor)


def _results(
  plan: Plan, callbacks: Sequence[Any], monitor: SignalMonitor | None
) -> Iterable[dict[str, Any]]:
  command, hparams, options, cluster = plan
  # Only the main thread can receive signals.
  hears = threading.current_thread() is threading.main_thread()
  own = registry.named_or_given(options.callback, callbacks)
  watches_others = cluster.addresses and not command.dry_run
  role = roles.choose(cluster, options, None if watches_others else monitor or SignalMonitor())
  # Prediction and export have no step to finish.
  ends_when_told = hears and command.mode not in ('predict', 'export')
  watching = role.monitor if ends_when_told else contextlib.nullcontext()
  with files.naming_errors('--job-dir', options.job_dir), watching:
    run = job_run.begin(hparams, options, role, own)
    if command.dry_run:
      is_whole = command.mode == 'train_and_evaluate'
      return [dry_run.dry_run(run, with_evaluations=is_whole)]
    return _run(command, run)


def _run(command: flags.Command, run: Run) -> Iterable[dict[str, Any]]:
  """Runs one mode, or one task's part of it."""
  if run.cluster.task_type == 'ps' and isinstance(run.monitor, LivenessMonitor):
    return [parameter_server.serve(run.cluster, run.monitor)]
  if run.cluster.task_type == 'evaluator':
    return [follow.follow(run)]
  if command.mode == 'predict':
    return predict.run(run, command.images, command.out)
  modes: dict[str, Callable[[Run], dict[str, Any]]] = {
    'train_and_evaluate': experiment.train_and_evaluate,
    'train': experiment.train,
    'evaluate': evaluator.evaluate_once,
    'export': export.export,
  }
  return [modes[command.mode](run)]
