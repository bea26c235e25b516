"""Writes a SavedModel for serving: signatures and metadata."""

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from cifar10.core import files
from cifar10.data import image_files, manifest
from cifar10.exporters.freeze_graph import Frozen
from cifar10.training.inference import CLASSES, ENCODED, FEATURES, IMAGES, PROBABILITIES

_SIZES = (manifest.HEIGHT, manifest.WIDTH, manifest.DEPTH)


def write(path: str, network: Frozen, made_from: Mapping[str, Any]) -> None:
  """Writes the folder `path`, which does not exist yet."""
  with context.eager_mode():  # Which a user's network or notebook may have switched off.
    module = tf.Module()
    images = tf.TensorSpec([None, *_SIZES], tf.uint8, IMAGES)
    encoded = tf.TensorSpec([None], tf.string, ENCODED)

    def infer(images: tf.Tensor) -> list[tf.Tensor]:
      outputs = [f'{name}:0' for name in (CLASSES, PROBABILITIES, FEATURES)]
      return tf.graph_util.import_graph_def(
        network.graph, {f'{IMAGES}:0': images}, outputs, name=''
      )

    module.network = tf.compat.v1.wrap_function(infer, [images])

    def serve(images: tf.Tensor) -> dict[str, tf.Tensor]:
      classes, probabilities, _ = module.network(images)
      return {CLASSES: classes, PROBABILITIES: probabilities}

    def features(images: tf.Tensor) -> dict[str, tf.Tensor]:
      return {FEATURES: module.network(images)[2]}

    def serve_encoded(encoded: tf.Tensor) -> dict[str, tf.Tensor]:
      read = tf.map_fn(_read, encoded, fn_output_signature=tf.TensorSpec(_SIZES, tf.uint8))
      return serve(read)

    signatures = {
      'serving_default': tf.function(serve, [images], autograph=False),
      'features': tf.function(features, [images], autograph=False),
      'encoded': tf.function(serve_encoded, [encoded], autograph=False),
    }
    tf.saved_model.save(module, path, signatures)
  extra = os.path.join(path, 'assets.extra')  # TensorFlow's name of it.
  os.makedirs(extra)
  with open(os.path.join(extra, 'made_from.json'), 'w', encoding='utf-8') as file:
    file.write(files.json_text(made_from, indent=2) + '\n')


def _read(content: tf.Tensor) -> tf.Tensor:
  """Decodes an image file in the same way as `predict`."""
  image = image_files.decode(content)
  image.set_shape([None, None, manifest.DEPTH])
  return tf.ensure_shape(image_files.as_seen(image), _SIZES)
