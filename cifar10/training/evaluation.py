"""An evaluation's metrics, of every example once; callbacks/validation.py chooses the best."""

from collections.abc import Mapping, Sequence

import tensorflow as tf
from tensorflow.python.ops.metrics_impl import metric_variable

from cifar10.training.inference import Inferred

MATRIX = 'confusion_matrix'  # The graph collection of this matrix: int64 [true, predicted].


def metrics(
  labels: tf.Tensor,
  inferred: Inferred,
  classes: Sequence[str],
  loss_parts: Mapping[str, tf.Tensor],
  has_views: bool,
) -> dict[str, tuple[tf.Tensor, tf.Operation]]:
  """Returns values and updates for `EstimatorSpec`, each an exact mean over the examples.

  'per_class_accuracy/cat' is NaN for a class without examples; `MATRIX` is the confusion matrix.

  Args:
    labels: int32 [n].
    inferred: what the network says of the n images.
    classes: the names, by label.
    loss_parts: float32 [n], or scalars, by name.
    has_views: whether test-time augmentation is used; then `without_tta` is measured, too.
  """
  mean = tf.compat.v1.metrics.mean
  top5 = tf.nn.in_top_k(labels, inferred.logits, min(5, len(classes)))
  found = {
    'accuracy': mean(is_correct(labels, inferred.logits)),
    'other_accuracies/top5': mean(tf.cast(top5, tf.float32)),
    **{f'loss_parts/{name}': mean(part) for name, part in loss_parts.items()},
  }
  if has_views:
    found['other_accuracies/without_tta'] = mean(is_correct(labels, inferred.own_logits))
  predicted, count = tf.argmax(inferred.logits, 1, tf.int32), len(classes)
  # As those of tf.compat.v1.metrics: local, and zeros when an evaluation begins.
  total = metric_variable([count, count], tf.int64, name='confusion_matrix')
  update = total.assign_add(tf.math.confusion_matrix(labels, predicted, count, dtype=tf.int64))
  matrix = total.read_value()
  tf.compat.v1.add_to_collection(MATRIX, matrix)
  examples = tf.cast(tf.reduce_sum(matrix, 1), tf.float32)
  accuracy = tf.cast(tf.linalg.diag_part(matrix), tf.float32) / examples
  by_class = {f'per_class_accuracy/{name}': (accuracy[i], update) for i, name in enumerate(classes)}
  return {**found, **by_class}


def is_correct(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Returns 1 where the likeliest class is the label, or a row's likeliest, else 0: float32 [n]."""
  if labels.dtype.is_floating:
    labels = tf.argmax(labels, 1, tf.int32)
  return tf.cast(tf.equal(tf.argmax(logits, 1, tf.int32), labels), tf.float32)
