"""What a package outside of the program has: a network as a function, a family, and callbacks.

What a test works out by hand has constant weights.
"""

import dataclasses
import json
import os
from typing import ClassVar

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import config as determinism

import cifar10
from cifar10.core.option import option
from model_base import FamilyNetwork


def net(images, is_training, num_classes):
  """A convolution with batch norm, and a dense layer."""
  kernel = tf.compat.v1.get_variable('kernel', [3, 3, 3, 4], images.dtype)
  x = tf.nn.conv2d(images, kernel, 4, 'SAME')
  mean = tf.compat.v1.get_variable('mean', [4], trainable=False, initializer=tf.zeros_initializer())
  scale, offset = tf.ones([4]), tf.zeros([4])
  if is_training:
    x, batch_mean, _ = tf.compat.v1.nn.fused_batch_norm(x, scale, offset)
    update = mean.assign(0.9 * mean + 0.1 * batch_mean)
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
  else:
    x, *_ = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, mean, scale, is_training=False)
  x = tf.reduce_mean(tf.nn.relu(tf.cast(x, tf.float32)), [1, 2])
  tf.compat.v1.summary.scalar('width', tf.constant(4.0))
  # No resource, as after `disable_v2_behavior`: in a cluster it would have no value.
  given = {'initializer': tf.constant_initializer(0.5), 'use_resource': False}
  return tf.matmul(x, tf.compat.v1.get_variable('weights', [4, num_classes], **given))


def counts(images, is_training, num_classes):
  """A dense layer, and how many batches it has been trained on."""
  seen = tf.compat.v1.get_variable('seen', [], tf.int64, tf.zeros_initializer(), trainable=False)
  if is_training:
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, seen.assign_add(1))
  x = tf.reduce_mean(tf.cast(images, tf.float32), [1, 2])
  return tf.matmul(x, tf.compat.v1.get_variable('weights', [3, num_classes]))


def needs_whole_images(images, is_training, num_classes):
  return counts(images[:, : images.shape[1] // 2], is_training, num_classes)


def of_values(images, is_training, num_classes):
  """Variables that have their initial value in place of a shape: NumPy's is float64."""
  scale = tf.compat.v1.get_variable('scale', initializer=np.full(3, 0.5))
  shift = tf.compat.v1.get_variable('shift', initializer=tf.fill([3], 2.0))
  seven = tf.compat.v1.get_variable('seven', initializer=7)
  tf.compat.v1.summary.scalar('seven', seven)
  x = scale * tf.reduce_mean(tf.cast(images, tf.float32), [1, 2]) + shift
  logits = tf.matmul(x, tf.compat.v1.get_variable('weights', [3, num_classes]))
  return logits + tf.cast(seven, tf.float32)


def one_initial_value(images, is_training, num_classes):
  """Two variables have it; an update keeps the sum of both."""
  ones, get = tf.ones([3]), tf.compat.v1.get_variable
  variance = get('variance', initializer=ones, trainable=False)
  scale = get('scale', initializer=ones)
  both = get('both', [3], initializer=tf.zeros_initializer(), trainable=False)
  tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, both.assign(scale + variance))
  x = scale * tf.reduce_mean(tf.cast(images, tf.float32), [1, 2]) / variance
  return tf.matmul(x, get('weights', [3, num_classes]))


def no_variable(images, is_training, num_classes):
  return tf.zeros([tf.shape(images)[0], num_classes]) + tf.reduce_mean(images)


def bare_variable(images, is_training, num_classes):
  weights = tf.Variable(tf.zeros([3, num_classes]), name='bare')
  return tf.matmul(tf.reduce_mean(tf.cast(images, tf.float32), [1, 2]), weights)


def keras_batch_norm(images, is_training, num_classes):
  norm = tf.keras.layers.BatchNormalization(center=False, scale=False)
  return counts(norm(images, training=is_training), is_training, num_classes)


def fails_in_training(images, is_training, num_classes):
  if is_training:
    raise KeyError('no such branch')
  return counts(images, is_training, num_classes)


def fails_in_evaluation(images, is_training, num_classes):
  return fails_in_training(images, not is_training, num_classes)


def layer_with_regularizer(images, is_training, num_classes):
  x = tf.reduce_mean(tf.cast(images, tf.float32), [1, 2])
  return tf.compat.v1.layers.dense(x, num_classes, kernel_regularizer=tf.nn.l2_loss)


def calls_python(images, is_training, num_classes):
  twice = tf.numpy_function(lambda given: 2 * given, [tf.cast(images, tf.float32)], tf.float32)
  return counts(tf.ensure_shape(twice, images.shape), is_training, num_classes)


class _Linear(FamilyNetwork):
  def forward_pass(self, images):
    x = self._conv_bn_relu(self._input(images), 3, self._options.outside_width, 1, strides=4)
    return self._fully_connected(self._global_avg_pool(x), self._num_classes)


@dataclasses.dataclass(frozen=True)
class Outside(cifar10.Family):
  NAME: ClassVar[str] = 'outside'
  TITLE: ClassVar[str] = 'a family outside of the program'
  NETWORK: ClassVar[type] = _Linear

  outside_width: int = option(4, 'channels', fixed=True)

  def describe(self):
    return f'Outside-{self.outside_width}'


class NoName(cifar10.Family):
  NETWORK: ClassVar[type] = _Linear


class FailingCheck(Outside):
  def check(self):
    raise KeyError('no such option')


class TakenOption(Outside):
  control: float = option(0.5, 'taken')


class TakenFlag(Outside):
  no_sync: bool = option(False, 'that of --sync')


class SharedOption(Outside):
  widths: tuple[int, ...] = option((4,), 'of fastnet, too')


def by_epoch(step, run):
  return run.learning_rate * step / run.steps_per_epoch


def blended(images, labels, seed):
  """A random part of each label is the batch's last one's."""
  part, targets = tf.random.stateless_uniform([], seed), tf.one_hot(labels, 10)
  return images[::-1], (1 - part) * targets[::-1] + part * targets[-1:]


class OfRun(cifar10.Callback):
  def __init__(self, run):
    self._run = run


class Heard(OfRun):
  def on_graph(self, graph):
    tf.compat.v1.summary.scalar('own/answer', tf.constant(42.0))

  def on_evaluate_end(self, evaluation):
    print('HEARD', evaluation.split, evaluation.step)


class Fails(OfRun):
  def on_step_end(self, step):
    raise ValueError(f'step {step.step} is\nbad')


class TakesNoRun(cifar10.Callback):
  pass


class Draws(OfRun):
  """Puts points at each step and each evaluation, and ends training after the third step."""

  def on_step_end(self, step):
    self._run.put_scalar('own/squared', step.step**2)
    if step.step == 3:
      self._run.stop('three are enough')

  def on_evaluate_end(self, evaluation):
    self._run.put_scalar('own/evaluated', evaluation.result['loss'])


NOISE = np.random.default_rng(0).integers(0, 256, [3, 32, 32, 3], np.uint8)


class Predicts(OfRun):
  """Writes down what the network answers to noise after each step: JOB/answers.npy."""

  def __init__(self, run):
    super().__init__(run)
    self._predict = run.predictor()
    self._answers = []

  def on_step_end(self, step):
    self._answers.append(self._predict(NOISE))

  def on_train_end(self, reason, message, step):
    np.save(os.path.join(self._run.job_dir, 'answers.npy'), self._answers)


class PlainHook(tf.compat.v1.train.SessionRunHook):
  """As TensorFlow has them: it knows nothing of the program. And it is empty, like a list."""

  def __len__(self):
    return 0

  def before_run(self, run_context):
    return tf.compat.v1.train.SessionRunArgs(tf.compat.v1.train.get_global_step())

  def after_run(self, run_context, run_values):
    print('HOOK', run_values.results)


def plain_hook(run):
  return PlainHook()


class ReadsTooMuch(OfRun):
  """Fails as a data set does that has ended, upon which TensorFlow ends a training."""

  def on_step_end(self, step):
    raise tf.errors.OutOfRangeError(None, None, 'no more images')


def nothing(run):
  return None


class Teller(OfRun):
  """Writes down what a session is made with: JOB/told.json."""

  def after_create_session(self, session, coord):
    config, kinds = session._config, ('Conv2D', 'VarHandleOp')
    told = {
      'intra threads': config.intra_op_parallelism_threads,
      'inter threads': config.inter_op_parallelism_threads,
      'logs devices': config.log_device_placement,
      'devices': sorted({op.device for op in session.graph.get_operations() if op.type in kinds}),
      'deterministic': determinism.is_op_determinism_enabled(),
    }
    with open(os.path.join(self._run.job_dir, 'told.json'), 'w', encoding='utf-8') as file:
      json.dump(told, file)


def one_image():
  """For --source: every shard of every batch has the same statistics."""
  yield from [(np.random.default_rng(0).integers(0, 256, [32, 32, 3], np.uint8), 3)] * 32
