"""A job for TensorFlow: model function and RunConfig; and a checkpoint's network in a session."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from cifar10.cluster.tf_config import Cluster
from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.core.logs import log
from cifar10.job import checkpoints, variable_files
from cifar10.job.run import Run
from cifar10.training import network_builder, optimizers
from cifar10.training.inference import CLASSES, IMAGES, PROBABILITIES
from cifar10.training.model_fn import ModelFn, Training
from estimator_again import estimator as tf_estimator

_Result = TypeVar('_Result')


def model_function(run: Run, training: Training | None = None) -> ModelFn:
  """Returns the job's model function; of one that trains, with what it must know of that."""
  workers, use_ema = run.role.gradients_per_update, run.options.use_ema
  return ModelFn(run.placement, run.data, workers, training, use_ema)


def run_config(run: Run) -> tf_estimator.RunConfig:
  """Returns the Estimator's RunConfig of this process, which trains alone or in a cluster."""
  with tf_config(run.cluster):
    return tf_estimator.RunConfig(
      model_dir=run.job_dir,
      tf_random_seed=run.hparams.seed,
      save_summary_steps=None,  # callbacks/metrics.py writes means of many steps instead.
      # The Estimator needs some number, but the trainer's savers save.
      save_checkpoints_steps=run.options.eval_every_steps if run.cluster.is_chief else None,
      keep_checkpoint_max=run.options.keep_checkpoints,
      log_step_count_steps=None,  # Callbacks count steps, in examples.
      session_config=run.session_config(run.cluster),
      experimental_max_worker_delay_secs=0,  # By default worker i first sleeps 5 (i + 1) seconds.
    )


@contextlib.contextmanager
def tf_config(cluster: Cluster) -> Iterator[None]:
  """A context with TF_CONFIG set for the Estimator, which reads nothing but the environment."""
  before = os.environ.get('TF_CONFIG', '{}')
  if cluster.tf_config == before:  # Outside a cluster nothing changes in what threads share.
    yield
    return
  os.environ['TF_CONFIG'] = cluster.tf_config
  try:
    yield
  finally:
    os.environ['TF_CONFIG'] = before


def checkpoint(run: Run) -> str:
  """Returns the named or latest checkpoint.

  Raises InputError where there is none, it is of another network, or has no averages for --use-ema.
  """
  named = run.options.checkpoint
  path = checkpoints.find(run.job_dir, named)
  if named and named != checkpoints.BEST:  # It may belong to another job.
    source = variable_files.open_checkpoint(path, f'--checkpoint {named}')
    shapes, _ = network_builder.variable_shapes(run.hparams, run.data)
    variable_files.check_network(source, shapes, run.hparams.family.NAME)
  if run.options.use_ema and not optimizers.has_averages(path):
    raise InputError(
      f'checkpoint {path} has no average of the weights: its job was trained without --ema-decay; '
      'leave --use-ema out'
    )
  return path


def with_checkpoint(run: Run, use: Callable[[str], _Result]) -> _Result:
  """Returns what `use` makes of the named or latest checkpoint; raises InputError without one.

  A training that keeps few checkpoints may delete one before it is read: then the next is taken.
  """
  while True:
    path = checkpoint(run)
    try:
      return use(path)
    except Exception:
      if files.exists(f'{path}.index'):
        raise
    log.info('%s was deleted before it was read; taking the next', path)


class Restored:
  """A job's network in a graph and a session of its own, which begins without values."""

  def __init__(self, run: Run, mode: str, inputs: Callable[[], tuple[Any, Any]]):
    """Builds the graph; `inputs` makes features and labels there."""
    with tf.Graph().as_default() as graph:
      tf.compat.v1.set_random_seed(run.hparams.seed)
      self.global_step = tf.compat.v1.train.create_global_step()
      self.spec = model_function(run)(*inputs(), mode, run.hparams)
      self._scaffold = self.spec.scaffold.finalize()
    self.session = tf.compat.v1.Session(graph=graph, config=run.session_config())

  def restore(self, checkpoint: str) -> None:
    """Takes the values of a checkpoint."""
    with self.session.graph.as_default():  # In which the saver words its errors.
      self._scaffold.saver.restore(self.session, checkpoint)
    self.checkpoint = checkpoint


class Answers(NamedTuple):
  """A network's answers for n images."""

  classes: np.ndarray  # int64 [n]
  probabilities: np.ndarray  # float32 [n, classes]


class Predictor(Restored, contextlib.AbstractContextManager['Predictor']):
  """A job's network, to be called with images, until `close` or the end of its context.

  It has the names of the `classes` and, once it is restored, the path of its `checkpoint`.
  """

  def __init__(self, run: Run):
    self._run = run
    self.classes = run.data.classes

    def inputs() -> tuple[Any, None]:
      self._images = tf.compat.v1.placeholder(tf.uint8, [None, 32, 32, 3])
      return {IMAGES: self._images}, None

    super().__init__(run, tf_estimator.ModeKeys.PREDICT, inputs)
    self._outputs = [self.spec.predictions[name] for name in (CLASSES, PROBABILITIES)]
    self.session.run(self._scaffold.local_init_op)  # Tables of a user's network.

  def take(self, session: tf.compat.v1.Session) -> None:
    """Takes the values that the variables have in a training's session; averages for --use-ema."""
    keys = tf.compat.v1.GraphKeys
    trained = {each.op.name: each for each in session.graph.get_collection(keys.GLOBAL_VARIABLES)}
    variables = self.session.graph.get_collection(keys.GLOBAL_VARIABLES)
    suffix = checkpoints.EMA_SUFFIX if self._run.options.use_ema else ''
    names = [each.op.name for each in variables]
    values = session.run([trained.get(name + suffix, trained[name]) for name in names])
    for variable, value in zip(variables, values):  # Two may be made of the same initial tensor.
      self.session.run(variable.initializer, {variable.initializer.inputs[1]: value})

  def __call__(self, images: np.ndarray) -> Answers:
    """Classifies an array or tensor uint8 [n, 32, 32, 3]; raises InputError for anything else."""
    images = np.asarray(images)
    if images.dtype != np.uint8 or images.shape[1:] != (32, 32, 3):
      kind = f'{images.dtype} {list(images.shape)}'
      raise InputError(f'images are {kind}; they must be an array uint8 [n, 32, 32, 3]')
    # Not every operation accepts an empty batch.
    padded = images if len(images) else np.zeros([1, 32, 32, 3], np.uint8)
    size = self._run.hparams.eval_batch_size
    batches = [padded[i : i + size] for i in range(0, len(padded), size)]
    answers = [self.session.run(self._outputs, {self._images: batch}) for batch in batches]
    classes, probabilities = (np.concatenate(each)[: len(images)] for each in zip(*answers))
    return Answers(classes, probabilities)

  def close(self) -> None:
    self.session.close()

  def __exit__(self, *exception: object) -> None:
    self.close()


def load(run: Run) -> Predictor:
  """Returns the network of the named or latest checkpoint; raises InputError without one."""
  network = Predictor(run)
  with_checkpoint(run, network.restore)
  return network
