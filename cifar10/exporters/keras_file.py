"""Writes a network as a .keras file that Keras 2 and Keras 3 can both load.

The file is a zip of three members. Keras 3 reads files of Keras 2, but not the other way round, so
the members are written here, in the format of Keras 2.15:

  metadata.json      Keras's version, and what the network was made from
  config.json        the layers and their inputs
  model.weights.h5   layers/conv2d/vars/0, layers/conv2d_1/vars/0, ...: numbered within a class
"""

import datetime
import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

import h5py
import tensorflow as tf

from cifar10.core import files
from cifar10.exporters import keras_layers
from cifar10.exporters.freeze_graph import Format, Frozen
from cifar10.exporters.keras_layers import Layer
from cifar10.inference.predictions import IMAGES, PROBABILITIES

_VERSION = '2.15.0'  # Of the file format.
_GROUPS = {'BatchNormalization': 'batch_normalization', 'Conv2D': 'conv2d', 'Dense': 'dense'}


def write(path: str, network: Frozen, made_from: Mapping[str, Any]) -> None:
  """Writes a model from `images` uint8 [n, 32, 32, 3] to probabilities.

  Args:
    path: the file to write.
    network: in float32, with one view of each image.
    made_from: metadata on what it was made from.

  Raises:
    InputError: an operation of the network has no Keras layer.
  """
  layers = keras_layers.from_graph(network.unfolded, network.values, network.learning)
  config = _config(layers)
  metadata = {
    'keras_version': _VERSION,
    'date_saved': datetime.datetime.now().strftime('%Y-%m-%d@%H:%M:%S'),
    'made_from': made_from,
  }
  # Keras orders layers by their distance from the output, and numbers them in that order.
  model = tf.keras.Model.from_config(json.loads(json.dumps(config))['config'])
  weights = _weights(layers[layer.name] for layer in model.layers)
  with zipfile.ZipFile(path, 'w') as file:
    file.writestr('metadata.json', files.json_text(metadata))
    file.writestr('config.json', json.dumps(config))
    file.writestr('model.weights.h5', weights)


def _config(layers: Mapping[str, Layer]) -> dict[str, Any]:
  """Returns the config of a functional model."""
  described = [
    {
      **_object('keras.layers', layer.kind, {'name': layer.name, **layer.config}),
      'name': layer.name,
      # A layer's call: for each input its layer, which call of that layer, and which output.
      'inbound_nodes': [[[name, 0, 0, {}] for name in layer.inputs]] if layer.inputs else [],
    }
    for layer in layers.values()
  ]
  model = {
    'name': 'network',
    'trainable': True,
    'layers': described,
    'input_layers': [IMAGES, 0, 0],
    'output_layers': [PROBABILITIES, 0, 0],
  }
  return _object('keras', 'Model', model)


def _object(module: str, kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
  return {'module': module, 'class_name': kind, 'config': config, 'registered_name': None}


def _weights(layers: Iterable[Layer]) -> bytes:
  """Returns the weights as an HDF5 file."""
  content = io.BytesIO()
  numbers = dict.fromkeys(_GROUPS, 0)
  with h5py.File(content, 'w') as file:
    file.create_group('vars')  # The model has no weights of its own, but Keras 2 needs the group.
    for layer in layers:
      if not layer.weights:
        continue
      number, group = numbers[layer.kind], _GROUPS[layer.kind]
      numbers[layer.kind] += 1
      name = f'layers/{group}_{number}' if number else f'layers/{group}'
      for index, weight in enumerate(layer.weights):
        file[f'{name}/vars/{index}'] = weight
  return content.getvalue()


FORMAT = Format(write, suffix='.keras', dtype='float32', has_views=False)
