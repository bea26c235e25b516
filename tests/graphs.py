"""What a test makes in a graph, and the values that it has there."""

import collections
import re

import numpy as np
import tensorflow as tf

from cifar10.options.families import SCALE
from cifar10.options.hparams import HParams
from cifar10.training import optimizers
from cifar10.training.schedules import Rates


def examples(batch, seed=0):
  """Random images and labels."""
  rng = np.random.default_rng(seed)
  images = rng.integers(0, 256, [batch, 32, 32, 3]).astype(np.uint8)
  return images, rng.integers(0, 10, batch).astype(np.int32)


def variable(name, values):
  """Of float32, with these values at first."""
  return tf.compat.v1.get_variable(name, initializer=tf.constant(values, tf.float32))


def untrained(name, initial):
  """A variable of the network that no gradient moves."""
  keys = tf.compat.v1.GraphKeys
  kept = [keys.GLOBAL_VARIABLES, keys.MODEL_VARIABLES]
  return tf.compat.v1.get_variable(name, initializer=initial, trainable=False, collections=kept)


def plain_sgd(update_ops=(), **options):
  """w = 10, and its update by gradient 1 and rate 1 with all that the options put around it."""
  hparams = HParams(momentum=0.0, **options)
  weight = tf.compat.v1.get_variable('w', initializer=10.0)
  step = tf.compat.v1.train.get_or_create_global_step()
  groups = optimizers.Groups(hparams, {'w': SCALE})
  optimizer = optimizers.make_optimizer(hparams, Rates(1.0, 0.0), groups, update_ops)
  return weight, optimizer.apply_gradients([(tf.constant(1.0), weight)], step)


def first_batches(input_fn, count=1, step=0):
  """So many batches of a new session whose global step is this one, as NumPy."""
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    session.run(tf.compat.v1.train.create_global_step().assign(step, read_value=False))
    iterator = tf.compat.v1.data.make_initializable_iterator(input_fn())
    session.run(iterator.initializer)
    batch = iterator.get_next()
    return [session.run(batch) for _ in range(count)]


def run(tensors):
  """Their values, where all variables have their initial ones."""
  return after_steps([], tensors, 1)[0]


def after_steps(apply, tensors, steps):
  """The values after each of so many updates."""
  values = []
  with tf.compat.v1.Session() as session:
    session.run(tf.compat.v1.global_variables_initializer())
    for _ in range(steps):
      session.run(apply)
      values.append(session.run(tensors))
  return values


def run_and_trace(session, tensors):
  """Their values, and how many convolutions ran for them, by device and batch size."""
  options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
  metadata = tf.compat.v1.RunMetadata()
  values = session.run(tensors, options=options, run_metadata=metadata)
  return values, collections.Counter(
    (of.device[-5:], node.output[0].tensor_description.shape.dim[0].size)
    for of in metadata.step_stats.dev_stats
    for node in of.node_stats
    if re.search(r'= \w*Conv2D\(', node.timeline_label)
  )


def ancestors(op, *, controls=True):
  """The ops that it waits for, and itself; without `controls` those alone with data for it."""
  found, pending = set(), [op]
  while pending:
    op = pending.pop()
    if op not in found:
      found.add(op)
      pending += [tensor.op for tensor in op.inputs]
      pending += op.control_inputs if controls else []
  return found
