"""Writes a SavedModel for serving: signatures, warm-up requests and metadata.

TensorFlow Serving runs the requests in assets.extra/tf_serving_warmup_requests before it accepts
others, so that no client waits for what TensorFlow prepares in a signature's first call.
"""

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from cifar10.core import files
from cifar10.data import image_files, info
from cifar10.exporters.freeze_graph import Format, Frozen
from cifar10.inference.predictions import CLASSES, ENCODED, FEATURES, IMAGES, PROBABILITIES

MADE_FROM = 'made_from.json'
_EXTRA = 'assets.extra'  # TensorFlow's name of the folder for additional files.
_WARM_UP = 'tf_serving_warmup_requests'
_INPUTS = {'serving_default': IMAGES, 'features': IMAGES, 'encoded': ENCODED}  # By signature.
_SIZES = (info.HEIGHT, info.WIDTH, info.DEPTH)


def write(path: str, network: Frozen, made_from: Mapping[str, Any]) -> None:
  """Writes the folder `path`, which does not exist yet."""
  with context.eager_mode():  # Which a user's network or notebook may have switched off.
    module = tf.Module()
    module.network = _function(network.graph)
    batch = module.network.inputs[0].shape.as_list()[0]
    tf.saved_model.save(module, path, signatures=_signatures(module.network, batch))
    extra = os.path.join(path, _EXTRA)
    os.makedirs(extra)
    with open(os.path.join(extra, MADE_FROM), 'w', encoding='utf-8') as file:
      file.write(files.json_text(made_from, indent=2) + '\n')
    with tf.io.TFRecordWriter(os.path.join(extra, _WARM_UP)) as requests:
      for signature, name in _INPUTS.items():
        requests.write(_prediction_log(signature, name, _grey(name, batch or 1)))


def _function(graph: Any) -> Any:
  """Returns the graph as a function from `images` to classes, probabilities and features."""
  [given] = [node for node in graph.node if node.name == IMAGES]
  images = tf.TensorSpec(tf.TensorShape(given.attr['shape'].shape), tf.uint8, IMAGES)
  outputs = [f'{name}:0' for name in (CLASSES, PROBABILITIES, FEATURES)]

  def network(images: tf.Tensor) -> list[tf.Tensor]:
    return tf.graph_util.import_graph_def(graph, {f'{IMAGES}:0': images}, outputs, name='')

  return tf.compat.v1.wrap_function(network, [images])


def _signatures(network: Any, batch: int | None) -> dict[str, Any]:
  """Returns the functions that a server offers, by signature."""

  def serve(images: tf.Tensor) -> dict[str, tf.Tensor]:
    classes, probabilities, _ = network(images)
    return {CLASSES: classes, PROBABILITIES: probabilities}

  def features(images: tf.Tensor) -> dict[str, tf.Tensor]:
    return {FEATURES: network(images)[2]}

  def serve_encoded(encoded: tf.Tensor) -> dict[str, tf.Tensor]:
    return serve(tf.map_fn(_read, encoded, fn_output_signature=tf.TensorSpec(_SIZES, tf.uint8)))

  functions = {'serving_default': serve, 'features': features, 'encoded': serve_encoded}
  specs = {
    IMAGES: tf.TensorSpec([batch, *_SIZES], tf.uint8, IMAGES),
    ENCODED: tf.TensorSpec([batch], tf.string, ENCODED),
  }
  return {
    signature: tf.function(function, input_signature=[specs[_INPUTS[signature]]], autograph=False)
    for signature, function in functions.items()
  }


def _read(content: tf.Tensor) -> tf.Tensor:
  """Decodes an image file in the same way as `predict`."""
  image = image_files.decode(content)
  image.set_shape([None, None, info.DEPTH])
  return tf.ensure_shape(image_files.as_seen(image), _SIZES)


def _grey(name: str, batch: int) -> tf.Tensor:
  """Returns encoded grey images for a warm-up request."""
  images = tf.fill([batch, *_SIZES], tf.constant(128, tf.uint8))
  return images if name == IMAGES else tf.fill([batch], tf.io.encode_png(images[0]))


def _prediction_log(signature: str, name: str, value: tf.Tensor) -> bytes:
  """Returns a PredictionLog as defined in tensorflow_serving/apis/prediction_log.proto.

  Encoded by hand, because its Python package needs gRPC: predict_log = 6 { request = 1 {
  model_spec = 1 { signature_name = 3 }, inputs = 2 { key = 1, value = 2 } } }.
  """
  tensor = tf.make_tensor_proto(value.numpy()).SerializeToString()
  inputs = _field(1, name.encode()) + _field(2, tensor)
  request = _field(1, _field(3, signature.encode())) + _field(2, inputs)
  return _field(6, _field(1, request))


def _field(number: int, content: bytes) -> bytes:
  """Encodes a field of bytes in the wire format of protocol buffers."""
  return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
  """Encodes seven bits per byte, the lowest first; all bytes but the last have the top bit set."""
  result = bytearray()
  while number > 127:
    result.append(number & 127 | 128)
    number >>= 7
  return bytes([*result, number])


FORMAT = Format(write)
