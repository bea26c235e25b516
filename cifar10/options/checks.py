"""Which options fit the mode, each other and the cluster: what no class of options sees alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions, first_and_last


class Tasks(Protocol):
  """What is checked of a run's tasks."""

  @property
  def addresses(self) -> Mapping[str, Sequence[str]]: ...

  @property
  def task_type(self) -> str: ...

  @property
  def has_evaluator(self) -> bool: ...

  @property
  def is_distributed(self) -> bool: ...

  @property
  def num_ps(self) -> int: ...

  @property
  def num_workers(self) -> int: ...


def check_mode(
  mode: str, options: RunOptions, images: Sequence[str] = (), dry_run: bool = False
) -> None:
  """Raises InputError where a mode lacks what it needs or has what it does not take.

  Args:
    mode: as --mode has it.
    options: where it runs.
    images: what to predict.
    dry_run: whether the mode is only tried.
  """
  training = mode.startswith('train')
  if mode == 'predict' and not images:
    raise InputError('--mode predict needs --images PATH...')
  if images and mode != 'predict':
    raise InputError(f'--images belongs to --mode predict, not {mode}')
  urls = [name for name in images if files.is_url(name)]
  if urls:
    raise InputError(f'--images {urls[0]} is a URL; copy the images to a local folder')
  if dry_run and not training:
    raise InputError(f'--dry-run belongs to training, not to --mode {mode}')
  if options.checkpoint and training:
    raise InputError(
      f'--checkpoint {options.checkpoint} belongs to --mode evaluate, predict and export; '
      f'{mode} goes on from the latest'
    )
  if options.subset and mode not in ('train_and_evaluate', 'evaluate'):
    raise InputError(f'--subset {options.subset} belongs to evaluations, not to --mode {mode}')
  if options.data_service and not training:
    raise InputError(f'--data-service belongs to training, not to --mode {mode}')
  if options.callback and mode in ('predict', 'export'):
    raise InputError(
      f'--callback {options.callback[0]} belongs to training and evaluations, not to --mode {mode}'
    )
  if options.use_ema and mode == 'train':
    raise InputError('--use-ema belongs to evaluations, predict and export, not to --mode train')
  if options.profile_steps and not training:
    raise InputError(
      f'--profile-steps {options.profile_steps} belongs to training, not to --mode {mode}'
    )
  if mode not in ('predict', 'export') and not options.data_dir:
    raise InputError(f'--mode {mode} needs --data-dir DIR')


def check_run(hparams: HParams, options: RunOptions, cluster: Tasks, mode: str) -> None:
  """Raises InputError for options that do not fit the hyper-parameters, the mode or the cluster.

  Args:
    hparams: what is trained; in other modes, what the job was trained with.
    options: where it runs.
    cluster: of training; in other modes, one process.
    mode: as --mode has it.
  """
  if options.use_ema and not hparams.ema_decay:
    raise InputError(
      '--use-ema asks for an average of the weights, and the job was trained without --ema-decay; '
      'leave it out, or train a new job with --ema-decay 0.999'
    )
  if options.backup_workers >= cluster.num_workers:
    raise InputError(
      f'--backup-workers {options.backup_workers} of {cluster.num_workers} worker(s), the chief '
      'among them; leave at least one'
    )
  if hparams.lookahead_steps and (
    options.distribute or (cluster.is_distributed and not options.sync)
  ):
    raise InputError(
      f'--lookahead-steps {hparams.lookahead_steps} needs all updates made in one place; use '
      'parameter servers with --sync, or --lookahead-steps 0'
    )
  if not mode.startswith('train'):
    return
  if cluster.is_distributed or cluster.has_evaluator:
    files.check_shared('--data-dir', options.data_dir or '')
    files.check_shared('--job-dir', options.job_dir)
  if options.profile_steps and first_and_last(options.profile_steps)[1] > hparams.train_steps:
    raise InputError(
      f'--profile-steps {options.profile_steps} goes beyond the last step, {hparams.train_steps}; '
      'lower it'
    )
  if options.source_processes > 1 and not hparams.source:
    raise InputError(f'--source-processes {options.source_processes} belongs to --source; add it')
  _check_distribution(options, cluster)
  _check_early_stopping(hparams, options, cluster, mode)


def _check_distribution(options: RunOptions, cluster: Tasks) -> None:
  """Raises InputError for an all-reduce that does not fit the cluster or the other options."""
  if not options.distribute:
    return
  name = f'--distribute {options.distribute}'
  num_tasks = sum(map(len, cluster.addresses.values()))
  if cluster.num_ps:
    raise InputError(
      f'{name} uses no parameter servers and TF_CONFIG lists {cluster.num_ps}; leave one out'
    )
  if options.distribute == 'mirrored' and num_tasks > 1:
    raise InputError(
      f'{name} is for one host and TF_CONFIG lists {num_tasks} tasks; use multi_worker_mirrored'
    )
  if options.distribute == 'multi_worker_mirrored':
    if num_tasks <= 1:
      raise InputError(
        f'{name} needs a TF_CONFIG with a chief and workers; on one host use mirrored'
      )
    if options.num_cpu_towers > 1:
      raise InputError(
        f'{name} has one replica on a CPU, not --num-cpu-towers {options.num_cpu_towers}; '
        'start more workers'
      )
  if options.variable_strategy == 'GPU':
    raise InputError(f'{name} copies variables to every device; leave --variable-strategy GPU out')


def _check_early_stopping(hparams: HParams, options: RunOptions, cluster: Tasks, mode: str) -> None:
  """Raises InputError for early stopping without the evaluations that it may choose by."""
  for name in ('stop_at_accuracy', 'stop_without_gain'):
    value = getattr(options, name)
    if value is None:
      continue
    rule = f'--{name.replace("_", "-")} {value:g}'
    if mode == 'train':
      raise InputError(f'{rule} needs evaluations on the way; use --mode train_and_evaluate')
    if hparams.train_on != 'train' or options.subset not in (None, 'validation'):
      raise InputError(
        f'{rule} needs evaluations of the validation split; leave out --train-on '
        f'{hparams.train_on} or --subset {options.subset}, or use --max-minutes'
      )
    if cluster.task_type != 'ps' and cluster.is_distributed and not cluster.has_evaluator:
      raise InputError(f'{rule} needs an evaluator in a cluster; add one to TF_CONFIG')
