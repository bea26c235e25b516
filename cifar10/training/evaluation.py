"""What an evaluation measured -> the JSON that the program prints, and the callbacks' event."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cifar10.callbacks.callback import Evaluation
from cifar10.platform.estimator import tf_estimator

JsonObject = dict[str, Any]


def make_evaluation(
  metrics: Mapping[str, Any],
  subset: str,
  checkpoint: str,
  classes: Sequence[str],
  on_the_way: bool,
  *,
  use_ema: bool = False,
) -> Evaluation:
  """Args:
  metrics: what `Estimator.evaluate` returned.
  subset: the split's name.
  checkpoint: the evaluated one, a path.
  classes: the names, by label.
  on_the_way: whether training goes on after it.
  use_ema: whether it was of the average of the weights.
  """
  plain = {
    name: _rounded(value) for name, value in metrics.items() if name == 'accuracy_without_tta'
  }
  result: JsonObject = {
    'accuracy': _rounded(metrics['accuracy']),
    **plain,
    'accuracy_top5': _rounded(metrics['accuracy_top5']),
    # The Estimator's own `loss` is a mean over batches, and the last batch may be smaller.
    'loss': _rounded(metrics['cross_entropy'] + metrics['weight_penalty']),
    'cross_entropy': _rounded(metrics['cross_entropy']),
    'accuracy_by_class': {name: _rounded(metrics[f'accuracy_by_class/{name}']) for name in classes},
    'global_step': int(metrics['global_step']),
    'examples': int(metrics['examples']),
    'subset': subset,
    'checkpoint': checkpoint,
    **({'weights': 'ema'} if use_ema else {}),
  }
  matrix = metrics['confusion_matrix']
  return Evaluation(result['global_step'], subset, checkpoint, result, matrix, on_the_way)


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
