"""Counts a network's variables, trainable parameters, and multiplications for one image."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf

import model_base
from cifar10.core import sessions
from cifar10.data import info
from cifar10.data.info import DatasetInfo
from cifar10.job import variable_files
from cifar10.options.hparams import HParams
from cifar10.training import network_builder


class NetworkSize(NamedTuple):
  """The size of a network, and of its forward pass in evaluation without test-time views."""

  trainable_parameters: int
  macs: int  # Multiply-accumulates of convolutions and matrix products for one image, as in papers.


def network_size(hparams: HParams, data: DatasetInfo) -> NetworkSize:
  """Builds the network for one image in a separate graph and counts; computes nothing."""
  with _built(hparams, data):
    graph = tf.compat.v1.get_default_graph()
    return NetworkSize(
      sum(variable.shape.num_elements() for variable in tf.compat.v1.trainable_variables()),
      sum(map(_multiplications, graph.get_operations())),
    )


def variable_shapes(hparams: HParams, data: DatasetInfo) -> tuple[dict[str, list[int]], set[str]]:
  """Returns the shapes of all variables of the network by name, and the trained ones' names."""
  with _built(hparams, data):
    trained = {variable.op.name for variable in tf.compat.v1.trainable_variables()}
    variables = tf.compat.v1.global_variables()
    return {variable.op.name: variable.shape.as_list() for variable in variables}, trained


def trained_shapes(hparams: HParams, data: DatasetInfo) -> dict[str, list[int]]:
  """Returns the shapes of the trained variables by name, in the order in which they are made."""
  with _built(hparams, data) as network:
    return {name: value.shape.as_list() for name, value in network.values.items()}


def check_checkpoint(checkpoint: str, named: str, hparams: HParams, data: DatasetInfo) -> None:
  """Raises InputError if a checkpoint that the user named is of another network than the job's."""
  source = variable_files.open_checkpoint(checkpoint, f'--checkpoint {named}')
  shapes, _ = variable_shapes(hparams, data)
  variable_files.check_network(source, shapes, hparams.family.NAME)


@contextlib.contextmanager
def _built(hparams: HParams, data: DatasetInfo) -> Iterator[model_base.Layers]:
  """A context with the network for one image in a separate default graph."""
  plain = dataclasses.replace(hparams, dtype='float32')  # Not yet decided for 'auto'.
  with sessions.side_graph():
    built = network_builder.build(plain, data, is_training=False)
    with tf.compat.v1.variable_scope(hparams.family.NAME):
      built.forward_pass(tf.zeros([1, info.HEIGHT, info.WIDTH, info.DEPTH]))
    yield built


def _multiplications(operation: tf.Operation) -> int:
  """Returns the multiplications for each output: the kernel's height x width x input channels."""
  kind = operation.type
  if kind == 'Conv2D':
    *kernel, _ = operation.inputs[1].shape
    return operation.outputs[0].shape.num_elements() * math.prod(kernel)
  if kind == 'MatMul':
    length = operation.inputs[0].shape[0 if operation.get_attr('transpose_a') else 1]
    return operation.outputs[0].shape.num_elements() * length
  assert not any(word in kind for word in ('Conv', 'MatMul', 'Einsum')), f'{kind} is not counted'
  return 0
