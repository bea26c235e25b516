"""What a package outside of the program has: a network as a function, a family, and callbacks.

The weights are 0, so that the logits are, and half the sum of squares is worked out by hand.
"""

import dataclasses
from typing import ClassVar

import tensorflow as tf

import cifar10
from cifar10.core.option import option
from cifar10.networks.layers import MoreLayers

NOT_A_NETWORK = 3


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
  weights = tf.compat.v1.get_variable(
    'weights', [4, num_classes], initializer=tf.constant_initializer(0.5)
  )
  return tf.matmul(x, weights)


def wrong_shape(images, is_training, num_classes):
  return tf.zeros([tf.shape(images)[0], num_classes + 1])


def fails(images, is_training, num_classes):
  raise KeyError('no such layer')


def bare_variable(images, is_training, num_classes):
  weights = tf.Variable(tf.zeros([3, num_classes]), name='bare')
  return tf.matmul(tf.reduce_mean(tf.cast(images, tf.float32), [1, 2]), weights)


def no_parameters():
  return None


class KerasLike(tf.keras.Model):
  pass


class _Linear(MoreLayers):
  def __init__(self, options, settings, data):
    super().__init__(settings)
    self._options, self._num_classes = options, data.num_classes

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


class Heard(cifar10.Callback):
  """Remembers what it heard of."""

  def __init__(self, run=None):
    self.events = []

  def on_graph(self, graph):
    tf.compat.v1.summary.scalar('own/answer', tf.constant(42.0))

  def on_epoch_end(self, epoch):
    self.events.append(('epoch', epoch))
    print('HEARD epoch', epoch)

  def on_evaluate_end(self, evaluation):
    self.events.append((evaluation.split, evaluation.step))
    print('HEARD', evaluation.split, evaluation.step)


class Fails(cifar10.Callback):
  def __init__(self, run):
    pass

  def on_step_end(self, step):
    raise ValueError(f'step {step.step} is\nbad')


def nothing(run):
  return None
