"""The history of a job that is older than metrics.jsonl, from the files that TensorBoard reads."""

import os
from typing import Any

import tensorflow as tf

from cifar10.core import files

_TRAINING = {  # TensorBoard's name: the event's.
  'loss': 'loss',
  'accuracy': 'accuracy',
  'learning_rate': 'learning_rate',
  'examples_per_second': 'images_per_second',
}
_EVALUATION = ('accuracy', 'accuracy_top5', 'accuracy_without_tta', 'loss', 'cross_entropy')
_BY_CLASS = ('accuracy/', 'accuracy_by_class/')  # Older and newer.


def read(job_dir: str) -> list[dict[str, Any]]:
  """Events as metrics.jsonl has them, `train` and `evaluate` alone; none where there are no files.

  What a later file says of a step holds.
  """
  events = [
    {
      'event': 'train',
      'step': step,
      'time': values.pop('time'),
      **{name: values[tag] for tag, name in _TRAINING.items() if tag in values},
    }
    for step, values in _scalars(job_dir).items()
  ]
  for folder in files.matching(job_dir, 'eval_*'):
    split = os.path.basename(folder).removeprefix('eval_')
    events += [_evaluation(split, step, values) for step, values in _scalars(folder).items()]
  # What else TensorBoard shows, as an evaluation's images, is none of these numbers.
  return sorted((event for event in events if len(event) > 3), key=lambda event: event['step'])


def _evaluation(split: str, step: int, values: dict[str, Any]) -> dict[str, Any]:
  by_class = {
    tag.partition('/')[2]: value for tag, value in values.items() if tag.startswith(_BY_CLASS)
  }
  numbers: dict[str, Any] = {name: values[name] for name in _EVALUATION if name in values}
  if 'cross_entropy' in values and 'weight_penalty' in values:
    # The Estimator's `loss` is a mean over batches, and the last batch may be smaller.
    numbers['loss'] = values['cross_entropy'] + values['weight_penalty']
  if 'examples' in values:
    numbers['examples'] = int(values['examples'])
  if by_class:
    numbers['accuracy_by_class'] = by_class
  return {'event': 'evaluate', 'step': step, 'time': values['time'], 'subset': split, **numbers}


def _scalars(folder: str) -> dict[int, dict[str, Any]]:
  """By step the scalars of a folder's event files by tag, and the time of the last as 'time'."""
  found: dict[int, dict[str, Any]] = {}
  for path in files.matching(folder, 'events.out.tfevents.*'):
    try:
      for event in tf.compat.v1.train.summary_iterator(path):
        for value in event.summary.value:
          number = _number(value)
          if number is not None:
            at_step = found.setdefault(event.step, {})
            at_step[value.tag] = number
            at_step['time'] = event.wall_time
    except tf.errors.DataLossError:
      continue  # A killed process leaves half a record at the end.
  return found


def _number(value: Any) -> float | None:
  """Of a scalar in either of the two forms."""
  if value.HasField('simple_value'):
    return value.simple_value
  if value.HasField('tensor') and not value.tensor.tensor_shape.dim and value.tensor.dtype < 7:
    return float(tf.make_ndarray(value.tensor))
  return None
