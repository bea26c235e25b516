"""Checks of options against the mode and against the options of other classes."""

from __future__ import annotations

from collections.abc import Sequence

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.options.hparams import HParams
from cifar10.options.run_options import RunOptions, first_and_last


def check_mode(
  mode: str, options: RunOptions, images: Sequence[str] = (), dry_run: bool = False
) -> None:
  """Raises InputError if options that a mode needs are missing, or given options do not fit it.

  Args:
    mode: the value of --mode.
    options: the run's options.
    images: the values of --images.
    dry_run: whether --dry-run is given.
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
      f'{mode} continues from the latest'
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


def check_run(hparams: HParams, options: RunOptions, mode: str) -> None:
  """Raises InputError if the run's options do not fit the hyper-parameters or the mode.

  Args:
    hparams: those of the training; in other modes, those that the job was trained with.
    options: the run's options.
    mode: the value of --mode.
  """
  if options.use_ema and not hparams.ema_decay:
    raise InputError(
      '--use-ema asks for an average of the weights, and the job was trained without --ema-decay; '
      'leave it out, or train a new job with --ema-decay 0.999'
    )
  if not mode.startswith('train'):
    return
  if options.profile_steps and first_and_last(options.profile_steps)[1] > hparams.train_steps:
    raise InputError(
      f'--profile-steps {options.profile_steps} goes beyond the last step, {hparams.train_steps}; '
      'lower it'
    )
  if options.source_processes > 1 and not hparams.source:
    raise InputError(f'--source-processes {options.source_processes} belongs to --source; add it')
  _check_early_stopping(hparams, options, mode)


def _check_early_stopping(hparams: HParams, options: RunOptions, mode: str) -> None:
  """Raises InputError if early stopping has no evaluations that it may use."""
  for rule in early_stopping_rules(options):
    if mode == 'train':
      raise InputError(f'{rule} needs evaluations on the way; use --mode train_and_evaluate')
    if hparams.train_on != 'train' or options.subset not in (None, 'validation'):
      raise InputError(
        f'{rule} needs evaluations of the validation split; leave out --train-on '
        f'{hparams.train_on} or --subset {options.subset}, or use --max-minutes'
      )


def early_stopping_rules(options: RunOptions) -> list[str]:
  """Returns the early-stopping options that depend on evaluations: '--stop-at-accuracy 0.9'."""
  return [
    f'--{name.replace("_", "-")} {value:g}'
    for name in ('stop_at_accuracy', 'stop_without_gain')
    if (value := getattr(options, name)) is not None
  ]
