"""Freezes a checkpoint's network for inference: its variables become constants."""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core import devices
from cifar10.core.errors import InputError
from cifar10.data import info
from cifar10.data.info import DatasetInfo
from cifar10.exporters import fold_batch_norm
from cifar10.job.checkpoints import Saver
from cifar10.options.hparams import HParams
from cifar10.training import inference, network_builder, optimizers
from cifar10.training.inference import CLASSES, FEATURES, IMAGES, PROBABILITIES

_ELSEWHERE = re.compile('HashTable|PyFunc')  # Operations on what is in this process alone.


class Frozen(NamedTuple):
  """A network from uint8 images to classes, probabilities and features."""

  hparams: HParams
  data: DatasetInfo  # What it classifies.
  graph: Any  # A GraphDef with the inputs and outputs that inference.py names.
  values: Mapping[str, np.ndarray]  # float32 values of the network's variables.

  @property
  def digest(self) -> str:
    """Returns the SHA-256 of the variables: names, shapes and values, sorted by name."""
    digest = hashlib.sha256()
    for name, value in sorted(self.values.items()):
      digest.update(f'{name} {list(value.shape)}\n'.encode())
      digest.update(value.astype('<f4').tobytes())
    return digest.hexdigest()


class Format(NamedTuple):
  """A file format that other programs read networks from."""

  # Writes a file or folder at a path; the last argument describes what it was made from.
  write: Callable[[str, Frozen, Mapping[str, Any]], None]
  # Raises InputError if a library is missing, or the format cannot hold the network.
  check: Callable[[HParams], None] = lambda _: None
  suffix: str = ''
  dtype: str = ''  # '': the job's.


def freeze(
  hparams: HParams, data: DatasetInfo, checkpoint: str, *, use_ema: bool = False
) -> Frozen:
  """Freezes a checkpoint's network, with batch norm folded into the convolutions.

  Args:
    hparams: the job's; with `tta` the probabilities are those of the views' mean logits.
    data: the data set that the network classifies.
    checkpoint: the path of the checkpoint.
    use_ema: whether to use the moving averages of the variables.

  Raises:
    InputError: the network has a table, whose content no graph holds, or calls Python.
  """
  with devices.side_graph() as graph:
    sizes = [None, info.HEIGHT, info.WIDTH, info.DEPTH]
    images = tf.compat.v1.placeholder(tf.uint8, sizes, IMAGES)
    built = network_builder.build(hparams, data, is_training=False)
    with tf.compat.v1.variable_scope(hparams.family.NAME):
      inferred = inference.infer(hparams, built, images)
    tf.argmax(inferred.logits, 1, name=CLASSES)
    tf.nn.softmax(inferred.logits, name=PROBABILITIES)
    tf.identity(inferred.features, FEATURES)
    variables = {variable.op.name: variable for variable in tf.compat.v1.global_variables()}
    saver = optimizers.averages_saver() if use_ema else Saver(variables)
    with tf.compat.v1.Session(config=devices.session_config()) as session:
      saver.restore(session, checkpoint)
      values = session.run(variables)
      constants = tf.compat.v1.graph_util.convert_variables_to_constants(
        session, graph.as_graph_def(), [CLASSES, PROBABILITIES, FEATURES]
      )
  _check_is_whole(constants)
  for node in constants.node:  # Drops custom gradients of networks: inference needs none.
    node.attr.pop('_gradient_op_type', None)
  return Frozen(hparams, data, fold_batch_norm.folded(constants), values)


def _check_is_whole(graph: Any) -> None:
  """Raises InputError if the graph, or a function that it calls, needs more than constants."""
  functions = {each.signature.name: each.node_def for each in graph.library.function}
  needed = [*graph.node]
  for node in needed:  # Which grows by the nodes of functions that are called.
    for value in node.attr.values():
      for called in (value.func, *value.list.func):
        needed += functions.pop(called.name, ())
    if _ELSEWHERE.search(node.op):
      raise InputError(
        f'the network cannot be exported: {node.name} ({node.op}) is a table or a call of Python, '
        'which no file can hold; make it of constants and operations of TensorFlow'
      )
