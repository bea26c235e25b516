"""Runs one mode of a job, from a checked plan to results, for the command and the Python API."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from cifar10.callbacks import own_callback
from cifar10.cluster import choose_role, parameter_server, signals
from cifar10.core import storage_errors
from cifar10.exporters import export
from cifar10.inference import predict
from cifar10.networks import own_network
from cifar10.options import flags
from cifar10.plan import Plan
from cifar10.training import dry_run, evaluator, follow, trainer
from cifar10.training.process import Process


def run(plan: Plan, callbacks: Sequence[Any] = (), monitor: Any = None) -> Iterator[dict[str, Any]]:
  """Runs the plan; yields the JSON objects to print as they come, the result last.

  Args:
    plan: a checked command.
    callbacks: the user's, beside those of --callback.
    monitor: of a single process, in place of a SignalMonitor.
  """
  with own_network.naming_failures(plan.hparams.family):
    yield from _results(plan, callbacks, monitor)


def _results(plan: Plan, callbacks: Sequence[Any], monitor: Any) -> Iterable[dict[str, Any]]:
  command, hparams, options, cluster = plan
  # Only the main thread can receive signals.
  hears = threading.current_thread() is threading.main_thread()
  own = own_callback.named_or_given(options.callback, callbacks)
  if command.dry_run:
    evaluating = command.mode == 'train_and_evaluate'
    monitor = monitor or signals.SignalMonitor()
    with monitor if hears else contextlib.nullcontext():
      return [dry_run.dry_run(hparams, options, cluster, monitor, evaluating=evaluating)]
  role = choose_role.choose(cluster, options, None if cluster.addresses else monitor)
  # Prediction and export have no step to finish.
  ends_when_told = hears and command.mode not in ('predict', 'export')
  watching = role.monitor if ends_when_told else contextlib.nullcontext()
  with storage_errors.named('--job-dir', options.job_dir), watching:
    return _run(command, Process(hparams, options, role, own))


def _run(command: flags.Command, process: Process) -> Iterable[dict[str, Any]]:
  """Runs one mode, or one task's part of it."""
  if isinstance(process.role, parameter_server.Replica) and process.role.cluster.task_type == 'ps':
    return [parameter_server.serve(process.role)]
  if process.role.cluster.task_type == 'evaluator':
    return [follow.follow(process)]
  if command.mode == 'predict':
    return predict.run(process, command.images, command.out)
  modes: dict[str, Callable[[Process], dict[str, Any]]] = {
    'train_and_evaluate': trainer.train_and_evaluate,
    'train': trainer.train,
    'evaluate': evaluator.evaluate_once,
    'export': export.export,
  }
  return [modes[command.mode](process)]
