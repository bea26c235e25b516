"""A SavedModel's input."""

from typing import Any

import tensorflow as tf

from cifar10.data import records
from cifar10.platform.estimator import tf_estimator

IMAGES = 'images'  # What an exported network, and the Estimator's predictions, call their input.


def serving_input_receiver_fn() -> Any:
  """The SavedModel's input: `images` uint8 [n, 32, 32, 3]."""
  shape = [None, records.HEIGHT, records.WIDTH, records.DEPTH]
  images = tf.compat.v1.placeholder(tf.uint8, shape, name=IMAGES)
  receiver = {IMAGES: images}
  return tf_estimator.export.ServingInputReceiver(receiver, receiver)
