"""Checkpoints of networks that nobody has trained, and what these say of some images."""

import functools
import tempfile

import numpy as np
import tensorflow as tf

from cifar10.data.manifest import CIFAR10
from cifar10.job.checkpoints import EMA_SUFFIX
from cifar10.networks import families
from cifar10.training import inference

IMAGES = np.random.default_rng(0).integers(0, 256, [4, 32, 32, 3]).astype(np.uint8)
_ROOT = tempfile.TemporaryDirectory()  # It goes with this process.


@functools.cache
def save(hparams, *, with_averages=False):
  """A checkpoint of random numbers, which nobody changes -> its name, and the network's answers."""
  folder = tempfile.mkdtemp(dir=_ROOT.name)
  rng = np.random.default_rng(1)
  with tf.Graph().as_default():
    tf.compat.v1.set_random_seed(1)  # The kernels are the same in every run.
    built = families.build(hparams, families.layer_settings(hparams, False), CIFAR10)
    with tf.compat.v1.variable_scope(hparams.family.NAME):
      inferred = inference.infer(hparams, built, tf.constant(IMAGES))
    variables = tf.compat.v1.global_variables()
    stored = {variable.op.name: variable for variable in variables}
    if with_averages:
      stored = {f'{name}{EMA_SUFFIX}': variable for name, variable in stored.items()}
    with tf.compat.v1.Session() as session:
      session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()])
      for variable in variables:
        if 'kernel' not in variable.op.name:
          variable.load(rng.uniform(0.5, 1.5, variable.shape), session)
        elif 'whitening' in variable.op.name:  # Zeros until a job makes it of its images.
          variable.load(rng.normal(scale=0.2, size=variable.shape), session)
      path = tf.compat.v1.train.Saver(stored).save(session, f'{folder}/model.ckpt', 1)
      logits = inferred.logits
      answers = session.run([tf.nn.softmax(logits), inferred.features, logits])
  return path, answers
