"""The convolutions of a graph, each by itself: the sum of their times is the limit of its step."""

import collections
import math
import statistics
import time

import tensorflow as tf

_TYPES = ('Conv2D', 'Conv2DBackpropInput', 'Conv2DBackpropFilter')
_WARM_UP, _RUNS = 3, 9
# Seconds: a run repeats a fast convolution until it takes about this long, beside which the run's
# own overhead is small.
_LONG_RUN = 0.02
_MOST_COPIES = 64


def seconds(target: tf.Operation) -> float:
  """The sum over the convolutions that `target` needs of each shape's median time, run alone.

  Args:
    target: of a graph whose shapes are static, the batch's size too.

  Raises:
    ValueError: a shape is not.
  """
  found = {target}
  waiting = [target]
  while waiting:
    op = waiting.pop()
    before = {*(tensor.op for tensor in op.inputs), *op.control_inputs} - found
    found |= before
    waiting += before
  counts = collections.Counter(_description(op) for op in found if op.type in _TYPES)
  return sum(count * _alone(description) for description, count in counts.items())


def _description(op: tf.Operation) -> tuple:
  """What determines a convolution's time: hashable, so that equal ones are measured once."""
  inputs = []
  for tensor in op.inputs:
    if not tensor.shape.is_fully_defined():
      raise ValueError(f'{tensor.name} has the shape {tensor.shape}, which is not static')
    # A shape as an input counts by its value.
    is_shape = tensor.dtype == tf.int32
    inputs.append(('sizes', *_sizes(tensor)) if is_shape else tuple(tensor.shape))
  attributes = {
    name: op.get_attr(name) for name in ('strides', 'padding', 'explicit_paddings', 'data_format')
  }
  listed = tuple(
    (name, tuple(value) if isinstance(value, list) else value.decode())
    for name, value in attributes.items()
  )
  return op.type, op.get_attr('T'), tuple(inputs), listed


def _sizes(tensor: tf.Tensor) -> tuple[int, ...]:
  """The value of a shape tensor; gradients make several with one operation."""
  if tensor.op.type == 'ShapeN':
    return tuple(tensor.op.inputs[tensor.value_index].shape)
  return tuple(map(int, tf.get_static_value(tensor)))


def _alone(description: tuple) -> float:
  """Seconds of one convolution on random input."""
  copies = min(_MOST_COPIES, math.ceil(_LONG_RUN / _run(description, 1)))
  return (_run(description, copies) - _run(description, 0)) / copies


def _run(description: tuple, copies: int) -> float:
  """The median seconds of a session's run of the convolution, `copies` times in sequence."""
  kind, dtype, shapes, listed = description
  with tf.Graph().as_default():
    arguments = []
    for number, shape in enumerate(shapes):
      if shape[0] == 'sizes':
        arguments.append(tf.constant(shape[1:]))
        continue
      # Read from a variable: a constant's product would be computed once and for all.
      initial = tf.cast(tf.random.normal(shape), dtype)
      variable = tf.compat.v1.get_variable(f'input{number}', initializer=initial, use_resource=True)
      arguments.append(variable.read_value())
    named = dict(zip(_ARGUMENTS[kind], arguments))
    named |= {name: list(value) if isinstance(value, tuple) else value for name, value in listed}
    op = tf.no_op()
    for _ in range(copies):
      with tf.control_dependencies([op]):
        op = getattr(tf.raw_ops, kind)(**named).op
    times = []
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True  # It would drop the copies.
    with tf.compat.v1.Session(config=config) as session:
      session.run(tf.compat.v1.global_variables_initializer())
      for _ in range(_WARM_UP + _RUNS):
        since = time.perf_counter()
        session.run(op)
        times.append(time.perf_counter() - since)
  return statistics.median(times[_WARM_UP:])


_ARGUMENTS = {
  'Conv2D': ('input', 'filter'),
  'Conv2DBackpropInput': ('input_sizes', 'filter', 'out_backprop'),
  'Conv2DBackpropFilter': ('input', 'filter_sizes', 'out_backprop'),
}
