"""What `python -m cifar10.checkpoint` does: lists, dumps and averages checkpoints."""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

import model_base
from cifar10.core import devices, logs
from cifar10.core.errors import InputError
from cifar10.data import input_pipeline
from cifar10.data.manifest import DatasetInfo
from cifar10.job import job_config, variable_files
from cifar10.job.checkpoints import EMA_SUFFIX
from cifar10.networks import families
from cifar10.options.hparams import HParams
from cifar10.training import network_builder


def list_variables(command: argparse.Namespace) -> dict[str, Any]:
  """Prints the table of variables on standard error; returns its sums by kind."""
  source = variable_files.open_source(command.path)
  kinds = source.kinds()
  sums: dict[str, Counter[str]] = defaultdict(Counter)
  width = min(max(map(len, source.arrays), default=0), 120)
  for name, array in sorted(source.arrays.items()):
    about = f'{kinds[name]:9}  {array.dtype.name:8}  {array.nbytes:>11,}  {list(array.shape)}'
    print(logs.one_line(f'{name:{width}}  {about}'), file=sys.stderr)
    sums[kinds[name]].update(variables=1, numbers=array.size, bytes=array.nbytes)
  return {'checkpoint': source.path, 'global_step': source.global_step, **sums}


def dump(command: argparse.Namespace) -> dict[str, Any]:
  """Writes the variables that inference needs, or their averages."""
  variable_files.check_new(command.out)
  source = variable_files.open_source(command.path)
  shapes = source.shapes
  averages = {name: name + EMA_SUFFIX for name in shapes if name + EMA_SUFFIX in source.arrays}
  if command.use_ema and not averages:
    raise InputError(
      f'--use-ema: {source.path} has no averages of the weights; its job was trained without '
      '--ema-decay; leave it out'
    )
  chosen = averages if command.use_ema else {}
  values = {name: source.value(chosen.get(name, name)) for name in shapes}
  return _written(command.out, values, source.global_step)


def average(command: argparse.Namespace) -> dict[str, Any]:
  """Writes the mean of several checkpoints, batch norm's averages recomputed."""
  variable_files.check_new(command.out)
  config = job_config.read_config(command.job_dir) or {}
  hparams = job_config.adopt_config({}, config, command.job_dir, training=False)
  if hparams.source:
    raise InputError(
      f'--job-dir {command.job_dir} was trained on --source {hparams.source}, whose images average '
      'does not read for batch norm; train with --ema-decay for an average'
    )
  data = job_config.described_data(command.job_dir, command.data_dir)
  shapes, _ = network_builder.variable_shapes(hparams, data)
  # In float64: a float32 sum of many nearly equal values would lose digits.
  sums = {name: np.zeros(shape) for name, shape in shapes.items()}
  global_step = 0
  for path in command.paths:  # One in memory at a time: twenty of a WRN-28-10 are 6 GB.
    source = variable_files.open_source(path)
    variable_files.check_network(source, shapes, hparams.family.NAME)
    global_step = max(global_step, source.global_step)
    for name in shapes:
      sums[name] += source.value(name)
  means = {
    name: (total / len(command.paths)).astype(source.value(name).dtype)
    for name, total in sums.items()
  }
  averaged = with_moving_averages(hparams, data, command.data_dir, means)
  return _written(command.out, averaged, global_step)


def _written(path: str, values: dict[str, np.ndarray], global_step: int) -> dict[str, Any]:
  variable_files.write(path, values, global_step)
  numbers = sum(value.size for value in values.values())
  return {'out': path, 'global_step': global_step, 'variables': len(values), 'numbers': numbers}


def with_moving_averages(
  hparams: HParams, data: DatasetInfo, data_dir: str, values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Returns the variables with batch norm's moving averages over one epoch, not augmented.

  The average of several checkpoints' weights has other activations than each of them, so the
  average of their moving averages does not fit it: Izmailov et al. 2018, 'Averaging Weights Leads
  to Wider Optima and Better Generalization' (arXiv 1803.05407), section 3.2. Each moving mean and
  variance becomes its mean over the epoch's batches, but those of a batch norm that is frozen.
  `values` are float32, of all variables of the network by name.
  """
  train_set = input_pipeline.Cifar10DataSet(data_dir, hparams.train_on, use_distortion=False)
  num_batches = max(train_set.num_examples_per_epoch() // hparams.train_batch_size, 1)
  with devices.side_graph():
    batches = train_set.make_batch(hparams.train_batch_size, hparams.seed)
    iterator = tf.compat.v1.data.make_initializable_iterator(
      input_pipeline.without_autotune(batches)
    )
    images, _ = iterator.get_next()
    # A batch is a step, as in training: dropout drops other elements in each.
    step = tf.compat.v1.train.create_global_step()
    # The average of n batches is their mean, as the decay of batch number n is 1 - 1 / n.
    decay = 1 - 1 / (tf.cast(step, tf.float32) + 1)
    settings = families.layer_settings(hparams, is_training=True)
    built = families.build(hparams, settings._replace(batch_norm_decay=decay), data)
    with tf.compat.v1.variable_scope(hparams.family.NAME):
      built.forward_pass(input_pipeline.normalise(images, tf.as_dtype(hparams.dtype)))
    with tf.control_dependencies(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)):
      count = step.assign_add(1)
    everything = {variable.op.name: variable for variable in tf.compat.v1.global_variables()}
    moving = [name for name, role in built.roles.items() if role == model_base.AVERAGE]
    config = devices.session_config(num_gpus=len(tf.config.list_physical_devices('GPU')))
    with tf.compat.v1.Session(config=config) as session:
      session.run([iterator.initializer, tf.compat.v1.global_variables_initializer()])
      for name in built.roles:
        everything[name].load(values[name], session)
      for _ in logs.bar(range(num_batches), desc='averaging', disable=None):
        session.run(count)
      return {**values, **session.run({name: everything[name] for name in moving})}
