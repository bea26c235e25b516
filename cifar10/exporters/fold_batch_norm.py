"""Folds batch norm into the convolutions before it, in a graph whose variables are constants.

With its moving averages batch norm is y = f x + b for each channel, with f = scale / sqrt(variance
+ epsilon) and b = offset - f mean. f is multiplied into the convolution's kernel, which leaves
adding b. A max pool between the two is no obstacle to a positive f.
"""

import collections
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


class _Found(NamedTuple):
  """A batch norm that can be folded, and the convolution whose kernel takes its factor."""

  convolution: Any
  kernel: np.ndarray  # float32 [height, width, in, out], times the factor
  bias: np.ndarray  # float32 [out]


def folded(graph: Any) -> Any:
  """Returns the GraphDef with each batch norm folded that follows a convolution.

  Kernels are multiplied in float32, and rounded once for convolutions in bfloat16.

  Args:
    graph: a GraphDef whose variables are constants, for inference.
  """
  nodes = {node.name: node for node in graph.node}
  users = collections.Counter(_source(name) for node in graph.node for name in node.input)
  found = {
    node.name: match
    for node in graph.node
    if node.op == 'FusedBatchNormV3'
    and not node.attr['is_training'].b  # By a batch's own mean, in a network of a user's own.
    and (match := _match(node, nodes, users))
  }
  kernels = {match.convolution.name: match.kernel for match in found.values()}
  # If the graph holds a network twice, both use the same kernel node.
  shared: dict[tuple[bytes, tuple[int, ...], int], str] = {}
  result = tf.compat.v1.GraphDef(versions=graph.versions, library=graph.library)
  for node in graph.node:
    if node.name in kernels:
      kernel, dtype = kernels[node.name], node.attr['T'].type
      key = kernel.tobytes(), kernel.shape, dtype
      if key not in shared:
        shared[key] = _constant(result, f'{node.name}/folded', kernel, dtype)
      convolution = result.node.add()
      convolution.CopyFrom(node)
      convolution.input[1] = shared[key]
    elif node.name in found:
      dtype = node.attr['T'].type
      bias = _constant(result, f'{node.name}/bias', found[node.name].bias, dtype)
      addition = result.node.add(name=node.name, op='BiasAdd', input=[node.input[0], bias])
      addition.attr['T'].type = dtype
      addition.attr['data_format'].CopyFrom(node.attr['data_format'])
    else:
      result.node.add().CopyFrom(node)
  ends = [node.name for node in graph.node if not users[node.name]]
  return tf.compat.v1.graph_util.extract_sub_graph(result, ends)


def _match(node: Any, nodes: Mapping[str, Any], users: Mapping[str, int]) -> _Found | None:
  before = nodes[_source(node.input[0])]
  is_pooled = before.op == 'MaxPool' and users[before.name] == 1
  convolution = nodes[_source(before.input[0])] if is_pooled else before
  if convolution.op != 'Conv2D' or users[convolution.name] > 1:
    return None
  values = [_value(name, nodes) for name in (convolution.input[1], *node.input[1:5])]
  if any(value is None for value in values):
    return None
  kernel, scale, offset, mean, variance = (np.asarray(value, np.float64) for value in values)
  factor = scale / np.sqrt(variance + node.attr['epsilon'].f)
  if is_pooled and (factor <= 0).any():
    return None
  bias = offset - factor * mean
  return _Found(convolution, (kernel * factor).astype(np.float32), bias.astype(np.float32))


def _value(name: str, nodes: Mapping[str, Any]) -> np.ndarray | None:
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


def _constant(graph: Any, name: str, value: np.ndarray, dtype: int) -> str:
  node = graph.node.add(name=name, op='Const')
  node.attr['dtype'].type = dtype
  node.attr['value'].tensor.CopyFrom(tf.make_tensor_proto(value, dtype=dtype))
  return name


def _source(name: str) -> str:
  """Returns the node of a tensor name: 'bn' for 'bn:1' and '^bn'."""
  return name.lstrip('^').partition(':')[0]
