"""What an evaluation measured -> the JSON that the program prints, and the callbacks' event."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.callbacks.base import Evaluation
from cifar10.core.estimator import tf_estimator

JsonObject = dict[str, Any]

MATRIX = 'confusion_matrix'  # The collection of a graph that evaluates: int64 [true, predicted].


class MatrixHook(tf.compat.v1.train.SessionRunHook):
  """Reads the confusion matrix when an evaluation is over.

  Among the metrics the Estimator would write it to TensorBoard's file, where no page shows it.
  """

  matrix: np.ndarray  # Of the last evaluation.

  def begin(self) -> None:
    [self._tensor] = tf.compat.v1.get_collection(MATRIX)

  def end(self, session: Any) -> None:
    self.matrix = session.run(self._tensor)


def make_evaluation(
  metrics: Mapping[str, Any],
  matrix: np.ndarray,
  split: str,
  checkpoint: str,
  classes: Sequence[str],
  *,
  on_the_way: bool,
  use_ema: bool = False,
) -> Evaluation:
  """Args:
  metrics: what `Estimator.evaluate` returned.
  matrix: counts of examples, [true class, predicted class].
  subset: the split's name.
  checkpoint: the evaluated one, a path.
  classes: the names, by label.
  on_the_way: whether training goes on after it.
  use_ema: whether it was of the average of the weights.
  """
  values = {name: _rounded(value) for name, value in metrics.items()}
  plain = {'accuracy_without_tta': values.get('other_accuracies/without_tta')}
  cross_entropy, penalty = metrics['loss_parts/cross_entropy'], metrics['loss_parts/weight_penalty']
  result: JsonObject = {
    'accuracy': values['accuracy'],
    **{name: value for name, value in plain.items() if value is not None},
    'accuracy_top5': values['other_accuracies/top5'],
    # The Estimator's own `loss` is a mean over batches, and the last batch may be smaller.
    'loss': _rounded(cross_entropy + penalty),
    'cross_entropy': _rounded(cross_entropy),
    'accuracy_by_class': {name: values[f'per_class_accuracy/{name}'] for name in classes},
    'global_step': int(metrics['global_step']),
    'examples': int(matrix.sum()),
    'subset': split,
    'checkpoint': checkpoint,
    **({'weights': 'ema'} if use_ema else {}),
  }
  return Evaluation(result['global_step'], split, checkpoint, result, matrix.tolist(), on_the_way)


class Listener(tf_estimator.Exporter):
  """Hears of each evaluation that `train_and_evaluate` makes, with the checkpoint it was made of.

  TensorFlow means this place for exports. No other tells which checkpoint was evaluated.
  """

  def __init__(self, heard: Callable[[Mapping[str, Any], str], None]):
    """`heard` is given the metrics and the checkpoint's path."""
    self._heard = heard

  @property
  def name(self) -> str:
    """Of a folder that nothing is written to."""
    return 'evaluations'

  def export(
    self,
    estimator: Any,
    export_path: str,
    checkpoint_path: str,
    eval_result: Mapping[str, Any],
    is_the_final_export: bool,
  ) -> None:
    """Exports nothing."""
    self._heard(eval_result, checkpoint_path)


def _rounded(value: Any) -> float:
  return round(float(value), 6)
