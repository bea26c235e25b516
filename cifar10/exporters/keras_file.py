"""A network as a .keras file, for Keras 2 and Keras 3, whichever of them is here.

Such a file is a zip of three members. Keras 3 reads what Keras 2 writes, but not the other way, so
the members are written here, as Keras 2.15 writes them:

  metadata.json      Keras's version, and what the network was made from
  config.json        the layers, and which is given what
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

_VERSION = '2.15.0'  # Whose form this is.
_GROUPS = {'BatchNormalization': 'batch_normalization', 'Conv2D': 'conv2d', 'Dense': 'dense'}


def write(path: str, network: Frozen, made_from: Mapping[str, Any]) -> None:
  """Writes the file: `images` uint8 [n, 32, 32, 3] -> probabilities.

  Args:
    path: where.
    network: in float32, with one view of each image.
    made_from: what to say of its making.

  Raises:
    InputError: an operation of the network has no layer in Keras.
  """
  layers = keras_layers.from_graph(network.unfolded, network.values, network.learning)
  config = _config(layers)
  metadata = {
    'keras_version': _VERSION,
    'date_saved': datetime.datetime.now().strftime('%Y-%m-%d@%H:%M:%S'),
    'made_from': made_from,
  }
  # Keras orders the layers by their distance from the end, and numbers them in that order.
  model = tf.keras.Model.from_config(json.loads(json.dumps(config))['config'])
  weights = _weights(layers[layer.name] for layer in model.layers)
  with zipfile.ZipFile(path, 'w') as file:
    file.writestr('metadata.json', files.json_text(metadata))
    file.writestr('config.json', json.dumps(config))
    file.writestr('model.weights.h5', weights)


def _config(layers: Mapping[str, Layer]) -> dict[str, Any]:
  """A functional model."""
  described = [
    {
      **_object('keras.layers', layer.kind, {'name': layer.name, **layer.config}),
      'name': layer.name,
      # One call of the layer: of each input the layer, which call of that, which of its outputs.
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
  """An HDF5 file."""
  content = io.BytesIO()
  numbers = dict.fromkeys(_GROUPS, 0)
  with h5py.File(content, 'w') as file:
    file.create_group('vars')  # The model's own: none, but Keras 2 looks for them.
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
