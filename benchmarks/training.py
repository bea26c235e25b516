"""Images/s of the whole program beside a bare session loop and its peers, in turns of seconds.

  python benchmarks/training.py --data-dir DATA --torch-python .venv-bench/bin/python

- program: the Estimator with the hooks and the input pipeline that cifar10_main.py gives it;
- bare: a session loop over the same graph on a constant batch;
- convolutions (limit): each convolution run alone, as if all else took no time; once, at the end;
- keras: `tf.keras` `fit` on the same layers (keras_peer.py), fed by the same batches;
- torch, torch compiled: PyTorch's twin (torch_resnet.py), channels_last, autocast for bfloat16,
  whose batches come out of memory;
- TF_SYNC_ON_FINISH=0 and other settings of the environment, force_gpu_compatible, channels_last,
  variables on the CPU: the program with what is not its default on a GPU, for `--num-gpus 1`;
- saving: the program with a checkpoint every 10 steps, not every 1,000: give it turns of a minute.

With `--num-gpus 1` all compute on one GPU, and PyTorch's images lie there.

Each is a process of its own, so that none inherits another's threads or memory; turns.py says how
they take turns. A ratio is the median of the turns' ratios.
"""

import argparse
import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')  # Several share a GPU.

import commands
import convolutions
import environment
import keras_peer
import networks
import numpy as np
import peers
import tensorflow as tf
import turns

from cifar10.core import cli, devices
from cifar10.data import input_pipeline
from cifar10.job import run as job_run
from cifar10.options.hparams import HParams, from_values, recipe_values
from cifar10.options.run_options import RunOptions
from cifar10.training import experiment, model_fn
from estimator_again import estimator as tf_estimator


class StepPrinter(tf.compat.v1.train.SessionRunHook):
  """Prints when each step ended, as turns.py reads it."""

  def after_run(self, run_context: Any, run_values: Any) -> None:
    _print_time()


class BatchPrinter(tf.keras.callbacks.Callback):
  """The same of each batch."""

  def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
    _print_time()


def _print_time() -> None:
  print(time.perf_counter(), flush=True)


def main() -> None:
  """Starts the variants, which take turns; prints medians and ratios."""
  parser = _parser()
  flags = parser.parse_args()
  tf.get_logger().setLevel('ERROR')
  if not flags.num_gpus:
    tf.config.set_visible_devices([], 'GPU')
  if flags.variant:
    if flags.variant in _PROGRAMS and not flags.job_dir:
      parser.error(f'--variant {flags.variant} needs a --job-dir')
    _run(flags)
    return
  others = [name for name in flags.beside if name not in _TORCH or flags.torch_python]
  peer = {'torch': peers.torch_version(flags.torch_python)} if {*others} & {*_TORCH} else {}
  rates: dict[str, list[float]] = {}
  with tempfile.TemporaryDirectory() as folder:
    if peer:
      peers.export_arrays(flags.data_dir, folder)
    for dtype in flags.dtypes:
      taking_turns = {
        name: _command(flags, name, dtype, folder)
        for name in ('program', *others)
        if name != _LIMIT
      }
      steps = turns.steps_per_second(taking_turns, flags.turns, flags.seconds, flags.warm_up)
      for name, values in steps.items():
        rates[f'{name} {dtype}'] = [rate * flags.batch_size for rate in values]
      if _LIMIT in others:
        limit = commands.last_line(_command(flags, _LIMIT, dtype, folder))
        rates[f'{_LIMIT} {dtype}'] = [limit]
  record = {
    **environment.head('training', parser, flags),
    **peer,
    'images_per_second': commands.medians(rates),
    'ratios': {
      f'program / {name}, {dtype}': commands.ratio(
        rates[f'program {dtype}'], rates[f'{name} {dtype}']
      )
      for dtype in flags.dtypes
      for name in others
    },
    'all_images_per_second': rates,
  }
  print(json.dumps(record))


def _command(flags: argparse.Namespace, name: str, dtype: str, folder: str) -> list[Any]:
  """The command that runs a variant and prints when each step ended; of the limit, images/s."""
  shape = ['--network', flags.network, '--batch-size', flags.batch_size]
  if name in _TORCH:
    twin = peers.torch_command(flags.torch_python, 'resnet', folder)
    device = 'cuda' if flags.num_gpus else 'cpu'
    return [*twin, *shape, '--dtype', dtype, '--device', device, *_TORCH[name]]
  variable = [name] if '=' in name else []
  this = ['env', *variable, sys.executable, os.path.abspath(__file__)]
  this += ['--variant', 'program' if variable else name, '--dtypes', dtype, *shape]
  this += ['--num-gpus', flags.num_gpus, '--data-dir', flags.data_dir]
  return [*this, '--job-dir', os.path.join(folder, f'{name} {dtype}')]


def _run(flags: argparse.Namespace) -> None:
  """One variant in this process."""
  given = {
    **networks.options(flags.network),
    'train_batch_size': flags.batch_size,
    'dtype': flags.dtypes[0],
    'train_steps': _ENDLESS,
  }
  VARIANTS[flags.variant](flags, from_values(recipe_values('classic', given)))


def _program(flags: argparse.Namespace, hparams: HParams, **given: Any) -> None:
  """What cifar10_main.py runs, with one more hook."""
  where = {'job_dir': flags.job_dir, 'data_dir': flags.data_dir, 'num_gpus': flags.num_gpus}
  options = RunOptions(**{'save_every_steps': 1000, **where, **given})
  experiment.train(job_run.begin(hparams, options), [StepPrinter()])


def _gpu_compatible(flags: argparse.Namespace, hparams: HParams) -> None:
  """The program with all tensors of the CPU in pinned memory, which a GPU copies faster."""
  original = devices.session_config

  def session_config(*arguments: Any, **settings: Any) -> Any:
    config = original(*arguments, **settings)
    config.gpu_options.force_gpu_compatible = True
    return config

  with mock.patch.object(devices, 'session_config', session_config):
    _program(flags, hparams)


def _bare(flags: argparse.Namespace, hparams: HParams) -> None:
  """The same graph on a constant batch, and nothing but its train op."""
  batch = _first_batch(flags.data_dir, hparams)
  with tf.Graph().as_default():
    train_op = _train_op(flags, hparams, *batch)
    config = devices.session_config(num_gpus=flags.num_gpus)
    with tf.compat.v1.Session(config=config) as session:
      session.run(tf.compat.v1.global_variables_initializer())
      for _ in range(hparams.train_steps):
        session.run(train_op)
        _print_time()


def _convolutions(flags: argparse.Namespace, hparams: HParams) -> None:
  """Prints images/s."""
  batch = _first_batch(flags.data_dir, hparams)
  with tf.Graph().as_default():
    train_op = _train_op(flags, hparams, *batch)
  print(json.dumps(hparams.train_batch_size / convolutions.seconds(train_op)))


def _first_batch(data_dir: str, hparams: HParams) -> tuple[np.ndarray, np.ndarray]:
  images, labels = next(
    iter(input_pipeline.Cifar10DataSet(data_dir).make_batch(hparams.train_batch_size))
  )
  return images.numpy(), labels.numpy()


def _train_op(
  flags: argparse.Namespace, hparams: HParams, images: np.ndarray, labels: np.ndarray
) -> tf.Operation:
  """Of the program's graph, in the default one, on a constant batch."""
  tf.compat.v1.train.get_or_create_global_step()
  build = model_fn.get_model_fn(flags.num_gpus, 'GPU' if flags.num_gpus else 'CPU', 1)
  shards = (tf.constant(images),), (tf.constant(labels),)
  return build(*shards, tf_estimator.ModeKeys.TRAIN, hparams).train_op


def _keras(flags: argparse.Namespace, hparams: HParams) -> None:
  """`fit` on the same layers and loss, fed by the same batches, normalised in the pipeline."""
  if hparams.dtype == 'bfloat16':
    tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')
  network = keras_peer.network(hparams)
  network.compile(
    tf.keras.optimizers.SGD(hparams.learning_rate, momentum=hparams.momentum),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=['accuracy'],
  )
  batches = input_pipeline.Cifar10DataSet(flags.data_dir).make_batch(hparams.train_batch_size)
  batches = batches.map(
    lambda images, labels: (input_pipeline.normalise(images, tf.float32), labels)
  )
  network.fit(
    batches.prefetch(tf.data.AUTOTUNE),
    steps_per_epoch=hparams.train_steps,
    epochs=1,
    verbose=0,
    callbacks=[BatchPrinter()],
  )


_TORCH = {'torch': [], 'torch compiled': ['--compile']}
_LIMIT = 'convolutions (limit)'
_GPU_COMPATIBLE = 'force_gpu_compatible'
_SAVING = 'saving'
_ON_CPU, _LAST = 'variables on the CPU', 'channels_last'
_ENVIRONMENT = (
  *('TF_SYNC_ON_FINISH=0', 'TF_ENABLE_WINOGRAD_NONFUSED=0', 'TF_CUDNN_USE_AUTOTUNE=0'),
  *('TF_GPU_THREAD_MODE=gpu_private', 'TF_XLA_FLAGS=--tf_xla_auto_jit=2'),
)
_SETTINGS = (*_ENVIRONMENT, _GPU_COMPATIBLE, _LAST, _ON_CPU, _SAVING)
_PROGRAMS = ('program', *_SETTINGS[len(_ENVIRONMENT) :])
_ENDLESS = 10**6  # Steps: a process is killed long before.
VARIANTS: dict[str, Callable[[argparse.Namespace, HParams], None]] = {
  'program': _program,
  'bare': _bare,
  _LIMIT: _convolutions,
  'keras': _keras,
}
_OTHERS = [*VARIANTS, *_TORCH][1:]  # Than the program.
VARIANTS[_GPU_COMPATIBLE] = _gpu_compatible
VARIANTS[_LAST] = functools.partial(_program, data_format='channels_last')
VARIANTS[_ON_CPU] = functools.partial(_program, variable_strategy='CPU')
VARIANTS[_SAVING] = functools.partial(_program, save_every_steps=10)


def _others(text: str) -> list[str]:
  if not set(text.split(',')) <= {*_OTHERS, *_SETTINGS}:
    raise argparse.ArgumentTypeError(f'{text!r} is not of {", ".join([*_OTHERS, *_SETTINGS])}')
  return text.split(',')


def _parser() -> argparse.ArgumentParser:
  parser = commands.parser(__doc__)
  parser.add_argument('--data-dir', required=True, help='record files')
  parser.add_argument('--network', type=networks.name, default='resnet-20', help='or wrn-16-4')
  parser.add_argument('--batch-size', type=commands.count, default=128)
  parser.add_argument('--dtypes', type=commands.dtypes, default=['float32', 'bfloat16'])
  parser.add_argument(
    '--warm-up',
    type=commands.count,
    default=15,
    help='steps before the turns: the first choose algorithms and fill the pipeline',
  )
  parser.add_argument('--num-gpus', type=int, choices=(0, 1), default=0)
  parser.add_argument('--turns', type=commands.count, default=10, help='of each process')
  parser.add_argument('--seconds', type=commands.count, default=4, help='of a turn')
  parser.add_argument('--torch-python', help='of the environment that has PyTorch; or no twins')
  parser.add_argument(
    '--beside',
    type=_others,
    default=_OTHERS,
    help='what to measure beside the program, with commas (default: all but the settings)',
  )
  parser.add_argument(
    '--variant', choices=tuple(VARIANTS), help='run one in this process, without end'
  )
  parser.add_argument('--job-dir', help='of a --variant program')
  return parser


if __name__ == '__main__':
  cli.run_command(main)
