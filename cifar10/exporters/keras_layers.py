"""Translates a frozen graph to the Keras layers that compute the same.

Each operation between the images and the probabilities becomes a layer of Keras itself; none is a
Lambda, which Keras 3 refuses to load.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.core import sessions
from cifar10.core.errors import InputError
from cifar10.exporters.freeze_graph import Learning
from cifar10.inference.predictions import FEATURES, PROBABILITIES


@dataclasses.dataclass(frozen=True)
class Layer:
  """One layer of keras.layers."""

  kind: str  # The name of its class.
  name: str
  inputs: list[str]  # The layers whose outputs are its inputs.
  config: Mapping[str, Any]  # The arguments of its class.
  weights: Sequence[np.ndarray]  # In the order of its class.


def from_graph(
  graph: Any, variables: Mapping[str, np.ndarray], learning: Learning
) -> dict[str, Layer]:
  """Returns the layers by name, each after its inputs.

  `features` is the input of the last layer, `probabilities` the last layer. A layer with weights
  has the name of its variables' scope, any other layer that of its operation, with _ for /:
  resnet_stage1_block0_conv1.

  Args:
    graph: a GraphDef whose variables are constants, for inference, channels last, in float32.
    variables: the constants that can be trained.
    learning: the layers that the inference graph lacks.

  Raises:
    InputError: an operation has no layer.
  """
  wanted = tf.compat.v1.graph_util.extract_sub_graph(graph, [PROBABILITIES])
  with tf.Graph().as_default() as imported:
    tf.graph_util.import_graph_def(wanted, name='')
    with tf.compat.v1.Session(config=sessions.session_config()) as session:
      translation = _Translation(session, variables, learning)
      translation.translate(imported, _features(graph, wanted))
  return translation.layers


def _features(graph: Any, wanted: Any) -> str:
  """Returns the name of the operation that computes the features."""
  nodes = {node.name: node for node in graph.node}
  on_the_way = {node.name for node in wanted.node}
  name = FEATURES
  while name not in on_the_way:
    name = nodes[name].input[0].partition(':')[0]
  return name


class _Translation:
  """Translates a graph's operations, in an order in which they can be computed."""

  def __init__(self, session: Any, variables: Mapping[str, np.ndarray], learning: Learning):
    self._session = session
    self._variables = variables
    self._learning = learning
    self._made: dict[str, str] = {}  # Tensor name -> layer name; without constants.
    self._non_negative: set[str] = set()  # Names of layers with outputs >= 0.
    self.layers: dict[str, Layer] = {}

  def translate(self, graph: tf.Graph, features: str) -> None:
    for op in graph.get_operations():
      is_computed = op.type == 'Placeholder' or any(map(self._layer_of, op.inputs))
      if is_computed and not self._layer_of(op.outputs[0]):
        self._require(op, op.type in _METHODS)
        _METHODS[op.type](self, op)
      if op.name == features:
        source = self._made[op.outputs[0].name]
        self._add(op, 'Activation', {'activation': 'linear'}, name=FEATURES, inputs=[source])

  def _add(
    self,
    op: tf.Operation,
    kind: str,
    config: Mapping[str, Any],
    weights: Sequence[np.ndarray] = (),
    *,
    name: str = '',
    inputs: list[str] | None = None,
  ) -> str:
    """A layer for the operation; by default it is called and given what the operation is."""
    # An own network may have several layers in a scope.
    names = [each.replace('/', '_') for each in (name, op.name) if each]
    name = next((each for each in names if each not in self.layers), names[0])
    if inputs is None:
      inputs = [layer for layer in map(self._layer_of, op.inputs) if layer]
    assert name not in self.layers, f'two layers are called {name}'
    self.layers[name] = Layer(kind, name, inputs, config, weights)
    self._made[op.outputs[0].name] = name
    return name

  def _layer_of(self, tensor: tf.Tensor) -> str | None:
    return self._made.get(tensor.name)

  def _weight(self, op: tf.Operation, index: int) -> tuple[np.ndarray, str]:
    """Returns a constant's value and its variable's scope; '' if several variables make it."""
    tensor = op.inputs[index]
    self._require(op, self._layer_of(tensor) is None)
    source = tensor.op
    while source.type == 'Identity':
      source = source.inputs[0].op
    if source.name in self._variables:
      return self._variables[source.name], source.name.rpartition('/')[0]
    return self._session.run(tensor), ''

  def _constant(self, op: tf.Operation, index: int) -> np.ndarray:
    return self._weight(op, index)[0]

  def _require(self, op: tf.Operation, condition: bool) -> None:
    if not condition:
      raise InputError(
        f'--format keras has no layer for the operation {op.type} as {op.name} has it; export with '
        '--format saved_model or onnx'
      )

  # Operations without computation.

  def _placeholder(self, op: tf.Operation) -> None:
    sizes = [size.size if size.size > 0 else None for size in op.get_attr('shape').dim]
    dtype = op.outputs[0].dtype.name
    self._add(op, 'InputLayer', {'batch_input_shape': sizes, 'dtype': dtype})

  def _pass(self, op: tf.Operation) -> None:
    """Translates Identity and Cast to nothing, or to the dropout that an Identity marks."""
    if op.name in self._learning.dropouts:
      self._add(op, 'Dropout', {'rate': self._learning.dropouts[op.name]})
      return
    for given, result in zip(op.inputs, op.outputs):
      if layer := self._layer_of(given):
        self._made[result.name] = layer

  # Layers with weights.

  def _bias(self, op: tf.Operation) -> tf.Operation | None:
    """Returns the only consumer of an operation if it adds a constant to each channel."""
    users = op.outputs[0].consumers()
    if [user.type for user in users] not in (['BiasAdd'], ['AddV2']):
      return None
    first, second = users[0].inputs
    is_bias = first.op == op and not self._layer_of(second)
    # Of one number for all channels Keras's layers have no bias.
    return users[0] if is_bias and second.shape == op.outputs[0].shape[-1:] else None

  def _conv(self, op: tf.Operation) -> None:
    padding = op.get_attr('padding').decode()
    self._require(op, padding in ('SAME', 'VALID') and op.get_attr('data_format') == b'NHWC')
    kernel, scope = self._weight(op, 1)
    self._require(op, kernel.shape[2] == op.inputs[0].shape[-1])  # Not in groups.
    self._with_bias(
      op,
      'Conv2D',
      {
        'filters': kernel.shape[-1],
        'kernel_size': kernel.shape[:2],
        'strides': op.get_attr('strides')[1:3],
        'padding': padding.lower(),
        'dilation_rate': op.get_attr('dilations')[1:3],
        'data_format': 'channels_last',
        'trainable': bool(scope),
      },
      [kernel],
      scope,
    )

  def _dense(self, op: tf.Operation) -> None:
    self._require(op, not (op.get_attr('transpose_a') or op.get_attr('transpose_b')))
    kernel, scope = self._weight(op, 1)
    self._with_bias(op, 'Dense', {'units': kernel.shape[1]}, [kernel], scope)

  def _with_bias(
    self,
    op: tf.Operation,
    kind: str,
    config: Mapping[str, Any],
    weights: list[np.ndarray],
    scope: str,
  ) -> None:
    bias = self._bias(op)
    if bias is not None:
      weights.append(self._constant(bias, 1))
    scope = scope or op.name.rpartition('/')[0]
    name = self._add(op, kind, {**config, 'use_bias': bias is not None}, weights, name=scope)
    if bias is not None:
      self._made[bias.outputs[0].name] = name

  def _batch_norm(self, op: tf.Operation) -> None:
    """Translates batch norm; if the scale is a constant a, x a + b becomes a (x + b / a)."""
    self._require(op, op.get_attr('data_format') == b'NHWC' and not op.get_attr('is_training'))
    scale, is_variable = self._weight(op, 1)
    offset, scope = self._weight(op, 2)
    averages = [self._constant(op, index) for index in (3, 4)]
    config = {
      'momentum': self._learning.batch_norm_decay,
      'epsilon': op.get_attr('epsilon'),
      'scale': bool(is_variable),
    }
    if is_variable:
      self._add(op, 'BatchNormalization', config, [scale, offset, *averages], name=scope)
      return
    factor = scale[0]
    self._require(op, factor != 0 and bool((scale == factor).all()))
    weights = [offset / factor, *averages]
    name = self._add(op, 'BatchNormalization', config, weights, name=scope)
    rescaling = {'scale': float(factor), 'offset': 0.0}
    self._add(op, 'Rescaling', rescaling, name=f'{name}_scale', inputs=[name])

  # Layers without weights.

  def _relu(self, op: tf.Operation) -> None:
    self._non_negative.add(self._add(op, 'Activation', {'activation': 'relu'}))

  def _sigmoid(self, op: tf.Operation) -> None:
    """Translates x sigmoid(x) to swish, which Keras 2 and Keras 3 both have."""
    users = op.outputs[0].consumers()
    factors = [self._layer_of(tensor) for user in users for tensor in user.inputs]
    is_swish = [user.type for user in users] == ['Mul']
    self._require(op, is_swish and self._layer_of(op.inputs[0]) in factors)
    name = self._add(op, 'Activation', {'activation': 'swish'})
    self._made[users[0].outputs[0].name] = name

  def _softmax(self, op: tf.Operation) -> None:
    self._add(op, 'Softmax', {'axis': -1})

  def _arithmetic(self, op: tf.Operation) -> None:
    """Translates arithmetic of activations with one number, or a sum of activations."""
    if all(map(self._layer_of, op.inputs)):
      self._require(op, op.type == 'AddV2')
      self._add(op, 'Add', {})
      return
    index = int(self._layer_of(op.inputs[0]) is not None)
    self._require(op, op.inputs[index].shape.rank == 0)
    number = float(self._constant(op, index))
    if op.type == 'Mul':
      scale, offset = number, 0.0
    elif op.type == 'RealDiv':
      self._require(op, index == 1)
      scale, offset = 1 / number, 0.0
    elif op.type == 'Sub':
      scale, offset = (1.0, -number) if index else (-1.0, number)
    else:
      scale, offset = 1.0, number
    if (scale, offset) == (1, 0):
      self._made[op.outputs[0].name] = self._made[op.inputs[1 - index].name]
    else:
      self._add(op, 'Rescaling', {'scale': scale, 'offset': offset})

  def _pool(self, op: tf.Operation) -> None:
    size, strides = op.get_attr('ksize'), op.get_attr('strides')
    padding = op.get_attr('padding').decode()
    is_plain = (size[0], size[3], strides[0], strides[3]) == (1, 1, 1, 1)
    self._require(op, is_plain and padding in ('SAME', 'VALID'))
    self._require(op, op.get_attr('data_format') == b'NHWC')
    config = {
      'pool_size': size[1:3],
      'strides': strides[1:3],
      'padding': padding.lower(),
      'data_format': 'channels_last',
    }
    kind = {'MaxPool': 'MaxPooling2D', 'AvgPool': 'AveragePooling2D'}[op.type]
    self._keep_sign(self._add(op, kind, config))

  def _pad(self, op: tf.Operation) -> None:
    """Pads with zeros; a max pool's padding may be zero, too, if no input is negative."""
    paddings = self._constant(op, 1).tolist()
    value = float(self._constant(op, 2)) if op.type == 'PadV2' else 0.0
    is_for_maximum = {user.type for user in op.outputs[0].consumers()} == {'MaxPool'}
    is_never_taken = (
      value < 0 and is_for_maximum and self._made[op.inputs[0].name] in (self._non_negative)
    )
    self._require(op, len(paddings) == 4 and not any(paddings[0]))
    self._require(op, value == 0 or is_never_taken)
    _, height, width, channels = paddings
    inputs = None
    if any(height + width):
      config = {'padding': [height, width], 'data_format': 'channels_last'}
      inputs = [self._keep_sign(self._add(op, 'ZeroPadding2D', config))]
    if any(channels):
      # For [batch, height, width, channels] the last two axes are what channels first calls pixels.
      config = {'padding': [[0, 0], channels], 'data_format': 'channels_first'}
      name = f'{op.name}_channels'
      self._keep_sign(self._add(op, 'ZeroPadding2D', config, name=name, inputs=inputs))

  def _concat(self, op: tf.Operation) -> None:
    axis = int(self._constant(op, len(op.inputs) - 1))
    self._require(op, axis in (3, -1) and all(map(self._layer_of, op.inputs[:-1])))
    self._keep_sign(self._add(op, 'Concatenate', {'axis': -1}))

  def _mean(self, op: tf.Operation) -> None:
    axes = sorted(np.ravel(self._constant(op, 1)))
    self._require(op, axes == [1, 2] and not op.get_attr('keep_dims'))
    self._add(op, 'GlobalAveragePooling2D', {'data_format': 'channels_last'})

  def _reshape(self, op: tf.Operation) -> None:
    first, *sizes = self._constant(op, 1).tolist()
    self._require(op, first == -1)
    self._add(op, 'Reshape', {'target_shape': sizes})

  def _keep_sign(self, name: str) -> str:
    """Records that a layer's output is non-negative if its inputs are."""
    if self._non_negative.issuperset(self.layers[name].inputs):
      self._non_negative.add(name)
    return name


_METHODS: dict[str, Callable[[_Translation, tf.Operation], None]] = {
  'AddV2': _Translation._arithmetic,
  'AvgPool': _Translation._pool,
  'Cast': _Translation._pass,
  'ConcatV2': _Translation._concat,
  'Conv2D': _Translation._conv,
  'FusedBatchNormV3': _Translation._batch_norm,
  'Identity': _Translation._pass,
  'IdentityN': _Translation._pass,
  'MatMul': _Translation._dense,
  'MaxPool': _Translation._pool,
  'Mean': _Translation._mean,
  'Mul': _Translation._arithmetic,
  'Pad': _Translation._pad,
  'PadV2': _Translation._pad,
  'Placeholder': _Translation._placeholder,
  'RealDiv': _Translation._arithmetic,
  'Relu': _Translation._relu,
  'Reshape': _Translation._reshape,
  'Sigmoid': _Translation._sigmoid,
  'Softmax': _Translation._softmax,
  'Sub': _Translation._arithmetic,
}
