"""Runs one mode of a job, from options to results, for the command and for the Python API."""

import contextlib
import dataclasses
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from cifar10.cluster.tasks import Cluster
from cifar10.core import files, limits, parts, storage_errors
from cifar10.core.errors import InputError
from cifar10.core.option import picked
from cifar10.job import job_config
from cifar10.options import checks, flags
from cifar10.options.hparams import HParams, from_values
from cifar10.options.run_options import RunOptions


class Plan(NamedTuple):
  """A checked command: what to run."""

  command: flags.Command
  hparams: HParams
  options: RunOptions
  cluster: Cluster


def check(command: flags.Command) -> Plan:
  """Checks all that does not need TensorFlow, and sets what TensorFlow reads on import.

  Raises:
    InputError: options do not fit the mode, the job, the cluster or each other.
  """
  options = RunOptions(**picked(RunOptions, command.given))
  checks.check_mode(command.mode, options, command.images, command.dry_run, command.out)
  training = command.mode.startswith('train')
  cluster = _cluster(options) if training else Cluster()  # TF_CONFIG's tasks train.
  if options.pretrained:
    options, config = parts.load('pretrained').as_job(options)
  else:
    read = job_config.read_begun if training else job_config.read_config
    config = read(options.job_dir)
  hparams = _hparams(command, config, options.job_dir, training)
  checks.check_needs(command.given, hparams, options)
  checks.check_run(hparams, options, command.mode)
  # A source runs in a thread of its own, and may go to another folder there; so may the program's
  # main thread while another one trains.
  is_beside = training and threading.current_thread() is not threading.main_thread()
  if is_beside:
    from cifar10.core import user_code  # noqa: PLC0415  (few calls are)

    user_code.is_beside_main()
  if hparams.source or is_beside:
    folders = (options.job_dir, options.data_dir or '')
    job_dir, data_dir = (path and files.absolute(path) for path in folders)
    options = dataclasses.replace(options, job_dir=job_dir, data_dir=data_dir or None)
  if cluster.addresses or options.distribute or options.backup_workers:
    parts.load('cluster_checks').check(hparams, options, cluster, command.mode)
  # GPU memory is allocated as needed, because another process may use the GPU.
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  # TensorFlow's threads are those of its first session or function, which may have no settings.
  asked = {'INTRA': options.num_intra_threads, 'INTER': options.num_inter_threads}
  for kind, number in asked.items():
    name = f'TF_NUM_{kind}OP_THREADS'
    if threads := limits.threads(number):
      os.environ[name] = str(threads) if number else os.environ.get(name, str(threads))
  if cluster.task_type in ('ps', 'evaluator'):  # The flags are for workers, which have the GPUs.
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
    options = dataclasses.replace(options, num_gpus=0, variable_strategy='CPU', data_format=None)
  return Plan(command, hparams, options, cluster)


def run(plan: Plan, callbacks: Sequence[Any] = (), monitor: Any = None) -> Iterator[dict[str, Any]]:
  """Runs the plan; yields the JSON objects to print as they come, the result last.

  Args:
    plan: returned by `check`.
    callbacks: the user's, beside those of --callback.
    monitor: of a single process, in place of a SignalMonitor.
  """
  with naming_failures(plan.hparams):
    yield from _results(plan, callbacks, monitor)


def naming_failures(hparams: HParams) -> contextlib.AbstractContextManager[None]:
  """A context for sessions, that raises NetworkError where a user's own network fails in one."""
  family = hparams.family
  if not family.PLACE:
    return contextlib.nullcontext()
  return parts.load('own_network').naming_failures(family)


def _results(plan: Plan, callbacks: Sequence[Any], monitor: Any) -> Iterable[dict[str, Any]]:
  from cifar10.cluster import roles, signals  # noqa: PLC0415  (they load TensorFlow)
  from cifar10.training.process import Process  # noqa: PLC0415

  command, hparams, options, cluster = plan
  # Only the main thread can receive signals.
  hears = threading.current_thread() is threading.main_thread()
  own = []
  if callbacks or options.callback:
    own = parts.load('own_callback').named_or_given(options.callback, callbacks)
  if command.dry_run:
    evaluating = command.mode == 'train_and_evaluate'
    monitor = monitor or signals.SignalMonitor()
    with monitor if hears else contextlib.nullcontext():
      dry_run = parts.load('dry_run').dry_run
      return [dry_run(hparams, options, cluster, monitor, evaluating=evaluating)]
  role = roles.choose(cluster, options, None if cluster.addresses else monitor)
  # Prediction and export have no step to finish.
  ends_when_told = hears and command.mode not in ('predict', 'export')
  watching = role.monitor if ends_when_told else contextlib.nullcontext()
  with storage_errors.named('--job-dir', options.job_dir), watching:
    return _run(command, Process(hparams, options, role, own))


def _hparams(
  command: flags.Command, config: dict[str, Any] | None, job_dir: str, training: bool
) -> HParams:
  """Returns the given options, and for all others those of the job's configuration."""
  if config:
    from cifar10.job import adopted_config  # noqa: PLC0415  (a new job adopts nothing)

    return adopted_config.adopt_config(command.learning, config, job_dir, training=training)
  if not training:
    raise InputError(f'--job-dir {job_dir} holds no trained network; train one first')
  return from_values(command.learning)


def _cluster(options: RunOptions) -> Cluster:
  """Returns the cluster of TF_CONFIG, or a single process without it."""
  text = os.environ.get('TF_CONFIG')
  if not text:
    return Cluster()
  num_ps_needed = 0 if options.distribute else 1
  return parts.load('tf_config').read_cluster(text, options.job_dir, num_ps_needed)


def _run(command: flags.Command, process: Any) -> Iterable[dict[str, Any]]:
  """Runs one mode, or one task's part of it."""
  from cifar10.training import evaluator, trainer  # noqa: PLC0415

  task_type = process.role.cluster.task_type
  if task_type == 'ps':
    return [parts.load('parameter_server').serve(process.role)]
  if task_type == 'evaluator':
    return [parts.load('follow').follow(process)]
  if command.mode == 'export':
    return [parts.load('export').export(process)]
  if command.mode == 'predict':
    return parts.load('predict').run(process, command.images, command.out)
  if command.mode == 'evaluate':
    return [evaluator.evaluate_once(process)]
  modes = {'train_and_evaluate': trainer.train_and_evaluate, 'train': trainer.train}
  return [modes[command.mode](process)]
