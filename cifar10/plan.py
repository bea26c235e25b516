"""Checks a command before TensorFlow is loaded: its options, the job's, and the cluster's."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from cifar10.cluster import tf_config
from cifar10.core import files, gone, limits, option
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.core.option import flag_of
from cifar10.job import job_config, pretrained
from cifar10.options.flags import Command
from cifar10.options.hparams import Augmentation, HParams, all_values, from_values, recipe_values
from cifar10.options.run_options import RunOptions

_TRAINING = ('train_and_evaluate', 'train')
_OF_TRAINED = ('evaluate', 'predict', 'export')
# What belongs to some modes alone, and these modes.
_MODES = {
  'dry_run': _TRAINING,
  'callback': (*_TRAINING, 'evaluate'),
  'checkpoint': _OF_TRAINED,
  'pretrained': _OF_TRAINED,
  'use_ema': ('train_and_evaluate', *_OF_TRAINED),
  'subset': ('train_and_evaluate', 'evaluate', 'predict'),
  'images': ('predict',),
  'out': ('predict',),
  'format': ('export',),
}
_OFF = (None, 0, '', (), 'none')  # What has no effect; 0 is also False.
_NEVER_BOTH = (  # Of which only one has an effect.
  ('train_steps', 'train_epochs'),
  ('optimizer', 'momentum'),
  ('optimizer', 'nesterov'),
  ('distribute', 'backup_workers'),  # It waits for all.
  ('lr_triangle', 'lr_values'),
  ('lr_triangle', 'lr_boundaries_epochs'),
  *(('schedule', other) for other in ('lr_values', 'lr_boundaries_epochs', 'lr_triangle')),
)


class Plan(NamedTuple):
  """A checked command: what to run."""

  command: Command
  hparams: HParams
  options: RunOptions
  cluster: tf_config.Cluster


def check(given: Mapping[str, Any], tasks: str | None = None) -> Plan:
  """Checks all that does not need TensorFlow, and sets what TensorFlow reads on import.

  `given` are the options of a command by name, as `flags.parse` returns them; `tasks` is the text
  of TF_CONFIG, if not the variable's. Raises InputError if they do not fit the mode, the job, the
  cluster or each other.
  """
  command = Command(**option.picked(given, Command))
  options = RunOptions(**option.picked(given, RunOptions))
  _check_mode(command, options)
  training = command.mode in _TRAINING
  cluster, tasks = tf_config.Cluster(), tasks or os.environ.get('TF_CONFIG')
  if tasks and training:
    cluster = tf_config.parse_cluster(tasks, num_ps_needed=0 if options.distribute else 1)
  learning = {name: given[name] for name in set(given) - option.names(Command, RunOptions)}
  if command.recipe:
    learning = recipe_values(command.recipe, learning)
  options, config = _job(options, training=training)
  if config or not training:
    hparams = job_config.adopt_config(learning, config, options.job_dir, training=training)
  else:  # A recipe trains as it was measured. A warm start brings no initial value to forget.
    warms_up = not (command.recipe or options.warm_start_from)
    hparams = from_values({**learning, 'batch_norm_warmup': warms_up})
  _check_needs(given, hparams, options)
  for is_broken, message in _rules(hparams, options, cluster, command.mode):
    if is_broken:
      raise InputError(message)
  files.check_no_pattern(options.job_dir, '--job-dir')
  limits.set_threads(intra=options.num_intra_threads, inter=options.num_inter_threads)
  if cluster.task_type in ('ps', 'evaluator'):  # The flags are for workers, which have the GPUs.
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
    options = dataclasses.replace(options, num_gpus=0, variable_strategy=None, data_format=None)
  return Plan(command, hparams, options, cluster)


def _check_mode(command: Command, options: RunOptions) -> None:
  """Raises InputError for options that do not fit the mode, and for missing ones."""
  mode = command.mode
  values = {**option.values(command), **option.values(options)}
  for name, modes in _MODES.items():
    if mode not in modes and values[name] not in (*_OFF, 'saved_model'):
      shown = option.as_flag(name, values[name])
      raise InputError(f'{shown} is for --mode {", ".join(modes)}, not for {mode}')
  if mode == 'export' and not options.job_dir:
    raise InputError('--mode export needs --job-dir DIR, where the export goes')
  if mode == 'predict' and bool(command.images) == bool(options.subset):
    raise InputError('--mode predict needs --images PATH..., or --subset in their place')
  if urls := list(filter(files.is_url, command.images)):
    raise InputError(f'--images {urls[0]} is a URL; copy the images to a local folder')
  if not options.data_dir and (mode not in ('predict', 'export') or options.subset):
    raise InputError(f'--mode {mode} needs --data-dir DIR')
  if command.out is not None:
    check_out(command.out, '.jsonl')


def check_out(path: str, *suffixes: str) -> None:
  """Raises InputError for a file that cannot be written, or not in one of these formats."""
  if suffixes and not path.endswith(suffixes):
    raise InputError(f'--out {path}: its name must end in {" or ".join(suffixes)}')
  if files.is_url(path):
    return
  is_file = os.path.isfile(path) and not os.path.islink(path)
  if not files.is_dir(os.path.dirname(path) or '.') or (os.path.lexists(path) and not is_file):
    raise InputError(f'--out {path} is no file, or its folder is missing; name another, or make it')


def _job(options: RunOptions, *, training: bool) -> tuple[RunOptions, dict[str, Any]]:
  """Returns the options with the job's folder, and the job's configuration; of a new one {}."""
  if options.pretrained:
    return pretrained.as_job(options)
  read = job_config.read_begun if training else job_config.read_config
  config = read(options.job_dir) or {}
  for name, unchanged in gone.LEARNING.items() if training else ():
    if config.get(name, unchanged) != unchanged:
      log.warning('%s %s of this job is gone since version 2: ignored', name, config[name])
  return options, config


def _check_needs(given: Mapping[str, Any], hparams: HParams, options: RunOptions) -> None:
  """Raises InputError for a given option that has no effect, because of another one.

  `given` are those of the command, not those of a recipe or a job.
  """
  values = {**option.values(options), **all_values(hparams)}
  declared = option.declarations(RunOptions, HParams, Augmentation)
  needs = {each.name: each.needs for each in declared}
  for each in declared:
    value, needed = given.get(each.name), each.needs
    while needed and values[needed] not in _OFF:
      needed = needs[needed]
    if needed and value not in (each.default, *_OFF):
      raise InputError(f'{flag_of(each.name)} {value} has no effect without {flag_of(needed)}')
  for one, other in _NEVER_BOTH:
    if given.get(one) and given.get(other):
      raise InputError(f'{flag_of(one)} and {flag_of(other)}: leave one of the two out')


def _rules(
  hparams: HParams, options: RunOptions, cluster: tf_config.Cluster, mode: str
) -> list[tuple[object, str]]:
  """Returns what must not be true of a run, of what it trains and of its tasks, with a message."""
  no_ema = '--use-ema: this job is trained without --ema-decay; leave it out, or add that'
  rules: list[tuple[object, str]] = [(options.use_ema and not hparams.ema_decay, no_ema)]
  if mode not in _TRAINING:
    return rules
  ends = {name: getattr(options, name) for name in ('stop_at_accuracy', 'stop_without_gain')}
  stops = next((option.as_flag(*each) for each in ends.items() if each[1] is not None), '')
  other = ''  # Why the validation split is not evaluated.
  if hparams.train_on != 'train':
    other = f'--train-on {hparams.train_on}'
  if options.subset not in (None, 'validation'):
    other = f'--subset {options.subset}'
  workers, backups = cluster.num_workers, options.backup_workers
  is_async = cluster.is_distributed and not (options.sync or options.distribute)
  reduces = f'--distribute {options.distribute}' if options.distribute else ''
  repeats = options.deterministic and workers > 1
  is_unheard = cluster.is_distributed and not cluster.has_evaluator and cluster.task_type != 'ps'
  together = 'use --sync, or --distribute multi_worker_mirrored'
  lookahead = f'--lookahead-steps {hparams.lookahead_steps}'
  no_source = f'--validation-source is not evaluated with {other}; leave one of them out'
  no_split = f'{stops} is of the validation split; leave out {other}, or use --max-minutes'
  by_chance = f'--deterministic, but with --backup-workers {backups} who is late changes the update'
  return [
    *rules,
    (hparams.validation_source and other, no_source),
    (stops and mode == 'train', f'{stops} needs evaluations; use --mode train_and_evaluate'),
    (stops and other, no_split),
    (backups >= workers, f'--backup-workers {backups} of {workers} with the chief; leave one'),
    (hparams.lookahead_steps and is_async, f'{lookahead} needs common updates; {together}'),
    (reduces and cluster.num_ps, f'{reduces} uses no ps, and TF_CONFIG lists {cluster.num_ps}'),
    (reduces and workers == 1, f'{reduces} needs workers in TF_CONFIG; on one host leave it out'),
    (stops and is_unheard, f'{stops} needs an evaluator in TF_CONFIG'),
    (repeats and is_async, f'--deterministic, but workers update as they come; {together}'),
    (repeats and backups, by_chance),
  ]
