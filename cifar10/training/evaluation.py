"""Evaluation of checkpoints: the metrics in the graph, a session to reuse, and the result."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.callbacks.base import Evaluation
from cifar10.core import files
from estimator_again import estimator as tf_estimator

MATRIX = 'confusion_matrix'  # The graph collection of this matrix: int64 [true, predicted].


class Measured(NamedTuple):
  """The metrics of one checkpoint on one split; in the graph, their tensors."""

  metrics: Mapping[str, float]  # by name, 'loss' and 'global_step' among them
  matrix: np.ndarray  # int64 [true class, predicted class]: number of examples


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
    'accuracy': mean(is_correct(labels, logits)),
    'other_accuracies/top5': mean(top5),
    'loss_parts/cross_entropy': mean(cross_entropy),
    'loss_parts/weight_penalty': mean(weight_penalty),
  }
  if plain_logits is not None:
    metrics_by_name['other_accuracies/without_tta'] = mean(is_correct(labels, plain_logits))
  return {**metrics_by_name, **_by_class(labels, tf.argmax(logits, 1, tf.int32), classes)}


def is_correct(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Returns 1 where the likeliest class is the label, else 0: float32 [n]."""
  return tf.cast(tf.equal(tf.argmax(logits, 1, tf.int32), labels), tf.float32)


def _by_class(
  labels: tf.Tensor, predicted: tf.Tensor, classes: Sequence[str]
) -> dict[str, tuple[tf.Tensor, tf.Operation]]:
  """Returns metrics like 'per_class_accuracy/cat', NaN for a class without examples.

  Labels and predictions are int32 [n]; `KeptEvaluation` reads their confusion matrix.
  """
  count = len(classes)
  keys = tf.compat.v1.GraphKeys
  total = tf.compat.v1.get_variable(
    'confusion_matrix',
    [count, count],
    tf.int64,
    tf.compat.v1.zeros_initializer(),
    trainable=False,
    collections=[keys.LOCAL_VARIABLES, keys.METRIC_VARIABLES],  # Zeros when an evaluation begins.
  )
  update = total.assign_add(tf.math.confusion_matrix(labels, predicted, count, dtype=tf.int64))
  matrix = total.read_value()
  examples = tf.cast(tf.reduce_sum(matrix, 1), tf.float32)
  accuracy = tf.cast(tf.linalg.diag_part(matrix), tf.float32) / examples
  tf.compat.v1.add_to_collection(MATRIX, matrix)
  return {
    f'per_class_accuracy/{name}': (accuracy[label], update) for label, name in enumerate(classes)
  }


class KeptEvaluation:
  """An evaluation of one split, to run many times: its session keeps the graph and variables."""

  def __init__(self, estimator: tf_estimator.Estimator, input_fn: Callable[[], tf.data.Dataset]):
    """Builds the graph of the estimator's model function for a dataset that ends; reads no data."""
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
      self._values = {**values, 'loss': loss, 'global_step': global_step}
      self._update = tf.group(*(update for _, update in spec.eval_metric_ops.values()))
      [self._matrix] = tf.compat.v1.get_collection(MATRIX)
      scaffold = spec.scaffold.finalize()
    self._saver = scaffold.saver
    self._begin = [scaffold.local_init_op, iterator.initializer]
    config = estimator.config.session_config
    self._session = tf.compat.v1.Session(graph=self._graph, config=config)

  def evaluate(self, checkpoint: str, after_batch: Callable[[], None] = lambda: None) -> Measured:
    """Restores a checkpoint and evaluates it on every example once."""
    with self._graph.as_default():  # In which the saver words its errors.
      self._saver.restore(self._session, checkpoint)
    self._session.run(self._begin)
    with contextlib.suppress(tf.errors.OutOfRangeError):  # The data set has ended.
      while True:
        self._session.run(self._update)
        after_batch()
    return self._session.run(Measured(self._values, self._matrix))


def make_evaluation(
  measured: Measured,
  split: str,
  checkpoint: str,
  classes: Sequence[str],
  *,
  on_the_way: bool,
  is_held_out: bool = True,
  use_ema: bool = False,
) -> Evaluation:
  """Returns what `KeptEvaluation.evaluate` has measured as the program prints it."""
  metrics, matrix = measured
  values = {name: round(float(value), 6) for name, value in metrics.items()}
  without_tta = 'other_accuracies/without_tta'
  result: dict[str, Any] = {
    'accuracy': values['accuracy'],
    **({'accuracy_without_tta': values[without_tta]} if without_tta in values else {}),
    'accuracy_top5': values['other_accuracies/top5'],
    'loss': values['loss'],
    'cross_entropy': values['loss_parts/cross_entropy'],
    # None for a class without examples.
    'accuracy_by_class': files.finite({c: values[f'per_class_accuracy/{c}'] for c in classes}),
    'global_step': int(metrics['global_step']),
    'examples': int(matrix.sum()),
    'subset': split,
    'checkpoint': checkpoint,
    **({'weights': 'ema'} if use_ema else {}),
  }
  return Evaluation(
    result['global_step'], split, checkpoint, result, matrix.tolist(), on_the_way, is_held_out
  )
