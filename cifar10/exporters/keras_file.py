"""Writes a network as a .keras file: Keras 2 one that both lines of Keras read, Keras 3 its own."""

import json
import zipfile
from collections.abc import Mapping
from typing import Any

from tensorflow.python.eager import context

from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.exporters import keras_networks
from cifar10.exporters.freeze_graph import Format, Frozen
from cifar10.options.hparams import HParams


def check(hparams: HParams) -> None:
  """Raises InputError for what Keras's layers cannot express."""
  if type(hparams.family) not in keras_networks.FAMILIES:
    raise InputError(
      f'--format keras has no layers for --network {hparams.family.PLACE or hparams.family.NAME}; '
      'export with --format saved_model or onnx'
    )
  if hparams.tta != 'none':
    raise InputError(f'--format keras has no --tta {hparams.tta}; add --tta none')


def write(path: str, network: Frozen, made_from: Mapping[str, Any]) -> None:
  """Writes a model from `images` uint8 [n, 32, 32, 3] to probabilities.

  Args:
    path: the file to write.
    network: of a family and options that `check` has accepted.
    made_from: what it was made from, for Keras's metadata.json in the file.
  """
  with context.eager_mode():  # Which a user's notebook may have switched off.
    model = keras_networks.build(network.hparams, network.data, network.values)
    model.save(f'{path}.keras')
  with zipfile.ZipFile(f'{path}.keras') as saved, zipfile.ZipFile(path, 'w') as file:
    for name in saved.namelist():
      content = saved.read(name)
      if name == 'metadata.json':
        content = files.json_text({**json.loads(content), 'made_from': made_from}).encode()
      elif name == 'config.json':
        content = _for_both_lines(content)
      file.writestr(name, content)


def _for_both_lines(content: bytes) -> bytes:
  """Makes of Keras 2's config.json, which names places of its own, one that Keras 3 reads, too."""
  config = {**json.loads(content), 'module': 'keras', 'class_name': 'Model'}
  config['registered_name'] = None
  for layer in config['config']['layers']:
    if layer['class_name'] == 'BatchNormalization':
      layer['config']['axis'] = -1  # Not [3].
  return json.dumps(config).encode()


FORMAT = Format(write, check, suffix='.keras', dtype='float32')
