"""Builds a network aside: counts variables and multiplications, checks a user's in evaluation."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

import model_base
from cifar10.core import sessions
from cifar10.core.errors import InputError
from cifar10.data import info
from cifar10.data.info import DatasetInfo
from cifar10.job import variable_files
from cifar10.options.hparams import HParams
from cifar10.training import network_builder


class NetworkSize(NamedTuple):
  """The size of a network, and of its forward pass in evaluation without test-time views."""

  trainable_parameters: int
  # Multiply-accumulates of convolutions and matrix products for one image, as in papers; None where
  # a user's network has others, of these kinds.
  macs: int | None
  uncounted: Sequence[str] = ()


def network_size(hparams: HParams, data: DatasetInfo) -> NetworkSize:
  """Builds the network for one image in a separate graph and counts; computes nothing."""
  with _built(hparams, data):
    operations = tf.compat.v1.get_default_graph().get_operations()
    counts = {operation: _multiplications(operation) for operation in operations}
    uncounted = sorted({operation.type for operation, n in counts.items() if n is None})
    return NetworkSize(
      sum(variable.shape.num_elements() for variable in tf.compat.v1.trainable_variables()),
      None if uncounted else sum(filter(None, counts.values())),
      uncounted,
    )


def variable_shapes(hparams: HParams, data: DatasetInfo) -> tuple[dict[str, list[int]], set[str]]:
  """Returns the shapes of all variables of the network by name, and the trained ones' names."""
  with _built(hparams, data):
    trained = {variable.op.name for variable in tf.compat.v1.trainable_variables()}
    step = tf.compat.v1.train.get_global_step()
    variables = [each for each in tf.compat.v1.global_variables() if each is not step]
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


def check_evaluation(hparams: HParams, data: DatasetInfo) -> None:
  """Checks a user's network before its training, whose graph is the default one.

  Raises:
    InputError: it fails in evaluation, or has variables there that the training does not have.
  """
  trained = {variable.op.name: variable.shape.as_list() for variable in _all_variables()}
  with _built(hparams, data, num_images=None):
    for variable in _all_variables():
      name, shape = variable.op.name, variable.shape.as_list()
      if trained.get(name) != shape:
        found = f'of {trained[name]}' if name in trained else 'missing'
        raise InputError(
          f'--network {hparams.family.PLACE} has {name} of {shape} in evaluation, which is {found} '
          "in training; make the same in both, by tf.compat.v1.get_variable or a layer's _variable"
        )


def _all_variables() -> list[Any]:
  return tf.compat.v1.global_variables() + tf.compat.v1.local_variables()


@contextlib.contextmanager
def _built(
  hparams: HParams, data: DatasetInfo, num_images: int | None = 1
) -> Iterator[model_base.Layers]:
  """A context with the network, as it evaluates so many images, in a separate default graph."""
  plain = dataclasses.replace(hparams, dtype='float32')  # Not yet decided for 'auto'.
  with sessions.side_graph():
    tf.compat.v1.train.create_global_step()  # A user's network may read it.
    built = network_builder.build(plain, data, is_training=False)
    with tf.compat.v1.variable_scope(hparams.family.NAME):
      shape = [num_images, info.HEIGHT, info.WIDTH, info.DEPTH]
      built.forward_pass(tf.compat.v1.placeholder(tf.float32, shape))
    yield built


def _multiplications(operation: tf.Operation) -> int | None:
  """Returns an operation's outputs times the multiplications for each; None: it is not known."""
  kind = operation.type
  if kind in ('Conv2D', 'DepthwiseConv2dNative'):
    height, width, channels, _ = operation.inputs[1].shape
    each = height * width * (channels if kind == 'Conv2D' else 1)
  elif kind in ('MatMul', 'BatchMatMulV2'):
    is_turned = operation.get_attr('transpose_a' if kind == 'MatMul' else 'adj_x')
    each = operation.inputs[0].shape[-2 if is_turned else -1]
  else:
    return None if any(word in kind for word in ('Conv', 'MatMul', 'Einsum')) else 0
  return operation.outputs[0].shape.num_elements() * each
