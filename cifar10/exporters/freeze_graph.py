"""Freezes a checkpoint's network for inference: variables become constants, batch norm is folded.

With its moving averages batch norm is y = f x + b for each channel, with f = scale / sqrt(variance
+ epsilon) and b = offset - f mean. f is multiplied into the kernel of the convolution before it,
which leaves adding b. A max pool between the two is no obstacle to a positive f.
"""

import collections
import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core import devices
from cifar10.core.errors import InputError
from cifar10.data.manifest import DatasetInfo
from cifar10.job.checkpoints import Saver
from cifar10.networks import families
from cifar10.options.hparams import HParams
from cifar10.training import inference, optimizers
from cifar10.training.inference import CLASSES, FEATURES, IMAGES, PROBABILITIES


class Frozen(NamedTuple):
  """A network from uint8 images to classes, probabilities and features."""

  hparams: HParams
  data: DatasetInfo  # What it classifies.
  graph: tf.compat.v1.GraphDef  # With the inputs and outputs that inference.py names.
  values: Mapping[str, np.ndarray]  # float32 values of the network's variables.

  @property
  def digest(self) -> str:
    """Returns the SHA-256 of the variables: names, shapes and values, sorted by name."""
    digest = hashlib.sha256()
    for name, value in sorted(self.values.items()):
      digest.update(f'{name} {list(value.shape)}\n'.encode())
      digest.update(value.astype('<f4').tobytes())
    return digest.hexdigest()


def freeze(
  hparams: HParams, data: DatasetInfo, checkpoint: str, *, use_ema: bool = False
) -> Frozen:
  """Freezes a job's network for a data set, with a checkpoint's variables or their averages.

  With `tta` the probabilities are those of the views' mean logits. Raises InputError where the
  network has a table, whose content no graph holds, or calls Python.
  """
  outputs = [CLASSES, PROBABILITIES, FEATURES]
  with devices.side_graph() as graph:
    images = tf.compat.v1.placeholder(tf.uint8, [None, 32, 32, 3], IMAGES)
    built = families.build(hparams, families.layer_settings(hparams, False), data)
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
        session, graph.as_graph_def(), outputs
      )
  functions = (node for each in constants.library.function for node in each.node_def)
  for node in (*constants.node, *functions):
    if 'HashTable' in node.op or 'PyFunc' in node.op:
      raise InputError(
        f'the network cannot be exported: {node.name} ({node.op}) is a table or a call of Python, '
        'which no file can hold; make it of constants and operations of TensorFlow'
      )
    node.attr.pop('_gradient_op_type', None)  # Inference needs no custom gradients.
  fold_batch_norms(constants)
  folded = tf.compat.v1.graph_util.extract_sub_graph(constants, outputs)
  return Frozen(hparams, data, folded, values)


def fold_batch_norms(graph: tf.compat.v1.GraphDef) -> None:
  """Folds each batch norm that follows a convolution, in a graph whose variables are constants."""
  nodes = {node.name: node for node in graph.node}
  users = collections.Counter(_source(name) for node in graph.node for name in node.input)
  # If the graph holds a network twice, both use the same kernel node.
  shared: dict[tuple[bytes, tuple[int, ...], int], str] = {}
  for norm in nodes.values():
    # A user's own network may normalise by the batch's mean, which cannot be folded.
    if norm.op != 'FusedBatchNormV3' or norm.attr['is_training'].b:
      continue
    convolution = nodes[_source(norm.input[0])]
    is_pooled = convolution.op == 'MaxPool' and users[convolution.name] == 1
    if is_pooled:
      convolution = nodes[_source(convolution.input[0])]
    if convolution.op != 'Conv2D' or users[convolution.name] > 1:
      continue
    values = [_value(name, nodes) for name in (convolution.input[1], *norm.input[1:5])]
    if any(value is None for value in values):
      continue
    kernel, scale, offset, mean, variance = (np.asarray(value, np.float64) for value in values)
    factor = scale / np.sqrt(variance + norm.attr['epsilon'].f)
    if is_pooled and (factor <= 0).any():
      continue
    # The product is rounded, not the kernel before it.
    kernel = (kernel * factor).astype(np.float32)
    dtype = norm.attr['T'].type
    key = kernel.tobytes(), kernel.shape, dtype
    if key not in shared:
      shared[key] = _add_constant(graph, f'{convolution.name}/folded', kernel, dtype)
    convolution.input[1] = shared[key]
    bias = _add_constant(graph, f'{norm.name}/bias', offset - factor * mean, dtype)
    norm.op = 'BiasAdd'
    norm.input[:] = [norm.input[0], bias]
    for name in set(norm.attr) - {'T', 'data_format'}:
      del norm.attr[name]


def _value(name: str, nodes: Mapping[str, tf.compat.v1.NodeDef]) -> np.ndarray | None:
  """Returns a constant's value, read through casts (their rounding comes after the fold)."""
  node = nodes[_source(name)]
  if node.op == 'Const':
    return tf.make_ndarray(node.attr['value'].tensor)
  if node.op in ('Identity', 'Cast'):
    return _value(node.input[0], nodes)
  if node.op == 'Fill':
    shape, value = (_value(each, nodes) for each in node.input)
    return None if shape is None or value is None else np.full(shape, value)
  return None


def _add_constant(graph: tf.compat.v1.GraphDef, name: str, value: np.ndarray, dtype: int) -> str:
  node = graph.node.add(name=name, op='Const')
  node.attr['dtype'].type = dtype
  node.attr['value'].tensor.CopyFrom(tf.make_tensor_proto(value.astype(np.float32), dtype=dtype))
  return name


def _source(name: str) -> str:
  """Returns the node of a tensor name: 'bn' for 'bn:1' and '^bn'."""
  return name.lstrip('^').partition(':')[0]
