"""Evaluation of checkpoints: the metrics in the graph, a session to reuse, and the result."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from cifar10.callbacks.base import Evaluation
from cifar10.core.estimator import tf_estimator

JsonObject = dict[str, Any]

MATRIX = 'confusion_matrix'  # The graph collection of this matrix: int64 [true, predicted].
_STEP = 'global_step'


class Measured(NamedTuple):
  """The metrics of one checkpoint on one split; in the graph, their tensors."""

  metrics: Mapping[str, Any]  # by name, 'loss' and 'global_step' among them
  matrix: Any  # int64 [true class, predicted class]: number of examples


def metrics(
  labels: tf.Tensor,
  logits: tf.Tensor,
  classes: Sequence[str],
  *,
  plain_logits: tf.Tensor | None,
  cross_entropy: tf.Tensor,
  weight_penalty: tf.Tensor,
) -> dict[str, tuple[tf.Tensor, tf.Operation]]:
  """Returns the metrics for `EstimatorSpec`, each an exact mean over the examples.

  Args:
    labels: int32 [n].
    logits: float32 [n, classes]; they classify the examples.
    classes: the names, by label.
    plain_logits: those without test-time augmentation, if that is used.
    cross_entropy: float32 [n].
    weight_penalty: scalar.
  """
  mean = tf.compat.v1.metrics.mean
  top5 = tf.cast(tf.nn.in_top_k(labels, logits, min(5, len(classes))), tf.float32)
  metrics_by_name = {
    'accuracy': mean(_is_correct(labels, logits)),
    'other_accuracies/top5': mean(top5),
    'loss_parts/cross_entropy': mean(cross_entropy),
    'loss_parts/weight_penalty': mean(weight_penalty),
  }
  if plain_logits is not None:
    metrics_by_name['other_accuracies/without_tta'] = mean(_is_correct(labels, plain_logits))
  return {**metrics_by_name, **_by_class(labels, tf.argmax(logits, 1, tf.int32), classes)}


def _is_correct(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  return tf.cast(tf.equal(tf.argmax(logits, 1, tf.int32), labels), tf.float32)


def _by_class(
  labels: tf.Tensor, predicted: tf.Tensor, classes: Sequence[str]
) -> dict[str, tuple[tf.Tensor, tf.Operation]]:
  """Returns metrics like 'per_class_accuracy/cat', and makes the confusion matrix for them.

  `KeptEvaluation` reads the matrix, int64 [true class, predicted class].

  Args:
    labels: int32 [n].
    predicted: int32 [n].
    classes: the names, by label.
  """
  count = len(classes)
  total = _evaluated_sum('confusion_matrix', [count, count], tf.int64)
  update = total.assign_add(tf.math.confusion_matrix(labels, predicted, count, dtype=tf.int64))
  matrix = total.read_value()
  examples = tf.cast(tf.reduce_sum(matrix, 1), tf.float32)
  accuracy = tf.math.divide_no_nan(tf.cast(tf.linalg.diag_part(matrix), tf.float32), examples)
  tf.compat.v1.add_to_collection(MATRIX, matrix)
  return {
    f'per_class_accuracy/{name}': (accuracy[label], update) for label, name in enumerate(classes)
  }


def _evaluated_sum(name: str, shape: list[int], dtype: tf.DType = tf.float32) -> Any:
  """Makes a variable that is 0 when an evaluation begins."""
  keys = tf.compat.v1.GraphKeys
  return tf.compat.v1.get_variable(
    name,
    shape,
    dtype,
    tf.compat.v1.zeros_initializer(),
    trainable=False,
    collections=[keys.LOCAL_VARIABLES, keys.METRIC_VARIABLES],
  )


class KeptEvaluation:
  """An evaluation of one split, to run many times: its session keeps the graph and variables."""

  def __init__(self, estimator: Any, input_fn: Any, folder: str):
    """Builds the graph; reads no data.

    Args:
      estimator: provides the model function.
      input_fn: returns a dataset that ends.
      folder: the folder for TensorBoard's file.
    """
    self._folder = folder
    mode = tf_estimator.ModeKeys.EVAL
    with tf.Graph().as_default() as self._graph:
      tf.compat.v1.set_random_seed(estimator.config.tf_random_seed)
      global_step = tf.compat.v1.train.create_global_step()
      with tf.device('/cpu:0'):
        iterator = tf.compat.v1.data.make_initializable_iterator(input_fn())
      spec = estimator.model_fn(*iterator.get_next(), mode, estimator.config)
      values = {name: value for name, (value, _) in spec.eval_metric_ops.items()}
      # Not the mean of the batches' losses: the last batch may have fewer examples.
      loss = values['loss_parts/cross_entropy'] + values['loss_parts/weight_penalty']
      self._values = {**values, 'loss': loss, _STEP: global_step}
      self._update = tf.group(*(update for _, update in spec.eval_metric_ops.values()))
      [self._matrix] = tf.compat.v1.get_collection(MATRIX)
      # Finalises the graph.
      scaffold = (spec.scaffold or tf.compat.v1.train.Scaffold()).finalize()
    self._saver = scaffold.saver
    self._begin = [scaffold.local_init_op, iterator.initializer]
    self._session = _Lasting(graph=self._graph, config=estimator.config.session_config)

  def evaluate(self, checkpoint: str, hooks: Sequence[Any]) -> Measured:
    """Every example once.

    Args:
      checkpoint: the checkpoint to restore.
      hooks: session hooks for each batch.
    """
    values = _LastValues(Measured(self._values, self._matrix))
    creator = _Restoring(self._session, self._saver, checkpoint, self._begin)
    monitored = tf.compat.v1.train.MonitoredSession
    with self._graph.as_default(), monitored(creator, [*hooks, values]) as session:
      while not session.should_stop():
        session.run(self._update)
    return values.measured

  def write(self, metrics: Mapping[str, Any]) -> None:
    """Writes a checkpoint's metrics for TensorBoard, as the Estimator does."""
    scalars = [
      tf.compat.v1.Summary.Value(tag=name, simple_value=float(value))
      for name, value in metrics.items()
      if name != _STEP
    ]
    with self._graph.as_default():
      writer = tf.compat.v1.summary.FileWriterCache.get(self._folder)
    writer.add_summary(tf.compat.v1.Summary(value=scalars), int(metrics[_STEP]))
    writer.flush()


class _Lasting(tf.compat.v1.Session):
  """A session that stays open when its MonitoredSession closes."""

  def close(self) -> None:
    """Does nothing, so that the next checkpoint can be restored into this session."""


class _Restoring(tf.compat.v1.train.SessionCreator):
  """Gives a MonitoredSession an existing session, and restores a checkpoint into it."""

  def __init__(self, session: _Lasting, saver: Any, checkpoint: str, begin: Sequence[tf.Operation]):
    self._session = session
    self._saver = saver
    self._checkpoint = checkpoint
    self._begin = begin

  def create_session(self) -> _Lasting:
    self._saver.restore(self._session, self._checkpoint)
    self._session.run(self._begin)
    return self._session


class _LastValues(tf.compat.v1.train.SessionRunHook):
  """Reads the metrics after the last batch."""

  measured: Measured

  def __init__(self, tensors: Measured):
    self._tensors = tensors

  def end(self, session: Any) -> None:
    self.measured = session.run(self._tensors)


def make_evaluation(
  measured: Measured,
  split: str,
  checkpoint: str,
  classes: Sequence[str],
  *,
  on_the_way: bool,
  use_ema: bool = False,
) -> Evaluation:
  """Args:
  measured: returned by `KeptEvaluation.evaluate`.
  split: the name of the split.
  checkpoint: the path of the evaluated checkpoint.
  classes: the names, by label.
  on_the_way: whether training continues after it.
  use_ema: whether the weights' moving average was evaluated.
  """
  metrics, matrix = measured
  values = {name: round(float(value), 6) for name, value in metrics.items()}
  plain = {'accuracy_without_tta': values.get('other_accuracies/without_tta')}
  result: JsonObject = {
    'accuracy': values['accuracy'],
    **{name: value for name, value in plain.items() if value is not None},
    'accuracy_top5': values['other_accuracies/top5'],
    'loss': values['loss'],
    'cross_entropy': values['loss_parts/cross_entropy'],
    'accuracy_by_class': {name: values[f'per_class_accuracy/{name}'] for name in classes},
    'global_step': int(metrics['global_step']),
    'examples': int(matrix.sum()),
    'subset': split,
    'checkpoint': checkpoint,
    **({'weights': 'ema'} if use_ema else {}),
  }
  return Evaluation(result['global_step'], split, checkpoint, result, matrix.tolist(), on_the_way)
