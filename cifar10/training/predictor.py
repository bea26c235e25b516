"""A job's network in a session of its own, to be called with images."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core.errors import InputError
from cifar10.job.checkpoints import EMA_SUFFIX
from cifar10.job.run import Run
from cifar10.networks import own_network
from cifar10.training.estimator import inference_estimator
from estimator_again import estimator as tf_estimator


class Answers(NamedTuple):
  """A network's answers for n images."""

  classes: np.ndarray  # int64 [n]
  probabilities: np.ndarray  # float32 [n, classes]


class Predictor:
  """The graph of a network that classifies images, and a session without its values yet."""

  def __init__(self, run: Run):
    self._run = run
    estimator = inference_estimator(run)
    with tf.Graph().as_default() as graph:
      tf.compat.v1.set_random_seed(run.hparams.seed)
      tf.compat.v1.train.create_global_step()
      self._images = tf.compat.v1.placeholder(tf.uint8, [None, 32, 32, 3])
      predict = tf_estimator.ModeKeys.PREDICT
      spec = estimator.model_fn({'images': self._images}, None, predict, estimator.config)
      self._outputs = [spec.predictions['classes'], spec.predictions['probabilities']]
      scaffold = (spec.scaffold or tf.compat.v1.train.Scaffold()).finalize()
      self._saver = scaffold.saver
      self._variables = tf.compat.v1.global_variables()
      self._session = tf.compat.v1.Session(graph=graph, config=run.session_config())
    try:
      self._session.run(scaffold.local_init_op)  # Tables of a user's network.
    except BaseException:
      self._session.close()
      raise

  def restore(self, checkpoint: str) -> str:
    """Takes the values of a checkpoint; returns its path."""
    with self._session.graph.as_default():  # In which the saver words its errors.
      self._saver.restore(self._session, checkpoint)
    return checkpoint

  def take(self, session: tf.compat.v1.Session) -> None:
    """Takes the values that the variables have in a training's session; averages for --use-ema."""
    variables = session.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    trained = {variable.op.name: variable for variable in variables}
    if self._run.options.use_ema:
      averages = {name: trained.get(name + EMA_SUFFIX) for name in trained}
      trained |= {name: average for name, average in averages.items() if average is not None}
    values = session.run([trained[variable.op.name] for variable in self._variables])
    fed = {each.initializer.inputs[1]: value for each, value in zip(self._variables, values)}
    self._session.run([variable.initializer for variable in self._variables], fed)

  def __call__(self, images: np.ndarray) -> Answers:
    """Classifies an array or tensor uint8 [n, 32, 32, 3]; raises InputError for anything else."""
    if hasattr(images, 'numpy'):  # A tensor.
      images = images.numpy()
    is_array = isinstance(images, np.ndarray) and images.dtype == np.uint8
    if not is_array or images.shape[1:] != (32, 32, 3):
      kind = f'{images.dtype} {list(images.shape)}' if hasattr(images, 'shape') else type(images)
      raise InputError(f'images are {kind}; they must be an array uint8 [n, 32, 32, 3]')
    # Not every operation accepts an empty batch.
    padded = images if len(images) else np.zeros([1, 32, 32, 3], np.uint8)
    size = self._run.hparams.eval_batch_size
    batches = [padded[i : i + size] for i in range(0, len(padded), size)]
    with own_network.naming_failures(self._run.hparams.family):
      answers = [self._session.run(self._outputs, {self._images: batch}) for batch in batches]
    classes, probabilities = (np.concatenate(each)[: len(images)] for each in zip(*answers))
    return Answers(classes, probabilities)

  def close(self) -> None:
    """Closes the session."""
    self._session.close()
