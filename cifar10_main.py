"""Trains, evaluates, exports and applies ResNets on CIFAR-10.

  python cifar10_main.py --data-dir DATA --job-dir JOB

trains ResNet-44 for 80,000 steps, evaluates on the validation split on the way and on the test
split at the end, and prints the result as one JSON line. The same command resumes.
"""

import argparse
import contextlib
import dataclasses
import json
import os
from collections.abc import Callable
from typing import Any

from cifar10 import errors, job_dir, quiet
from cifar10.cluster import Cluster, read_cluster
from cifar10.errors import InputError
from cifar10.hparams import (
  RECIPES,
  HParams,
  RunOptions,
  from_recipe,
)
from cifar10.watch import Watch

_MODES = ('train_and_evaluate', 'train', 'evaluate', 'predict', 'export')


def main() -> None:
  """The command: parses and checks the flags, then runs one mode."""
  flags = _parser().parse_args()
  given = _of_class(HParams, flags)
  hparams = from_recipe(flags.recipe, given)
  given = {**RECIPES[flags.recipe].defaults, **given}
  options = RunOptions(**_of_class(RunOptions, flags))
  _check_mode(flags)
  _check_hparams(hparams)
  _check_options(options)
  training = flags.mode.startswith('train')
  num_ps_needed = 0 if options.distribute else 1
  cluster = (
    read_cluster(os.environ.get('TF_CONFIG', ''), options.job_dir, num_ps_needed)
    if training
    else Cluster()
  )
  if training:
    _check_distribution(options, cluster)
  _check_cluster(hparams, options, cluster)
  config = job_dir.read_config(options.job_dir)
  if config:
    hparams = job_dir.adopt_config(hparams, given, config, options.job_dir, training=training)
  elif not training:
    raise InputError(f'--job-dir {options.job_dir} holds no trained network; train one first')
  # Of a GPU's memory what is needed, when it is needed: another process may be there.
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  if cluster.task_type in ('ps', 'evaluator'):  # The flags are the workers', who have the GPUs.
    os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
    options = dataclasses.replace(options, num_gpus=0, variable_strategy='CPU', data_format=None)
  if not flags.verbose:
    quiet.import_tensorflow()  # So late that --help and refusals do not wait for it.
  from cifar10 import hooks, job  # noqa: PLC0415

  hooks.set_up_logging(flags.verbose)
  spare_workers = options.backup_workers if options.sync else cluster.num_workers
  if options.distribute:
    spare_workers = 0
  watch = Watch(cluster, spare_workers, options.start_timeout, options.distribute is not None)
  # Prediction and export are over at once: SIGTERM may end them as it ends any program.
  with watch if training or flags.mode == 'evaluate' else contextlib.nullcontext():
    results = _run(flags, job.Job(hparams, options, cluster, watch), cluster.task_type)
  for result in results:
    print(json.dumps(result))


def _run(flags: argparse.Namespace, job: Any, task_type: str) -> list[dict[str, Any]]:
  """One mode, or one task's part -> the JSON objects to print, the result last."""
  if task_type == 'ps':
    return [job.serve()]
  if task_type == 'evaluator':
    return [job.evaluate_on_the_way()]
  if flags.mode == 'predict':
    return job.predict(flags.images)
  modes = {
    'train_and_evaluate': job.train_and_evaluate,
    'train': job.train,
    'evaluate': job.evaluate,
    'export': job.export,
  }
  return [modes[flags.mode]()]


def _of_class(options: type, flags: argparse.Namespace) -> dict[str, Any]:
  """The flags that are fields of this dataclass."""
  names = {field.name for field in dataclasses.fields(options)}
  return {name: value for name, value in vars(flags).items() if name in names}


def _check_mode(flags: argparse.Namespace) -> None:
  """Raises InputError where a mode lacks what it needs or has what it does not take."""
  if flags.mode == 'predict' and not flags.images:
    raise InputError('--mode predict needs --images FILE...')
  if flags.images and flags.mode != 'predict':
    raise InputError(f'--images belongs to --mode predict, not {flags.mode}')
  if flags.checkpoint and flags.mode.startswith('train'):
    raise InputError(
      f'--checkpoint {flags.checkpoint} belongs to --mode evaluate, predict and export; '
      f'{flags.mode} goes on from the latest'
    )
  if flags.subset and flags.mode not in ('train_and_evaluate', 'evaluate'):
    raise InputError(f'--subset {flags.subset} belongs to evaluations, not to --mode {flags.mode}')
  if flags.mode not in ('predict', 'export') and not flags.data_dir:
    raise InputError(f'--mode {flags.mode} needs --data-dir DIR')


def _check_cluster(hparams: HParams, options: RunOptions, cluster: Cluster) -> None:
  """Raises InputError for what the cluster has no use for, or no order of updates for."""
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


def _check_options(options: RunOptions) -> None:
  """Raises InputError for a number out of range."""
  for name in ('num_cpu_towers', 'eval_every_steps', 'save_every_steps', 'keep_checkpoints'):
    _require(options, name, lambda value: value is None or value >= 1, 'must be 1 or more')
  for name in ('num_intra_threads', 'num_inter_threads'):
    _require(options, name, lambda value: value >= 0, 'must be 0 (all cores) or more')
  _require(options, 'backup_workers', lambda value: value >= 0, 'must be 0 or more')
  for name in ('start_timeout', 'evaluator_patience'):
    _require(options, name, lambda value: value > 0, 'must be above 0 seconds')
  _require(
    options, 'num_gpus', lambda value: value is None or value >= 0, 'must be 0 (the CPU) or more'
  )


def _check_hparams(hparams: HParams) -> None:
  """Raises InputError for a number out of range or numbers that do not fit each other."""
  for name in ('train_steps', 'train_batch_size', 'eval_batch_size', 'convs_per_group'):
    _require(hparams, name, lambda value: value >= 1, 'must be 1 or more')
  for name in ('momentum', 'muon_momentum', 'batch_norm_decay', 'label_smoothing'):
    _require(hparams, name, lambda value: 0 <= value < 1, 'must be at least 0 and below 1')
  for name in ('learning_rate', 'batch_norm_epsilon', 'offset_lr_factor', 'head_lr_factor'):
    _require(hparams, name, lambda value: value > 0, 'must be above 0')
  for name in ('weight_decay', 'muon_learning_rate', 'lookahead_steps', 'first_bias_steps'):
    _require(hparams, name, lambda value: value >= 0, 'must be 0 or more')
  _require(hparams, 'crop_padding', lambda value: 0 <= value <= 31, 'must be 0 to 31 pixels')
  _require(hparams, 'cutout', lambda value: 0 <= value <= 32, 'must be 0 to 32 pixels')
  _require(
    hparams,
    'widths',
    lambda widths: len(widths) == 3 and 24 <= widths[0] <= widths[1] <= widths[2],
    'must be three numbers that do not fall, from 24 on',
  )
  if hparams.bottleneck and hparams.resnet_version != 2:
    raise InputError('--bottleneck blocks are version 2 only; add --resnet-version 2')
  _check_schedule(hparams)


def _check_schedule(hparams: HParams) -> None:
  _require(
    hparams,
    'lr_triangle',
    lambda numbers: not numbers or (len(numbers) == 3 and min(numbers) >= 0 and numbers[1] <= 1),
    'must be three numbers: the first factor, when it is 1 (0 to 1, of training), the last',
  )
  boundaries = hparams.lr_boundaries_steps or hparams.lr_boundaries_epochs
  if len(hparams.lr_values) != len(boundaries) + 1:
    raise InputError(
      f'--lr-values has {len(hparams.lr_values)} values and its boundaries are {len(boundaries)}; '
      'give one value more than boundaries'
    )
  if list(boundaries) != sorted(set(boundaries)) or (boundaries and boundaries[0] <= 0):
    raise InputError(f'learning-rate boundaries {list(boundaries)} must rise from above 0')


def _require(owner: Any, name: str, accepts: Callable[[Any], bool], remedy: str) -> None:
  value = getattr(owner, name)
  if not accepts(value):
    raise InputError(f'--{name.replace("_", "-")} is {value}: it {remedy}')


def _parse_bool(text: str) -> bool:
  values = {'true': True, '1': True, 'yes': True, 'false': False, '0': False, 'no': False}
  if text.lower() not in values:
    raise argparse.ArgumentTypeError(f'{text!r} is not True or False')
  return values[text.lower()]


def _numbers(number: Callable[[str], Any]) -> Callable[[str], tuple]:
  def parse(text: str) -> tuple:
    try:
      return tuple(number(part) for part in text.split(','))
    except ValueError:
      raise argparse.ArgumentTypeError(f'{text!r} is not numbers with commas between') from None

  return parse


def _as_flag(field: str, value: Any) -> str:
  flag = f'--{field.replace("_", "-")}'
  if isinstance(value, tuple):
    value = ','.join(map(str, value))
  return flag if value is True else f'{flag} {value}'


class _ListRecipes(argparse.Action):
  """Prints the recipes and ends, as --help does."""

  def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
    for name, recipe in RECIPES.items():
      print(f'{name}\n  accuracy: {recipe.accuracy}\n  cost: {recipe.cost}')
      flags = [_as_flag(field, value) for field, value in recipe.defaults.items()]
      print(f'  is: {" ".join(flags) or "the defaults"}')
    parser.exit()


def _parser() -> argparse.ArgumentParser:
  """All flags. A hyper-parameter's stays unset unless given, so that a job dir can fill it in."""
  parser = errors.OneLineParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  _add_run_flags(parser.add_argument_group('what runs'))
  _add_hparam_flags(parser.add_argument_group('network and optimization'))
  _add_device_flags(parser.add_argument_group('devices'))
  _add_cluster_flags(parser.add_argument_group('several devices or, with TF_CONFIG, processes'))
  return parser


def _add_run_flags(group: Any) -> None:
  add = group.add_argument
  add('--data-dir', help='the folder that generate_cifar10_tfrecords.py filled')
  add('--job-dir', required=True, help='checkpoints, summaries and exports; resumes what it holds')
  add('--mode', choices=_MODES, default=_MODES[0], help='(default: %(default)s)')
  add(
    '--subset',
    choices=('train', 'validation', 'eval'),
    help='evaluate this split (default: validation while training, eval, the test set, at the end)',
  )
  add('--checkpoint', help='evaluate, predict or export this one (default: the latest)')
  add('--images', nargs='+', metavar='FILE', help='PNG or JPEG files, for --mode predict')
  add('--eval-every-steps', type=int, default=1000, help='(default: %(default)s)')
  add('--save-every-steps', type=int, help='(default: when evaluating)')
  add('--keep-checkpoints', type=int, default=5, help='(default: %(default)s)')
  add('--verbose', action='store_true', help="show TensorFlow's own log")


def _add_cluster_flags(group: Any) -> None:
  add = group.add_argument
  add(
    '--distribute',
    choices=('mirrored', 'multi_worker_mirrored'),
    help='all-reduce instead of parameter servers: on one host, or between chief and workers',
  )
  add('--sync', action='store_true', help="one update from the mean of all workers' gradients")
  add(
    '--backup-workers',
    type=int,
    default=0,
    help='with --sync, let the chief go on without the last N workers',
  )
  add('--num-workers', type=int, default=1, help='ignored: TF_CONFIG says how many')
  add(
    '--start-timeout',
    type=float,
    default=600,
    metavar='SECONDS',
    help='end when a task that is needed has not come up (default: %(default)s)',
  )
  add(
    '--evaluator-patience',
    type=float,
    default=600,
    metavar='SECONDS',
    help='an evaluator ends when the chief has been gone so long (default: %(default)s)',
  )


def _add_hparam_flags(group: Any) -> None:
  group.add_argument(
    '--recipe', choices=tuple(RECIPES), default='classic', help='sets defaults (default: classic)'
  )
  group.add_argument('--list-recipes', action=_ListRecipes, nargs=0, help='say what they lead to')

  def add(flag: str, help_text: str, **settings: Any) -> None:
    default = getattr(HParams, flag[2:].replace('-', '_'))
    if isinstance(default, tuple):
      default = ','.join(f'{number:g}' for number in default) or 'none'
    group.add_argument(
      flag, default=argparse.SUPPRESS, help=f'{help_text} (default: {default})', **settings
    )

  add('--network', 'the kind', choices=('resnet', 'fastnet'))
  add('--num-layers', 'of a resnet: 6n+2, or 9n+2 with --bottleneck', type=int)
  add('--resnet-version', '1: conv, bn, relu; 2: bn, relu, conv', type=int, choices=(1, 2))
  add('--bottleneck', '1x1, 3x3, 1x1 blocks', action='store_true')
  add('--widths', "channels of a fastnet's three groups", type=_numbers(int))
  add('--convs-per-group', 'of a fastnet', type=int)
  add('--train-on', 'the training split', choices=('train', 'train+validation'))
  add('--train-steps', 'global steps in all', type=int)
  add('--train-batch-size', 'examples a step, all towers together', type=int)
  add('--eval-batch-size', 'examples', type=int)
  add('--learning-rate', 'multiplies the schedule', type=float)
  add('--lr-values', 'factors, one a phase', type=_numbers(float))
  add('--lr-boundaries-epochs', 'ends of the phases', type=_numbers(float))
  add('--lr-boundaries-steps', 'the same in steps', type=_numbers(int))
  add('--lr-triangle', 'no phases: first factor, when it is 1, last factor', type=_numbers(float))
  add('--momentum', 'of the optimizer', type=float)
  add('--nesterov', "Nesterov's momentum", action='store_true')
  add('--weight-decay', 'L2 on all trainable variables', type=float)
  add('--offset-lr-factor', 'batch-norm offsets learn so much faster', type=float)
  add('--head-lr-factor', 'the fully connected layer learns so much faster', type=float)
  add('--first-bias-steps', "how long a fastnet's first bias learns; 0: all", type=int)
  add('--muon-learning-rate', 'convolution kernels by Muon; 0: by SGD', type=float)
  add('--muon-momentum', 'of Muon', type=float)
  add('--label-smoothing', 'of the target, spread over the classes', type=float)
  add('--lookahead-steps', 'between two meetings of fast and slow variables; 0: none', type=int)
  add(
    '--use-distortion-for-training',
    'random crops and mirrors',
    nargs='?',
    const=True,
    type=_parse_bool,
  )
  group.add_argument(
    '--no-use-distortion-for-training',
    dest='use_distortion_for_training',
    action='store_false',
    default=argparse.SUPPRESS,
  )
  add('--crop-padding', 'pixels on each side before a crop', type=int)
  add('--padding-mode', 'what they are', choices=('zeros', 'reflect'))
  add('--flip', 'alternating: every other epoch', choices=('random', 'alternating'))
  add('--cutout', 'side of a blanked square in pixels; 0: none', type=int)
  add('--batch-norm-decay', 'of the moving averages', type=float)
  add('--batch-norm-epsilon', 'added to the variance', type=float)
  add('--dtype', 'of activations', choices=('auto', 'float32', 'bfloat16'))
  add(
    '--tta',
    'average the logits of views of a test image',
    choices=('none', 'mirror', 'mirror+shift'),
  )
  add('--seed', 'of initial values, order and distortions', type=int)


def _add_device_flags(group: Any) -> None:
  add = group.add_argument
  add('--num-gpus', type=int, help='towers on GPUs; 0: the CPU (default: as many as are visible)')
  add('--num-cpu-towers', type=int, default=1, help='towers on virtual CPUs (default: 1)')
  add(
    '--variable-strategy',
    choices=('CPU', 'GPU'),
    default='CPU',
    help='where variables live (default: CPU)',
  )
  add('--data-format', choices=('channels_first', 'channels_last'), help='(default: by device)')
  add('--num-intra-threads', type=int, default=0, help='in an operation (default: 0, all cores)')
  add('--num-inter-threads', type=int, default=0, help='between operations (default: 0, all)')
  add('--log-device-placement', action='store_true', help='where each operation runs')


if __name__ == '__main__':
  errors.run_command(main)
