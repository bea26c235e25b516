"""A trained network on images from outside: files to predict, and a SavedModel to serve."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10 import hooks, model_fn, records
from cifar10.errors import InputError
from cifar10.estimator import tf_estimator


def read_image(path: str) -> np.ndarray:
  """An image file of any size -> uint8 [32, 32, 3]; raises InputError for one that is none.

  PNG and JPEG are what the program promises; TensorFlow also reads GIF (its first image) and BMP.
  """
  try:
    content = tf.io.read_file(path)
    image = tf.io.decode_image(content, channels=records.DEPTH, expand_animations=False)
  except tf.errors.NotFoundError:
    raise InputError(f'image {path} does not exist') from None
  except tf.errors.OpError:
    raise InputError(f'image {path} cannot be read as PNG or JPEG; convert it') from None
  height, width = image.shape[:2]
  if (height, width) != (records.HEIGHT, records.WIDTH):
    hooks.log.info('%s: resized from %sx%s to 32x32 pixels', path, width, height)
    # Area averaging keeps a large photograph from turning into noise.
    size = [records.HEIGHT, records.WIDTH]
    resized = tf.image.resize(image, size, tf.image.ResizeMethod.AREA)
    image = tf.cast(tf.round(resized), tf.uint8)
  return image.numpy()


def predict(estimator: Any, paths: Sequence[str], checkpoint: str) -> list[dict[str, Any]]:
  """One result a file, in order: its name, class name and the probability of every class."""
  images = np.stack([read_image(path) for path in paths])  # uint8 [n, 32, 32, 3]

  def input_fn():
    return tf.data.Dataset.from_tensor_slices({model_fn.IMAGES: images}).batch(100)

  results = []
  for path, prediction in zip(paths, estimator.predict(input_fn, checkpoint_path=checkpoint)):
    probabilities = prediction['probabilities']
    results.append(
      {
        'file': path,
        'class': records.CLASS_NAMES[int(prediction['classes'])],
        'probabilities': {
          name: round(float(probability), 6)
          for name, probability in zip(records.CLASS_NAMES, probabilities)
        },
      }
    )
  return results


def serving_input_receiver_fn() -> Any:
  """The SavedModel's input: `images` uint8 [n, 32, 32, 3]."""
  shape = [None, records.HEIGHT, records.WIDTH, records.DEPTH]
  images = tf.compat.v1.placeholder(tf.uint8, shape, name=model_fn.IMAGES)
  receiver = {model_fn.IMAGES: images}
  return tf_estimator.export.ServingInputReceiver(receiver, receiver)
