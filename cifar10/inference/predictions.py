"""What a trained network says of images, and what it calls its inputs and outputs."""

from typing import NamedTuple

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
