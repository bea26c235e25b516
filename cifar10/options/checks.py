"""Checks of options against the mode and against the options of other classes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from cifar10.core import files, option
from cifar10.core.errors import InputError
from cifar10.options.hparams import Augmentation, HParams, all_values
from cifar10.options.run_options import RunOptions, first_and_last

_OFF = (None, 0, '', (), 'none')  # What an option has where it is not in use; 0 is also False.


def check_mode(
  mode: str, options: RunOptions, images: Sequence[str] = (), dry_run: bool = False, out: str = ''
) -> None:
  """Raises InputError if options that a mode needs are missing, or given options do not fit it."""
  training = mode.startswith('train')
  _check_results(mode, options, images, out)
  if dry_run and not training:
    raise InputError(f'--dry-run belongs to training, not to --mode {mode}')
  if options.checkpoint and training:
    raise InputError(
      f'--checkpoint {options.checkpoint} belongs to --mode evaluate, predict and export; '
      f'{mode} continues from the latest'
    )
  if options.pretrained and training:
    raise InputError(
      f'--pretrained {options.pretrained} belongs to --mode evaluate, predict and export; to train '
      f'on from it, give a new job --warm-start-from {options.pretrained}'
    )
  if options.pretrained and mode == 'export' and not options.job_dir:
    raise InputError('--mode export needs --job-dir DIR, where the export goes')
  if options.subset and mode not in ('train_and_evaluate', 'evaluate', 'predict'):
    raise InputError(
      f'--subset {options.subset} belongs to evaluations and predict, not to --mode {mode}'
    )
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
  reads_data = mode not in ('predict', 'export') or (mode == 'predict' and options.subset)
  if reads_data and not options.data_dir:
    raise InputError(f'--mode {mode} needs --data-dir DIR')


def _check_results(mode: str, options: RunOptions, images: Sequence[str], out: str) -> None:
  for flag, value in (('format', options.format),):
    if value not in (None, 'saved_model') and mode != 'export':
      raise InputError(f'--{flag} {value} belongs to --mode export, not to {mode}')
  if mode == 'predict' and bool(images) == bool(options.subset):
    raise InputError('--mode predict needs --images PATH..., or --subset in their place')
  if out and mode != 'predict':
    raise InputError(f'--out {out} belongs to --mode predict, not {mode}')
  if out:
    check_out(out, '.jsonl', '.csv', '.npz')
  if images and mode != 'predict':
    raise InputError(f'--images belongs to --mode predict, not {mode}')
  urls = [name for name in images if files.is_url(name)]
  if urls:
    raise InputError(f'--images {urls[0]} is a URL; copy the images to a local folder')


def check_out(path: str, *suffixes: str) -> None:
  """Raises InputError for a file that cannot be written, or not in one of these formats."""
  if suffixes and not path.endswith(suffixes):
    raise InputError(f'--out {path}: a name must end in one of {", ".join(suffixes)}')
  folder = os.path.dirname(path) or '.'
  if files.is_url(folder):
    return
  if not files.is_dir(folder):
    raise InputError(f'--out {path}: there is no folder {folder}; make it')
  if files.is_dir(path):
    raise InputError(f'--out {path} is a folder; name a file')
  if not files.is_replaceable(path):
    raise InputError(f'--out {path} is a link or a device, which a file would replace; name a file')


def check_units(given: Mapping[str, Any]) -> None:
  """Raises InputError for a number that is given in steps and in epochs."""
  for name in ('train',):
    steps, epochs = given.get(f'{name}_steps'), given.get(f'{name}_epochs')
    if steps is not None and epochs is not None:
      flag = f'--{name.replace("_", "-")}'
      raise InputError(f'{flag}-steps {steps} and {flag}-epochs {epochs}: give one of the two')


def check_needs(given: Mapping[str, Any], hparams: HParams, options: RunOptions) -> None:
  """Raises InputError for a given option whose value has no effect without another option.

  Args:
    given: the options given, by name; not those of a recipe or a job.
    hparams: with all options of the training.
    options: the run's options.
  """
  values = {**option.values(options), **all_values(hparams)}
  classes = (RunOptions, HParams, Augmentation)
  for declared in (each for cls in classes for each in option.declarations(cls)):
    value, needed = given.get(declared.name), declared.option.needs
    if not needed or value in (declared.default, *_OFF) or values[needed] not in _OFF:
      continue
    shown, flag = f'{declared.flag} {value}', '--' + needed.replace('_', '-')
    if needed in given:
      raise InputError(f'{shown} has no effect with {flag} {given[needed]}; leave one out')
    raise InputError(f'{shown} belongs to {flag}; add it')
  phases = ('lr_values', 'lr_boundaries_steps', 'lr_boundaries_epochs')
  for name in phases if given.get('lr_triangle') else ():
    if given.get(name):
      shown = ','.join(map(str, given[name]))
      raise InputError(
        f'--{name.replace("_", "-")} {shown} has no effect with --lr-triangle; leave one out'
      )


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
  if hparams.validation_source and options.subset not in (None, 'validation'):
    raise InputError(
      f'--validation-source {hparams.validation_source} is not evaluated with --subset '
      f'{options.subset}; leave one out'
    )
  if not hparams.train_epochs:  # Else the data will say which step is the last.
    check_profiled(options, hparams.train_steps)
  _check_early_stopping(hparams, options, mode)


def check_profiled(options: RunOptions, last_step: int) -> None:
  """Raises InputError if a step to profile lies beyond the last one."""
  if options.profile_steps and first_and_last(options.profile_steps)[1] > last_step:
    raise InputError(
      f'--profile-steps {options.profile_steps} goes beyond the last step, {last_step}; lower it'
    )


def _check_early_stopping(hparams: HParams, options: RunOptions, mode: str) -> None:
  """Raises InputError if early stopping has no evaluations that it may use."""
  rules = early_stopping_rules(options)
  if mode == 'train' and rules:
    raise InputError(f'{rules[0]} needs evaluations on the way; use --mode train_and_evaluate')
  for rule in rules:
    hinders = f'--train-on {hparams.train_on}' if hparams.train_on != 'train' else ''
    if options.subset not in (None, 'validation'):
      hinders = hinders or f'--subset {options.subset}'
    if hinders:
      raise InputError(
        f'{rule} needs evaluations of the validation split; leave out {hinders}, or use '
        '--max-minutes'
      )


def early_stopping_rules(options: RunOptions) -> list[str]:
  """Returns the early-stopping options that depend on evaluations: '--stop-at-accuracy 0.9'."""
  return [
    f'--{name.replace("_", "-")} {value:g}'
    for name in ('stop_at_accuracy', 'stop_without_gain')
    if (value := getattr(options, name)) is not None
  ]
