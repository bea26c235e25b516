"""Checks a command before TensorFlow is loaded: its options, the job's, and the cluster's."""

import dataclasses
import os
import threading
from typing import Any, NamedTuple

from cifar10.cluster import tf_config
from cifar10.cluster.tf_config import Cluster
from cifar10.core import files, limits, option
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.core.option import flag_of
from cifar10.job import job_config, pretrained
from cifar10.options import flags, gone
from cifar10.options.hparams import Augmentation, HParams, all_values, from_values
from cifar10.options.run_options import RunOptions

_TRAINING = ('train_and_evaluate', 'train')
_OF_TRAINED = ('evaluate', 'predict', 'export')
# What belongs to some modes alone, and these modes.
_MODES = {
  'dry_run': _TRAINING,
  'profile_steps': _TRAINING,
  'callback': (*_TRAINING, 'evaluate'),
  'checkpoint': _OF_TRAINED,
  'pretrained': _OF_TRAINED,
  'use_ema': ('train_and_evaluate', *_OF_TRAINED),
  'subset': ('train_and_evaluate', 'evaluate', 'predict'),
  'images': ('predict',),
  'out': ('predict',),
  'format': ('export',),
}
_OFF: tuple[object, ...] = (None, 0, '', (), [], 'none')  # What has no effect; 0 is also False.


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
  options = RunOptions(**option.picked(RunOptions, command.given))
  _check_mode(command, options)
  training = command.mode in _TRAINING
  cluster = _cluster(options) if training else Cluster()  # TF_CONFIG's tasks train.
  options, hparams = _job(command, options)
  _check_needs(command.given, hparams, options)
  _check_run(hparams, options, command.mode)
  # A source runs in a thread of its own, and may go to another folder there; so may the program's
  # main thread while another one trains.
  is_beside = training and threading.current_thread() is not threading.main_thread()
  if hparams.source or hparams.validation_source or is_beside:
    folders = (options.job_dir, options.data_dir or '')
    job_dir, data_dir = (path and files.absolute(path) for path in folders)
    options = dataclasses.replace(options, job_dir=job_dir, data_dir=data_dir or None)
  files.check_no_pattern(options.job_dir, '--job-dir')
  if cluster.addresses or options.distribute or options.backup_workers:
    tf_config.check_options(hparams, options, cluster, command.mode)
  _set_environment(options)
  if cluster.task_type in ('ps', 'evaluator'):  # The flags are for workers, which have the GPUs.
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
    options = dataclasses.replace(options, num_gpus=0, variable_strategy='CPU', data_format=None)
  return Plan(command, hparams, options, cluster)


def _check_mode(command: flags.Command, options: RunOptions) -> None:
  """Raises InputError for options that do not fit the mode, and for missing ones."""
  mode, images = command.mode, command.images
  values = {**command._asdict(), **option.values(options)}
  for name, modes in _MODES.items():
    value = values[name]
    if value not in (*_OFF, 'saved_model') and mode not in modes:
      shown = '' if value is True else f' {value[0] if isinstance(value, (list, tuple)) else value}'
      message = f'{flag_of(name)}{shown} is for --mode {", ".join(modes)}, not for {mode}'
      warm = name == 'pretrained' and mode == 'train'
      raise InputError(message + '; --warm-start-from takes it' * warm)
  if mode == 'export' and not options.job_dir:
    raise InputError('--mode export needs --job-dir DIR, where the export goes')
  if mode == 'predict' and bool(images) == bool(options.subset):
    raise InputError('--mode predict needs --images PATH..., or --subset in their place')
  if not options.data_dir and (mode not in ('predict', 'export') or options.subset):
    raise InputError(f'--mode {mode} needs --data-dir DIR')
  for image in images:
    if files.is_url(image):
      raise InputError(f'--images {image} is a URL; copy the images to a local folder')
  if command.out:
    check_out(command.out, '.jsonl')


def check_out(path: str, *suffixes: str) -> None:
  """Raises InputError for a file that cannot be written, or not in one of these formats."""
  folder = os.path.dirname(path) or '.'
  if suffixes and not path.endswith(suffixes):
    raise InputError(f'--out {path}: its name must end in {" or ".join(suffixes)}')
  if not files.is_url(folder) and not files.is_dir(folder):
    raise InputError(f'--out {path}: there is no folder {folder}; make it')
  if not files.is_url(folder) and not files.is_replaceable(path):
    raise InputError(f'--out {path} is a folder, a link or a device; name a file')


def _job(command: flags.Command, options: RunOptions) -> tuple[RunOptions, HParams]:
  """Returns the options with the job's folder, and the given hyper-parameters with the job's."""
  training = command.mode in _TRAINING
  config: dict[str, Any] | None
  if options.pretrained:
    options, config = pretrained.as_job(options)
  else:
    read = job_config.read_begun if training else job_config.read_config
    config = read(options.job_dir)
  if not config:
    if training:
      return options, from_values(command.learning)
    raise InputError(f'--job-dir {options.job_dir} holds no trained network; train one first')
  for name, unchanged in gone.LEARNING.items():
    if config.get(name, unchanged) != unchanged:
      log.warning('%s %s of this job is gone since version 2: ignored', name, config[name])
  path = options.job_dir
  return options, job_config.adopt_config(command.learning, config, path, training=training)


def _cluster(options: RunOptions) -> Cluster:
  """Returns the cluster of TF_CONFIG, or a single process without it."""
  if not (text := os.environ.get('TF_CONFIG')):
    return Cluster()
  return tf_config.read_cluster(text, options.job_dir, 0 if options.distribute else 1)


def _check_needs(given: dict[str, Any], hparams: HParams, options: RunOptions) -> None:
  """Raises InputError for a given option that has no effect, because another one is off.

  `given` are those of the command, not those of a recipe or a job.
  """
  values = {**option.values(options), **all_values(hparams)}
  for declared in option.declarations(RunOptions, HParams, Augmentation):
    value, needed = given.get(declared.name), declared.option.needs
    if needed and value not in (declared.default, *_OFF) and values[needed] in _OFF:
      raise InputError(f'{declared.flag} {value} has no effect without {flag_of(needed)}')
  for name in ('lr_values', 'lr_boundaries_steps', 'lr_boundaries_epochs'):
    if given.get('lr_triangle') and given.get(name):
      raise InputError(f'{flag_of(name)} has no effect with --lr-triangle; leave one out')


def _check_run(hparams: HParams, options: RunOptions, mode: str) -> None:
  """Raises InputError if the run's options do not fit what it trains, or what the job trained."""
  if options.use_ema and not hparams.ema_decay:
    raise InputError(
      '--use-ema asks for an average of the weights, and the job was trained without --ema-decay; '
      'leave it out, or train a new job with --ema-decay 0.999'
    )
  if mode not in _TRAINING:
    return
  subset = '' if options.subset in (None, 'validation') else f'--subset {options.subset}'
  train_on = '' if hparams.train_on == 'train' else f'--train-on {hparams.train_on}'
  if hparams.validation_source and (subset or train_on):
    raise InputError(f'--validation-source is not evaluated with {subset or train_on}')
  if not hparams.train_epochs:  # Else the data will say which step is the last.
    options.check_profiled(hparams.train_steps)
  if options.stops_by and mode == 'train':
    raise InputError(
      f'{options.stops_by} needs evaluations on the way; use --mode train_and_evaluate'
    )
  if options.stops_by and (subset or train_on):
    raise InputError(
      f'{options.stops_by} needs evaluations of the validation split; leave out '
      f'{subset or train_on}, or use --max-minutes'
    )


def _set_environment(options: RunOptions) -> None:
  """Sets what TensorFlow reads when it is imported."""
  # GPU memory is allocated as needed, because another process may use the GPU.
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  # TensorFlow's threads are those of its first session or function, which may have no settings.
  asked = {'INTRA': options.num_intra_threads, 'INTER': options.num_inter_threads}
  for kind, number in asked.items():
    name = f'TF_NUM_{kind}OP_THREADS'
    if threads := limits.threads(number):
      os.environ[name] = str(threads) if number else os.environ.get(name, str(threads))
