"""The metrics of an evaluation, in its graph: each counts every example once."""

from collections.abc import Sequence

import tensorflow as tf

MATRIX = 'confusion_matrix'  # The graph collection of this matrix: int64 [true, predicted].


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

  Labels and predictions are int32 [n]; `MATRIX` is their confusion matrix.
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
