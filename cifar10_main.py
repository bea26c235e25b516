"""Trains, evaluates, exports and applies networks on CIFAR-10 and data sets like it.

  python cifar10_main.py --data-dir DATA --job-dir JOB

trains ResNet-44 for 80,000 steps, evaluates on the validation split on the way and on the test
split at the end, and prints the result as one JSON line. The same command resumes.
"""

import argparse
import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable
from typing import Any

from cifar10.cluster.tasks import Cluster
from cifar10.core import errors, files, lazy_tf, logs, parts, storage_errors
from cifar10.core.errors import InputError
from cifar10.core.option import names, picked
from cifar10.data.augmentation import Augmentation
from cifar10.job import job_config
from cifar10.networks.registry import DEFAULT, FAMILIES
from cifar10.options import flags
from cifar10.options.hparams import (
  DEFAULT_RECIPE,
  RECIPES,
  HParams,
  from_values,
  recipe_values,
)
from cifar10.options.run_options import RunOptions, first_and_last

# The options that say what is trained; all others say where and how it runs.
_LEARNING = names(HParams, Augmentation, *FAMILIES.values()) | {'network'}

_MODES = ('train_and_evaluate', 'train', 'evaluate', 'predict', 'export')


def main() -> None:
  """The command: parses and checks the flags, then runs one mode."""
  command = _parser().parse_args()
  given = vars(command)
  options = RunOptions(**picked(RunOptions, given))
  _check_mode(command, options)
  training = command.mode.startswith('train')
  cluster = _cluster(options) if training else Cluster()
  if training:
    _check_distribution(options, cluster)
  hparams = _hparams(command, options, training)
  _check_cluster(hparams, options, cluster)
  _check_averages(hparams, options)
  _check_profile(hparams, options, command.mode)
  if training:
    _check_rules(hparams, options, cluster, command.mode)
    _check_source(hparams, options)
  # Of a GPU's memory what is needed, when it is needed: another process may be there.
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  if cluster.task_type in ('ps', 'evaluator'):  # The flags are the workers', who have the GPUs.
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
    options = dataclasses.replace(options, num_gpus=0, variable_strategy='CPU', data_format=None)
  if not command.verbose:
    lazy_tf.import_tensorflow()  # So late that --help and refusals do not wait for it.
  from cifar10.cluster import roles, signals  # noqa: PLC0415
  from cifar10.training.process import Process  # noqa: PLC0415

  logs.set_up(command.verbose)
  if command.dry_run:
    evaluating = command.mode == 'train_and_evaluate'
    with signals.SignalMonitor() as monitor:
      found = parts.load('dry_run').dry_run(
        hparams, options, cluster, monitor, evaluating=evaluating
      )
    errors.print_result(json.dumps(found))
    return
  role = roles.choose(cluster, options)
  # Prediction and export are over at once: SIGTERM may end them as it ends any program.
  ends_when_told = training or command.mode == 'evaluate'
  watching = role.monitor if ends_when_told else contextlib.nullcontext()
  with storage_errors.named('--job-dir', options.job_dir), watching:
    results = _run(command, Process(hparams, options, role))
  for result in results:
    errors.print_result(json.dumps(result))


def _hparams(command: argparse.Namespace, options: RunOptions, training: bool) -> HParams:
  """What the recipe and the flags say, and of the rest what the job dir was trained with."""
  given = {name: value for name, value in vars(command).items() if name in _LEARNING}
  given = recipe_values(command.recipe, given)
  config = job_config.read_config(options.job_dir)
  if config:
    return job_config.adopt_config(given, config, options.job_dir, training=training)
  if not training:
    raise InputError(f'--job-dir {options.job_dir} holds no trained network; train one first')
  return from_values(given)


def _cluster(options: RunOptions) -> Cluster:
  """What TF_CONFIG says; without it a process alone."""
  text = os.environ.get('TF_CONFIG')
  if not text:
    return Cluster()
  num_ps_needed = 0 if options.distribute else 1
  return parts.load('tf_config').read_cluster(text, options.job_dir, num_ps_needed)


def _run(command: argparse.Namespace, process: Any) -> Iterable[dict[str, Any]]:
  """One mode, or one task's part -> the JSON objects to print as they come, the result last."""
  from cifar10.training import evaluator, trainer  # noqa: PLC0415

  task_type = process.role.cluster.task_type
  if task_type == 'ps':
    return [parts.load('parameter_server').serve(process.role)]
  if task_type == 'evaluator':
    return [parts.load('follow').follow(process)]
  if command.mode == 'export':
    from cifar10.exporters import export  # noqa: PLC0415

    return [export.export(process)]
  if command.mode == 'predict':
    from cifar10.inference import predict  # noqa: PLC0415

    classes = process.data.classes
    return predict.predict(process.estimator(), command.images, process.checkpoint(), classes)
  if command.mode == 'evaluate':
    return [evaluator.evaluate_once(process)]
  modes = {'train_and_evaluate': trainer.train_and_evaluate, 'train': trainer.train}
  return [modes[command.mode](process)]


def _check_mode(command: argparse.Namespace, options: RunOptions) -> None:
  """Raises InputError where a mode lacks what it needs or has what it does not take."""
  if command.mode == 'predict' and not command.images:
    raise InputError('--mode predict needs --images PATH...')
  if command.images and command.mode != 'predict':
    raise InputError(f'--images belongs to --mode predict, not {command.mode}')
  urls = [name for name in command.images or () if files.is_url(name)]
  if urls:
    raise InputError(f'--images {urls[0]} is a URL; copy the images to a local folder')
  if command.dry_run and not command.mode.startswith('train'):
    raise InputError(f'--dry-run belongs to training, not to --mode {command.mode}')
  if options.checkpoint and command.mode.startswith('train'):
    raise InputError(
      f'--checkpoint {options.checkpoint} belongs to --mode evaluate, predict and export; '
      f'{command.mode} goes on from the latest'
    )
  if options.subset and command.mode not in ('train_and_evaluate', 'evaluate'):
    raise InputError(
      f'--subset {options.subset} belongs to evaluations, not to --mode {command.mode}'
    )
  if options.data_service and not command.mode.startswith('train'):
    raise InputError(f'--data-service belongs to training, not to --mode {command.mode}')
  if options.use_ema and command.mode == 'train':
    raise InputError('--use-ema belongs to evaluations, predict and export, not to --mode train')
  if command.mode not in ('predict', 'export') and not options.data_dir:
    raise InputError(f'--mode {command.mode} needs --data-dir DIR')


def _check_cluster(hparams: HParams, options: RunOptions, cluster: Cluster) -> None:
  """Raises InputError for what the cluster has no use for, or no order of updates for."""
  if cluster.is_distributed or cluster.has_evaluator:
    files.check_shared('--data-dir', options.data_dir or '')
    files.check_shared('--job-dir', options.job_dir)
  if hparams.lookahead_steps and (
    options.distribute or (cluster.is_distributed and not options.sync)
  ):
    raise InputError(
      f'--lookahead-steps {hparams.lookahead_steps} needs all updates made in one place; use '
      'parameter servers with --sync, or --lookahead-steps 0'
    )
  if not options.backup_workers:
    return
  if options.distribute:
    raise InputError(
      f'--distribute {options.distribute} waits for everyone; leave --backup-workers '
      f'{options.backup_workers} out'
    )
  if not options.sync:
    raise InputError(f'--backup-workers {options.backup_workers} belongs to --sync; add it')
  if options.backup_workers >= cluster.num_workers:
    raise InputError(
      f'--backup-workers {options.backup_workers} of {cluster.num_workers} worker(s), the chief '
      'among them; leave at least one'
    )


def _check_profile(hparams: HParams, options: RunOptions, mode: str) -> None:
  """Raises InputError where there will be no such steps."""
  if not options.profile_steps:
    return
  asked = f'--profile-steps {options.profile_steps}'
  if not mode.startswith('train'):
    raise InputError(f'{asked} belongs to training, not to --mode {mode}')
  last = first_and_last(options.profile_steps)[1]
  if last > hparams.train_steps:
    raise InputError(f'{asked} goes beyond the last step, {hparams.train_steps}; lower it')


def _check_rules(hparams: HParams, options: RunOptions, cluster: Cluster, mode: str) -> None:
  """Raises InputError for a rule that would never hear of an evaluation that it may choose by."""
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


def _check_source(hparams: HParams, options: RunOptions) -> None:
  """Raises InputError for ways to run a source that there is not, or that this run has not."""
  if options.source_processes > 1 and not hparams.source:
    raise InputError(f'--source-processes {options.source_processes} belongs to --source; add it')
  if not options.data_service:
    return
  asked = f'--data-service {options.data_service}'
  if options.source_processes > 1:
    raise InputError(
      f'--source-processes {options.source_processes} runs the source here, and {asked} in data '
      'workers; leave one out'
    )
  if options.deterministic:
    raise InputError(
      f'{asked} gives batches as data workers have made them, in no order that can be repeated; '
      'leave --deterministic out'
    )


def _check_averages(hparams: HParams, options: RunOptions) -> None:
  """Raises InputError where there are no averages to use."""
  if options.use_ema and not hparams.ema_decay:
    raise InputError(
      '--use-ema asks for an average of the weights, and the job was trained without --ema-decay; '
      'leave it out, or train a new job with --ema-decay 0.999'
    )


def _check_distribution(options: RunOptions, cluster: Cluster) -> None:
  """Raises InputError for an all-reduce that does not fit the cluster or the other flags."""
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


class _ListRecipes(argparse.Action):
  """Prints the recipes and ends, as --help does."""

  def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
    print(flags.list_recipes())
    parser.exit()


def _parser() -> argparse.ArgumentParser:
  """The command's own flags, and one for every declared option."""
  parser = errors.OneLineParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument_group('what it does').add_argument
  add('--mode', choices=_MODES, default=_MODES[0], help='(default: %(default)s)')
  add(
    '--recipe',
    choices=tuple(RECIPES),
    default=DEFAULT_RECIPE,
    help='sets defaults (default: %(default)s)',
  )
  add('--list-recipes', action=_ListRecipes, nargs=0, help='say what they lead to')
  add(
    '--network',
    choices=tuple(FAMILIES),
    default=argparse.SUPPRESS,
    help=f'the family (default: {DEFAULT})',
  )
  add(
    '--images',
    nargs='+',
    metavar='PATH',
    help="for --mode predict: PNG or JPEG files, folders with them, patterns as 'photos/*.png'",
  )
  parser.set_defaults(dry_run=False)
  if 'dry_run' in parts.PARTS:
    add(
      '--dry-run',
      action='store_true',
      help='say what training would be: check everything, time twenty steps, leave the job dir '
      'alone',
    )
  add('--verbose', action='store_true', help="show TensorFlow's own log")
  flags.add_flags(parser)
  return parser


if __name__ == '__main__':
  errors.run_command(main)
