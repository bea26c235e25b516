"""The outputs of a network, and the names of exported inputs and outputs."""

from typing import NamedTuple

import tensorflow as tf

IMAGES = 'images'  # uint8 [n, 32, 32, 3]
ENCODED = 'encoded'  # string [n]: bytes of PNG or JPEG files of any size
CLASSES = 'classes'  # int64 [n]
PROBABILITIES = 'probabilities'  # float32 [n, classes]
FEATURES = 'features'  # float32 [n, width]: the input of the last layer


class Inferred(NamedTuple):
  """A network's outputs for n images."""

  logits: tf.Tensor  # float32 [n, classes], the mean over the views of --tta
  own_logits: tf.Tensor  # float32 [n, classes], of the images alone
  features: tf.Tensor  # float32 [n, width], the input of the last layer for the images alone
