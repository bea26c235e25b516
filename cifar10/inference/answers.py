"""A trained network on a whole split."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.inference.serving import IMAGES


class Answers(NamedTuple):
  """What a checkpoint says of every image of a split, in its file's order."""

  checkpoint: str
  global_step: int
  classes: np.ndarray  # int64 [n]
  probabilities: np.ndarray  # float32 [n, classes]


def read_answers(estimator: Any, input_fn: Callable[[], Any], checkpoint: str) -> Answers:
  """One pass over an evaluation's input, batches of one shard each."""

  def images_only() -> Any:
    return input_fn().map(lambda images, labels: {IMAGES: images[0]})

  batches = list(
    estimator.predict(images_only, checkpoint_path=checkpoint, yield_single_examples=False)
  )
  return Answers(
    checkpoint,
    int(tf.compat.v1.train.NewCheckpointReader(checkpoint).get_tensor('global_step')),
    np.concatenate([batch['classes'] for batch in batches]),
    np.concatenate([batch['probabilities'] for batch in batches]),
  )
