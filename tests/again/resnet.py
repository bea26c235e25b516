"""A program as others have them: a ResNet of tf.layers, flags and hooks of v1, a warm start."""

import json
import random

import tensorflow.compat.v1 as tf

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_integer('steps', 20, 'in all')
tf.app.flags.DEFINE_string('model_dir', None, 'where checkpoints go')
tf.app.flags.DEFINE_string('warm_start', None, 'a job whose variables this one begins with')


def input_fn():
  images = tf.random.stateless_uniform([32, 8, 8, 3], [1, 2])
  labels = tf.cast(tf.reduce_mean(images[..., 0], [1, 2]) > 0.5, tf.int32)
  return tf.data.Dataset.from_tensors((images, labels)).repeat(30)


def block(x, filters, training):
  y = tf.nn.relu(tf.layers.batch_normalization(x, training=training))
  y = tf.layers.conv2d(y, filters, 3, padding='same', use_bias=False)
  return y + tf.layers.conv2d(x, filters, 1)


def model_fn(features, labels, mode, params):
  training = mode == tf.estimator.ModeKeys.TRAIN
  x = block(block(features, 4, training), 8, training)
  logits = tf.layers.dense(tf.reduce_mean(x, [1, 2]), 2)
  loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
  optimizer = tf.train.MomentumOptimizer(params['learning_rate'], 0.9)
  with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
    train_op = optimizer.minimize(loss, tf.train.get_or_create_global_step())
  return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Losses(tf.train.SessionRunHook):
  """Keeps the loss of every step."""

  def __init__(self):
    self.losses = []

  def begin(self):
    self._loss = tf.get_collection(tf.GraphKeys.LOSSES)[0]

  def before_run(self, run_context):
    return tf.train.SessionRunArgs(self._loss)

  def after_run(self, run_context, run_values):
    self.losses.append(float(run_values.results))


def main(_):
  random.seed(1)  # Keras 2 draws the seeds of its initializers from it.
  config = tf.estimator.RunConfig(tf_random_seed=1)
  params = {'learning_rate': 0.1}
  estimator = tf.estimator.Estimator(model_fn, FLAGS.model_dir, config, params, FLAGS.warm_start)
  hook = Losses()
  logging = tf.train.LoggingTensorHook({'step': 'global_step'}, every_n_iter=10)
  estimator.train(input_fn, hooks=[hook, logging], max_steps=FLAGS.steps)
  loss = float(estimator.evaluate(input_fn, steps=1)['loss'])
  names = estimator.get_variable_names()
  print(json.dumps({'losses': hook.losses, 'evaluated': loss, 'names': names}))


if __name__ == '__main__':
  tf.app.run(main)
