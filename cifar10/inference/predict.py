"""A trained network on images from outside."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.data import image_files, records
from cifar10.inference.serving import IMAGES
from cifar10.platform.logs import log


def read_image(path: str) -> np.ndarray:
  """An image file of any size -> uint8 [32, 32, 3]; raises InputError for one that is none."""
  image, (height, width) = image_files.read_image(path)
  if (height, width) != (records.HEIGHT, records.WIDTH):
    log.info('%s: resized from %sx%s to 32x32 pixels', path, width, height)
  return image


def predict(
  estimator: Any, paths: Sequence[str], checkpoint: str, classes: Sequence[str]
) -> list[dict[str, Any]]:
  """One result a file, in order: its name, class name and the probability of every class."""
  images = np.stack([read_image(path) for path in paths])  # uint8 [n, 32, 32, 3]

  def input_fn():
    return tf.data.Dataset.from_tensor_slices({IMAGES: images}).batch(100)

  results = []
  for path, prediction in zip(paths, estimator.predict(input_fn, checkpoint_path=checkpoint)):
    probabilities = prediction['probabilities']
    results.append(
      {
        'file': path,
        'class': classes[int(prediction['classes'])],
        'probabilities': {
          name: round(float(probability), 6) for name, probability in zip(classes, probabilities)
        },
      }
    )
  return results
