"""A trained network on a whole split, and what it calls its inputs and outputs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

IMAGES = 'images'  # uint8 [n, 32, 32, 3]
ENCODED = 'encoded'  # string [n]: the bytes of PNG or JPEG files of any size.
CLASSES = 'classes'  # int64 [n]
PROBABILITIES = 'probabilities'  # float32 [n, classes]
FEATURES = 'features'  # float32 [n, width]: what the last layer is given.


class Inferred(NamedTuple):
  """What a network says of n images."""

  logits: tf.Tensor  # float32 [n, classes], the mean over the views that --tta has of an image
  own_logits: tf.Tensor  # float32 [n, classes], of the image itself
  features: tf.Tensor  # float32 [n, width], what the last layer is given for the image itself


class Predictions(NamedTuple):
  """What a checkpoint says of every image of a split, in its file's order."""

  checkpoint: str
  global_step: int
  classes: np.ndarray  # int64 [n]
  probabilities: np.ndarray  # float32 [n, classes]


def read_predictions(estimator: Any, input_fn: Callable[[], Any], checkpoint: str) -> Predictions:
  """One pass over an evaluation's input, batches of one shard each."""

  def images_only() -> Any:
    return input_fn().map(lambda images, labels: {IMAGES: images[0]})

  batches = list(
    estimator.predict(images_only, checkpoint_path=checkpoint, yield_single_examples=False)
  )
  return Predictions(
    checkpoint,
    int(tf.compat.v1.train.NewCheckpointReader(checkpoint).get_tensor('global_step')),
    np.concatenate([batch['classes'] for batch in batches]),
    np.concatenate([batch['probabilities'] for batch in batches]),
  )
