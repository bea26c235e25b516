"""Recomputes batch norm's moving averages for weights that were averaged, not trained.

The average of several checkpoints' weights has other activations than each of them, so the average
of their moving averages does not fit it: Izmailov et al. 2018, 'Averaging Weights Leads to Wider
Optima and Better Generalization' (arXiv 1803.05407), section 3.2.
"""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

import model_base
from cifar10.core import devices, logs
from cifar10.data import input_pipeline
from cifar10.data.info import DatasetInfo
from cifar10.networks import families
from cifar10.options.hparams import HParams
from cifar10.training import network_builder


def recomputed(
  hparams: HParams, data: DatasetInfo, data_dir: str, values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Returns the variables with moving averages over one epoch of images, without augmentation.

  Args:
    hparams: the network, its training split and its batch size.
    data: the data set.
    data_dir: has the training split.
    values: float32 values of all variables of the network, by name.

  Returns:
    The values, with each moving mean and variance replaced by its mean over the epoch's batches;
      those of a batch norm that --freeze fixes are unchanged.
  """
  train_set = input_pipeline.Cifar10DataSet(data_dir, hparams.train_on, use_distortion=False)
  num_batches = max(train_set.num_examples_per_epoch() // hparams.train_batch_size, 1)
  with devices.side_graph():
    batch_number = tf.compat.v1.placeholder(tf.float32, [])
    batches = input_pipeline.without_autotune(
      train_set.make_batch(hparams.train_batch_size, hparams.seed)
    )
    iterator = tf.compat.v1.data.make_initializable_iterator(batches)
    images, _ = iterator.get_next()
    # So the average of n batches is their mean.
    decay = 1 - 1 / batch_number
    # A batch is a step, as in training: dropout drops other elements in each.
    step = tf.compat.v1.train.create_global_step()
    settings = network_builder.layer_settings(hparams, is_training=True)
    built = families.build(hparams.family, settings._replace(batch_norm_decay=decay), data)
    built.freeze(hparams.freeze)
    with tf.compat.v1.variable_scope(hparams.family.NAME):
      built.forward_pass(input_pipeline.normalise(images, tf.as_dtype(hparams.dtype)))
    with tf.control_dependencies(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)):
      count = step.assign_add(1)
    everything = {variable.op.name: variable for variable in tf.compat.v1.global_variables()}
    variables = {name: everything[name] for name in built.roles}
    # Not by feeding initial values, which several variables may share.
    fed = {
      name: tf.compat.v1.placeholder(each.dtype.base_dtype) for name, each in variables.items()
    }
    load = [each.assign(fed[name], read_value=False) for name, each in variables.items()]
    moving = [name for name, role in built.roles.items() if role == model_base.AVERAGE]
    num_gpus = len(tf.config.list_physical_devices('GPU'))
    config = devices.session_config(num_gpus=num_gpus)
    with tf.compat.v1.Session(config=config) as session:
      session.run([iterator.initializer, tf.compat.v1.global_variables_initializer()])
      session.run(load, {fed[name]: values[name] for name in variables})
      for number in logs.bar(range(1, num_batches + 1), desc='averaging', disable=None):
        session.run(count, {batch_number: number})
      return {**values, **session.run({name: variables[name] for name in moving})}
