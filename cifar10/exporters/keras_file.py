"""Writes a network as a .keras file: Keras 2 one that both lines of Keras read, Keras 3 its own.

The program's own families stack Keras's layers in place of those of model_base.py: the same
`forward_pass` builds both. A layer with variables is named like their scope, with _ for /:
resnet_stage1_block0_conv1. None is a Lambda, which Keras 3 refuses to load.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras  # Loaded with its first use: training has none.
from tensorflow.python.eager import context

import model_base
from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.data.manifest import DatasetInfo
from cifar10.exporters.freeze_graph import Frozen
from cifar10.networks.families import NETWORKS, layer_settings
from cifar10.networks.fastnet import SHARPNESS, FastNet, standardisation
from cifar10.options.families import FastNetFamily
from cifar10.training.inference import FEATURES, IMAGES, PROBABILITIES

_KERAS_NAMES = {'scale': 'gamma', 'offset': 'beta'}  # The others are the program's.


class _KerasLayers(model_base.Layers):
  """Keras's layers by the names of model_base.py."""

  def _input(self, images: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    return images

  def _conv(
    self, x: tf.Tensor, kernel_size: Any, filters: int, strides: int, name: Any = None, **_: Any
  ) -> tf.Tensor:
    padding = 'same'
    if strides > 1:  # 'same' would centre a 3x3 kernel on pixels 1, 3, 5, ..., not on 0, 2, 4, ...
      x, padding = keras.layers.ZeroPadding2D(kernel_size // 2)(x), 'valid'
    name = _scoped(name or 'conv')
    return keras.layers.Conv2D(filters, kernel_size, strides, padding, use_bias=False, name=name)(x)

  def _batch_norm(
    self, x: tf.Tensor, name: str | None = None, *, fixed_scale: float | None = None
  ) -> tf.Tensor:
    name, has_scale = _scoped(name or 'batch_norm'), fixed_scale is None
    decay, epsilon = self._batch_norm_decay, self._batch_norm_epsilon
    x = keras.layers.BatchNormalization(-1, decay, epsilon, scale=has_scale, name=name)(x)
    # With a fixed scale f, f x + offset is f (x + offset / f).
    return x if has_scale else keras.layers.Rescaling(fixed_scale, name=f'{name}_scale')(x)

  def _relu(self, x: tf.Tensor) -> tf.Tensor:
    return keras.layers.ReLU()(x)

  def _add(self, x: tf.Tensor, shortcut: tf.Tensor) -> tf.Tensor:
    return keras.layers.Add()([x, shortcut])

  def _fully_connected(
    self, x: tf.Tensor, out_dim: int, name: str | None = None, *, has_bias: bool = True, **_: Any
  ) -> tf.Tensor:
    x = keras.layers.Activation('linear', name=FEATURES)(x)
    name = _scoped(name or 'fully_connected')
    return keras.layers.Dense(out_dim, use_bias=has_bias, name=name)(x)

  def _avg_pool(self, x: tf.Tensor, pool_size: int, stride: int) -> tf.Tensor:
    return keras.layers.AveragePooling2D(pool_size, stride)(x)

  def _max_pool(self, x: tf.Tensor, pool_size: int, padding: str = 'VALID') -> tf.Tensor:
    return keras.layers.MaxPooling2D(pool_size, padding=padding.lower())(x)

  def _global_avg_pool(self, x: tf.Tensor) -> tf.Tensor:
    return keras.layers.GlobalAveragePooling2D()(x)

  def _pad(self, x: tf.Tensor, added: dict[int, tuple[int, int | tf.Tensor]]) -> tf.Tensor:
    channels = added[self._channel_axis]
    if not any(channels):
      return x
    # Of [batch, height, width, channels] the last two axes are what channels first calls pixels.
    return keras.layers.ZeroPadding2D(((0, 0), channels), data_format='channels_first')(x)


class _FastNet(_KerasLayers, FastNet):
  """A fast network of Keras's layers, for variables that `_folded` returns."""

  def _whiten(self, x: tf.Tensor) -> tuple[tf.Tensor, None]:
    x = keras.layers.Conv2D(24, 2, trainable=False, name=_scoped('whitening'))(x)
    return self._silu(x), None

  def _silu(self, x: tf.Tensor) -> tf.Tensor:
    return keras.layers.Activation('swish')(x)

  def _head(self, x: tf.Tensor) -> tf.Tensor:
    x = keras.layers.Flatten()(x)
    logits = self._fully_connected(x, self._num_classes, has_bias=False)
    return keras.layers.Rescaling(1 / (self._divisor * SHARPNESS))(logits)


def _scoped(name: str) -> str:
  return f'{tf.compat.v1.get_variable_scope().name}/{name}'.replace('/', '_')


def _folded(values: Mapping[str, np.ndarray], data: DatasetInfo) -> dict[str, np.ndarray]:
  """A fast network's variables with the constants that its layers do not have."""
  scale, shift = (value[:, np.newaxis] for value in standardisation(data))
  place = f'{FastNetFamily.NAME}/whitening/'
  kernel, bias = values[f'{place}kernel'], values[f'{place}bias']
  offsets = {name: value / SHARPNESS for name, value in values.items() if name.endswith('/offset')}
  bias = bias + np.sum(kernel * shift, (0, 1, 2))
  whitening = {f'{place}kernel': SHARPNESS * kernel * scale, f'{place}bias': SHARPNESS * bias}
  return {**values, **offsets, **whitening}


def _model(network: Frozen) -> keras.Model:
  """Returns the network from uint8 images [batch, 32, 32, 3] to probabilities."""
  family, data, values = network.hparams.family, network.data, network.values
  layers: Any = type('KerasNetwork', (_KerasLayers, NETWORKS[type(family)]), {})
  if isinstance(family, FastNetFamily):
    layers, values = _FastNet, _folded(values, data)
  settings = layer_settings(network.hparams, is_training=False)
  images = keras.Input([32, 32, 3], dtype='uint8', name=IMAGES)
  x = keras.layers.Rescaling(1 / 128, -1)(images)
  with tf.compat.v1.variable_scope(family.NAME):
    logits = layers(family, settings, data).forward_pass(x)
  model = keras.Model(images, keras.layers.Softmax(name=PROBABILITIES)(logits), name='network')
  for name, value in values.items():
    scope, _, leaf = name.rpartition('/')
    layer = model.get_layer(scope.replace('/', '_'))
    getattr(layer, _KERAS_NAMES.get(leaf, leaf)).assign(value)
  return model


def write(path: str, network: Frozen, made_from: Mapping[str, Any]) -> None:
  """Writes a model from `images` uint8 [n, 32, 32, 3] to probabilities.

  Raises InputError for what Keras's layers cannot express.
  """
  family, tta = network.hparams.family, network.hparams.tta
  if type(family) not in NETWORKS:
    raise InputError(
      f'--format keras has no layers for --network {family.PLACE}; use --format saved_model or onnx'
    )
  if tta != 'none':
    raise InputError(f'--format keras has no --tta {tta}; add --tta none')
  with context.eager_mode():  # Which a user's notebook may have switched off.
    _model(network).save(f'{path}.keras')
  with zipfile.ZipFile(f'{path}.keras') as saved, zipfile.ZipFile(path, 'w') as file:
    contents = {name: saved.read(name) for name in saved.namelist()}
    metadata, config = (json.loads(contents[f'{name}.json']) for name in ('metadata', 'config'))
    # Keras 2 writes modules of its own and a list of axes; in this form Keras 3 reads it, too.
    config |= {'module': 'keras', 'class_name': 'Model', 'registered_name': None}
    for layer in config['config']['layers']:
      if layer['class_name'] == 'BatchNormalization':
        layer['config']['axis'] = -1
    contents['metadata.json'] = files.json_text({**metadata, 'made_from': made_from}).encode()
    contents['config.json'] = json.dumps(config).encode()
    for name, content in contents.items():
      file.writestr(name, content)
