"""Trains, evaluates, exports and applies ResNets on CIFAR-10.

  python cifar10_main.py --data-dir DATA --job-dir JOB

trains ResNet-44 for 80,000 steps, evaluates on the validation split on the way and on the test
split at the end, and prints the result as one JSON line. The same command resumes.
"""

import argparse
import dataclasses
import json
import os
from collections.abc import Callable
from typing import Any

from cifar10 import errors, job_dir
from cifar10.errors import InputError
from cifar10.hparams import FIXED_FIELDS, NETWORK_FIELDS, HParams

_MODES = ('train_and_evaluate', 'train', 'evaluate', 'predict', 'export')
_HPARAM_NAMES = frozenset(field.name for field in dataclasses.fields(HParams))


def main() -> None:
  """The command: parses and checks the flags, then runs one mode."""
  flags = _parser().parse_args()
  given = {name: value for name, value in vars(flags).items() if name in _HPARAM_NAMES}
  hparams = HParams(**given)
  _check_flags(flags, hparams)
  config = job_dir.read_config(flags.job_dir)
  if config:
    fields = FIXED_FIELDS if flags.mode.startswith('train') else NETWORK_FIELDS
    hparams = job_dir.adopt_config(hparams, given, config, fields, flags.job_dir)
  elif not flags.mode.startswith('train'):
    raise InputError(f'--job-dir {flags.job_dir} holds no trained network; train one first')
  if not flags.verbose:
    # TensorFlow reads it when it is imported, so that import waits until here; so does --help's.
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  for line in run(flags, hparams, config):
    print(json.dumps(line))


def run(flags: argparse.Namespace, hparams: HParams, config: dict | None) -> list[dict]:
  """Runs one mode on checked flags.

  Args:
    flags: the command line.
    hparams: the network and its optimization.
    config: the job dir's, None for a new one.

  Returns:
    What to print: JSON objects, the last one the result.
  """
  import tensorflow as tf  # noqa: PLC0415 (after TF_CPP_MIN_LOG_LEVEL is set)

  from cifar10 import hooks  # noqa: PLC0415
  from cifar10.resnet import check_num_layers  # noqa: PLC0415

  hooks.set_up_logging(flags.verbose)
  check_num_layers(hparams.num_layers, hparams.bottleneck)
  num_gpus = _check_gpus(flags, len(tf.config.list_physical_devices('GPU')))
  job = _Job(flags, hparams, num_gpus)
  modes: dict[str, Callable[[], list[dict]]] = {
    'train_and_evaluate': lambda: job.train_and_evaluate(config),
    'train': lambda: job.train(config),
    'evaluate': job.evaluate,
    'predict': job.predict,
    'export': job.export,
  }
  try:
    return modes[flags.mode]()
  except tf.compat.v1.train.NanLossDuringTrainingError:
    raise InputError(
      f'the loss became NaN with --learning-rate {hparams.learning_rate}; lower it, name a new '
      '--job-dir or resume from the last checkpoint'
    ) from None


class _Job:
  """One Estimator and what the modes do with it."""

  def __init__(self, flags: argparse.Namespace, hparams: HParams, num_gpus: int):
    import tensorflow as tf  # noqa: PLC0415

    from cifar10 import cluster, dataset, model_fn, towers  # noqa: PLC0415

    cluster.check_single_process()
    self._flags, self._hparams, self._tf, self._dataset = flags, hparams, tf, dataset
    self._num_towers = num_gpus or flags.num_cpu_towers
    training = flags.mode.startswith('train')
    if training and hparams.train_batch_size % self._num_towers:
      raise InputError(
        f'--train-batch-size {hparams.train_batch_size} is not divisible by '
        f'{self._num_towers} towers'
      )
    examples = dataset.Cifar10DataSet(flags.data_dir, hparams.train_on) if training else None
    self._num_examples = examples.num_examples_per_epoch() if examples else 1
    self._while_training = flags.subset or ('validation' if hparams.train_on == 'train' else 'eval')
    self._at_end = flags.subset or 'eval'
    placement = model_fn.Placement(
      towers.tower_devices(num_gpus, flags.num_cpu_towers),
      flags.variable_strategy,
      num_gpus,
      flags.data_format or ('channels_first' if num_gpus else 'channels_last'),
    )
    session = cluster.session_config(
      flags.num_cpu_towers,
      flags.num_intra_threads,
      flags.num_inter_threads,
      flags.log_device_placement,
    )
    self._estimator = tf.estimator.Estimator(
      model_fn.get_model_fn(hparams, placement, self._num_examples),
      config=cluster.run_config(
        flags.job_dir, hparams.seed, flags.eval_every_steps, flags.keep_checkpoints, session
      ),
    )

  def train_and_evaluate(self, config: dict | None) -> list[dict]:
    """Trains to --train-steps, evaluating on the way; then evaluates the test split once."""
    self._check_splits({self._while_training, self._at_end})
    self._start(config)
    tf = self._tf
    tf.estimator.train_and_evaluate(
      self._estimator,
      tf.estimator.TrainSpec(
        self._train_input_fn(), self._hparams.train_steps, hooks=self._saver_hooks()
      ),
      tf.estimator.EvalSpec(
        self._eval_input_fn(self._while_training),
        steps=None,
        name=self._while_training,
        start_delay_secs=0,
        throttle_secs=0,  # Every checkpoint: --eval-every-steps says how many there are.
      ),
    )
    return [self._evaluated(self._at_end)]

  def train(self, config: dict | None) -> list[dict]:
    """Trains to --train-steps and evaluates nothing."""
    self._start(config)
    self._estimator.train(
      self._train_input_fn(), max_steps=self._hparams.train_steps, hooks=self._saver_hooks()
    )
    checkpoint = self._checkpoint()
    return [{'global_step': self._global_step(checkpoint), 'checkpoint': checkpoint}]

  def evaluate(self) -> list[dict]:
    """Evaluates one checkpoint on one split."""
    self._check_splits({self._at_end})
    return [self._evaluated(self._at_end)]

  def predict(self) -> list[dict]:
    """One line for each image file."""
    from cifar10 import inference  # noqa: PLC0415

    return inference.predict(self._estimator, self._flags.images, self._checkpoint())

  def export(self) -> list[dict]:
    """Writes a SavedModel under JOB/export/ and names it."""
    from cifar10 import inference  # noqa: PLC0415

    checkpoint = self._checkpoint()
    path = self._estimator.export_saved_model(
      os.path.join(self._flags.job_dir, 'export'),
      inference.serving_input_receiver_fn,
      checkpoint_path=checkpoint,
    )
    return [{'saved_model': path.decode(), 'checkpoint': checkpoint}]

  def _start(self, config: dict | None) -> None:
    """Refuses other data than the job's; writes a new job's configuration; says what will run."""
    from cifar10 import hooks, records  # noqa: PLC0415

    flags, hparams = self._flags, self._hparams
    manifest = records.read_manifest(flags.data_dir)
    data = manifest and {name: entry['sha256'] for name, entry in manifest['subsets'].items()}
    if config and config['data'] and data and config['data'] != data:
      raise InputError(
        f'--job-dir {flags.job_dir} was trained on other data than {flags.data_dir}: their '
        'manifests differ; name another folder'
      )
    if not config:
      job_dir.write_config(
        flags.job_dir, {**{name: getattr(hparams, name) for name in FIXED_FIELDS}, 'data': data}
      )
    if flags.sync:
      hooks.log.info('--sync is ignored: there is one replica, which waits for nobody')
    if flags.num_workers != 1:
      hooks.log.info('--num-workers is ignored: the cluster says how many there are')
    hooks.log.info(
      'training ResNet-%s on %s examples, batch %s, %s, %s tower(s), to step %s',
      hparams.num_layers,
      f'{self._num_examples:,}',
      hparams.train_batch_size,
      hparams.dtype,
      self._num_towers,
      f'{hparams.train_steps:,}',
    )

  def _train_input_fn(self) -> Callable[[], Any]:
    hparams = self._hparams
    latest = self._tf.train.latest_checkpoint(self._flags.job_dir)
    done = self._global_step(latest) if latest else 0
    return lambda: self._dataset.input_fn(
      self._flags.data_dir,
      hparams.train_on,
      self._num_towers,
      hparams.train_batch_size,
      hparams.use_distortion_for_training,
      seed=hparams.seed,
      first_example=done * hparams.train_batch_size,
      is_training=True,
    )

  def _eval_input_fn(self, subset: str) -> Callable[[], Any]:
    return lambda: self._dataset.input_fn(
      self._flags.data_dir, subset, 1, self._hparams.eval_batch_size, is_training=False
    )

  def _saver_hooks(self) -> list[Any]:
    """Two when saving and evaluating differ: the Estimator evaluates when the first one saves."""
    flags = self._flags
    steps = [flags.eval_every_steps, flags.save_every_steps or flags.eval_every_steps]
    if flags.mode == 'train':
      steps = steps[1:]
    saver = self._tf.compat.v1.train.CheckpointSaverHook
    return [saver(flags.job_dir, save_steps=every) for every in dict.fromkeys(steps)]

  def _check_splits(self, subsets: set[str]) -> None:
    """Raises InputError before an hour of training rather than after it."""
    for subset in subsets:
      self._dataset.Cifar10DataSet(self._flags.data_dir, subset).num_examples_per_epoch()

  def _evaluated(self, subset: str) -> dict:
    """One evaluation, as the program prints it."""
    checkpoint = self._checkpoint()
    metrics = self._estimator.evaluate(
      self._eval_input_fn(subset), name=subset, checkpoint_path=checkpoint
    )
    result = {
      'accuracy': metrics['accuracy'],
      'accuracy_top5': metrics['accuracy_top5'],
      # The Estimator's own `loss` is a mean over batches, and the last batch may be smaller.
      'loss': metrics['cross_entropy'] + metrics['weight_penalty'],
      'cross_entropy': metrics['cross_entropy'],
    }
    result = {name: round(float(value), 6) for name, value in result.items()}
    per_class = {
      name.split('/')[1]: round(float(value), 6)
      for name, value in metrics.items()
      if name.startswith('accuracy/')
    }
    return {
      **result,
      'accuracy_by_class': per_class,
      'global_step': int(metrics['global_step']),
      'examples': int(metrics['examples']),
      'subset': subset,
      'checkpoint': checkpoint,
    }

  def _checkpoint(self) -> str:
    """--checkpoint or the latest; raises InputError where there is none."""
    tf, named = self._tf, self._flags.checkpoint
    if named and not tf.io.gfile.exists(named + '.index'):
      raise InputError(f'--checkpoint {named} does not exist; leave it out for the latest')
    checkpoint = named or tf.train.latest_checkpoint(self._flags.job_dir)
    if not checkpoint:
      raise InputError(f'--job-dir {self._flags.job_dir} holds no checkpoint; train first')
    return checkpoint

  def _global_step(self, checkpoint: str) -> int:
    return int(self._tf.train.load_variable(checkpoint, 'global_step'))


def _check_flags(flags: argparse.Namespace, hparams: HParams) -> None:
  """Everything that can be refused without TensorFlow; raises InputError."""
  for name in ('train_steps', 'train_batch_size', 'eval_batch_size'):
    _require(getattr(hparams, name) >= 1, name, getattr(hparams, name), 'must be 1 or more')
  for name in ('num_cpu_towers', 'eval_every_steps', 'keep_checkpoints'):
    _require(getattr(flags, name) >= 1, name, getattr(flags, name), 'must be 1 or more')
  for name in ('num_intra_threads', 'num_inter_threads'):
    _require(getattr(flags, name) >= 0, name, getattr(flags, name), 'must be 0 (all) or more')
  _require(
    flags.save_every_steps is None or flags.save_every_steps >= 1,
    'save_every_steps',
    flags.save_every_steps,
    'must be 1 or more',
  )
  for name in ('momentum', 'batch_norm_decay'):
    value = getattr(hparams, name)
    _require(0 <= value < 1, name, value, 'must be at least 0 and below 1')
  _require(hparams.learning_rate > 0, 'learning_rate', hparams.learning_rate, 'must be above 0')
  _require(hparams.weight_decay >= 0, 'weight_decay', hparams.weight_decay, 'must be 0 or more')
  _require(
    hparams.batch_norm_epsilon > 0, 'batch_norm_epsilon', hparams.batch_norm_epsilon, 'must be > 0'
  )
  _check_schedule(hparams)
  if flags.num_gpus is not None:
    _require(flags.num_gpus >= 0, 'num_gpus', flags.num_gpus, 'must be 0 (the CPU) or more')
  if flags.mode == 'predict' and not flags.images:
    raise InputError('--mode predict needs --images FILE...')
  if flags.images and flags.mode != 'predict':
    raise InputError(f'--images belongs to --mode predict, not {flags.mode}')
  if flags.mode in ('train_and_evaluate', 'train', 'evaluate') and not flags.data_dir:
    raise InputError(f'--mode {flags.mode} needs --data-dir DIR')
  if hparams.bottleneck and hparams.resnet_version != 2:
    raise InputError('--bottleneck blocks are version 2 only; add --resnet-version 2')


def _check_schedule(hparams: HParams) -> None:
  boundaries = hparams.lr_boundaries_steps or hparams.lr_boundaries_epochs
  if len(hparams.lr_values) != len(boundaries) + 1:
    raise InputError(
      f'--lr-values has {len(hparams.lr_values)} values and its boundaries are {len(boundaries)}; '
      'give one value more than boundaries'
    )
  if list(boundaries) != sorted(set(boundaries)) or (boundaries and boundaries[0] <= 0):
    raise InputError(f'learning-rate boundaries {list(boundaries)} must rise from above 0')


def _check_gpus(flags: argparse.Namespace, visible: int) -> int:
  """How many GPUs to use; raises InputError for a combination that cannot run."""
  num_gpus = visible if flags.num_gpus is None else flags.num_gpus
  if num_gpus > visible:
    raise InputError(f'--num-gpus {num_gpus} but TensorFlow sees {visible}; ask for fewer')
  if num_gpus and flags.num_cpu_towers > 1:
    raise InputError(
      f'--num-cpu-towers {flags.num_cpu_towers} and {num_gpus} GPUs; add --num-gpus 0'
    )
  if flags.variable_strategy == 'GPU' and not num_gpus:
    raise InputError('--variable-strategy GPU needs a GPU and there is none; use CPU')
  if flags.data_format == 'channels_first' and not num_gpus:
    raise InputError(
      '--data-format channels_first needs a GPU and there is none; use channels_last'
    )
  return num_gpus


def _require(condition: bool, name: str, value: Any, remedy: str) -> None:
  if not condition:
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


def _parser() -> argparse.ArgumentParser:
  """All flags. A hyper-parameter's stays unset unless given, so that a job dir can fill it in."""
  parser = errors.OneLineParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  _add_run_flags(parser.add_argument_group('what runs'))
  _add_hparam_flags(parser.add_argument_group('network and optimization'))
  _add_device_flags(parser.add_argument_group('devices'))
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
  add('--sync', action='store_true', help='synchronous cluster training; one process ignores it')
  add('--num-workers', type=int, default=1, help='ignored: the cluster says how many')
  add('--verbose', action='store_true', help="show TensorFlow's own log")


def _add_hparam_flags(group: Any) -> None:
  def add(flag: str, help_text: str, **settings: Any) -> None:
    default = getattr(HParams, flag[2:].replace('-', '_'))
    if isinstance(default, tuple):
      default = ','.join(f'{number:g}' for number in default) or 'none'
    group.add_argument(
      flag, default=argparse.SUPPRESS, help=f'{help_text} (default: {default})', **settings
    )

  add('--num-layers', '6n+2, or 9n+2 with --bottleneck', type=int)
  add('--resnet-version', '1: conv, bn, relu; 2: bn, relu, conv', type=int, choices=(1, 2))
  add('--bottleneck', '1x1, 3x3, 1x1 blocks', action='store_true')
  add('--train-on', 'the training split', choices=('train', 'train+validation'))
  add('--train-steps', 'global steps in all', type=int)
  add('--train-batch-size', 'examples a step, all towers together', type=int)
  add('--eval-batch-size', 'examples', type=int)
  add('--learning-rate', 'multiplies --lr-values', type=float)
  add('--lr-values', 'factors, one a phase', type=_numbers(float))
  add('--lr-boundaries-epochs', 'ends of the phases', type=_numbers(float))
  add('--lr-boundaries-steps', 'the same in steps', type=_numbers(int))
  add('--momentum', 'of the optimizer', type=float)
  add('--weight-decay', 'L2 on all trainable variables', type=float)
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
  add('--batch-norm-decay', 'of the moving averages', type=float)
  add('--batch-norm-epsilon', 'added to the variance', type=float)
  add('--dtype', 'of activations', choices=('float32', 'bfloat16'))
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
