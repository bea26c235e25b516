"""Builds a job's network aside, to count and to check what it has."""

import tensorflow as tf

from cifar10.core import devices
from cifar10.core.errors import InputError
from cifar10.data import manifest
from cifar10.data.manifest import DatasetInfo
from cifar10.networks import families
from cifar10.options.hparams import HParams


def network_size(hparams: HParams, data: DatasetInfo) -> tuple[int, int]:
  """Counts trained parameters, and the multiplications of a forward pass for one image.

  The latter are multiply-accumulates of 2-D convolutions and matrix products, as in papers. Builds
  the network aside; computes nothing.
  """
  graph = _built_aside(hparams, data, 1)
  trained = graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
  options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
  profile = tf.compat.v1.profiler.profile(graph, cmd='op', options={**options, 'output': 'none'})
  operations = 0
  while profile.children:
    [profile] = profile.children  # A chain of the kinds of operations.
    if profile.name.startswith(('Conv2D', 'DepthwiseConv2d', 'MatMul', 'BatchMatMul')):
      operations += profile.float_ops  # An addition for each multiplication.
  return sum(variable.shape.num_elements() for variable in trained), operations // 2


def variable_shapes(hparams: HParams, data: DatasetInfo) -> tuple[dict[str, list[int]], set[str]]:
  """Returns the shapes of all variables of the network by name, and the trained ones' names."""
  graph, keys = _built_aside(hparams, data, None), tf.compat.v1.GraphKeys
  variables = graph.get_collection(keys.GLOBAL_VARIABLES)[1:]  # The first is the global step.
  trained = {variable.op.name for variable in graph.get_collection(keys.TRAINABLE_VARIABLES)}
  return {variable.op.name: variable.shape.as_list() for variable in variables}, trained


class OwnNetworkHook(tf.compat.v1.train.SessionRunHook):
  """Checks a user's network: its evaluation when it is made, the training when its graph is."""

  def __init__(self, hparams: HParams, data: DatasetInfo):
    """Raises InputError if the network fails in evaluation."""
    self._flag = f'--network {hparams.family.PLACE}'
    self._evaluated, _ = variable_shapes(hparams, data)

  def begin(self) -> None:
    """Raises InputError if the evaluation has variables that the training does not have."""
    trained = {each.op.name: each.shape.as_list() for each in tf.compat.v1.global_variables()}
    for name, shape in self._evaluated.items():
      if trained.get(name) != shape:
        found = f'of {trained[name]}' if name in trained else 'missing'
        raise InputError(
          f'{self._flag} has {name} of {shape} in evaluation, which is {found} in training; make '
          "the same in both, by tf.compat.v1.get_variable or a layer's _variable"
        )


def _built_aside(hparams: HParams, data: DatasetInfo, num_images: int | None) -> tf.Graph:
  """Returns a graph with the network, as it evaluates so many images."""
  with devices.side_graph() as graph:
    tf.compat.v1.train.create_global_step()  # A user's network may read it.
    built = families.build(hparams, families.layer_settings(hparams, False), data)
    with tf.compat.v1.variable_scope(hparams.family.NAME):
      shape = [num_images, manifest.HEIGHT, manifest.WIDTH, manifest.DEPTH]
      built.forward_pass(tf.compat.v1.placeholder(tf.as_dtype(hparams.dtype), shape))
  return graph
