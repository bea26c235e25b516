"""A user's own network, of --network module:NAME: builds it and checks it.

How to write one: docs/python.md, "A network of your own".
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

import model_base
from cifar10.core.errors import InputError
from cifar10.data.manifest import DatasetInfo
from cifar10.options.families import Family, own_code

WEIGHT = 'weight'  # Role of a function's trained variables that are no convolution kernels.


def build(
  family: Family, settings: model_base.LayerSettings, data: DatasetInfo
) -> model_base.Layers:
  """Returns a user's own network, whose `forward_pass` is checked.

  Raises InputError where the user's code fails, returns no logits, or makes what nothing would
  train or minimise; here, or in `forward_pass`, whose logits are float32.
  """
  naming = own_code(family)
  network: Any = naming(family.NETWORK or _FunctionLayers)(family, settings, data)
  forward_pass, named = naming(network.forward_pass), f'--network {family.PLACE}'

  def checked(images: tf.Tensor) -> tf.Tensor:
    before = _trained_and_minimised()
    logits = forward_pass(images)
    wanted = tf.TensorShape([images.shape[0], data.num_classes])
    is_right = isinstance(logits, tf.Tensor) and logits.dtype.is_floating
    if not (is_right and logits.shape.rank == 2 and logits.shape.is_compatible_with(wanted)):
      raise InputError(
        f'{named} returns {getattr(logits, "shape", type(logits).__name__)}; it must return '
        f'logits, a float tensor of the shape [images, {data.num_classes}]'
      )
    if network._is_training:  # Older jobs may have what is refused.
      if others := sorted(_trained_and_minimised() - before - set(network.roles)):
        raise InputError(
          f'{named} makes {others[0]}, which nothing would train or minimise; make variables by '
          "tf.compat.v1.get_variable or a layer's _variable, not by Keras, and for a regularizer "
          'give --weight-decay'
        )
      if not network.values:
        raise InputError(f'{named} has no variable to train: none by tf.compat.v1.get_variable')
    return tf.cast(logits, tf.float32)

  network.forward_pass = checked
  return network


def _trained_and_minimised() -> set[str]:
  """Returns the names of the variables that are to be trained, and of the losses beside ours."""
  keys, get = tf.compat.v1.GraphKeys, tf.compat.v1.get_collection
  listed = (keys.TRAINABLE_VARIABLES, keys.REGULARIZATION_LOSSES, keys.LOSSES)
  return {each.op.name for key in listed for each in get(key)}


class _FunctionLayers(model_base.FamilyNetwork):
  """Builds the network of a function, and records its variables and operations."""

  def forward_pass(self, x: tf.Tensor, input_data_format: str = 'channels_last') -> tf.Tensor:
    self.values = {}
    scope, getter = tf.compat.v1.get_variable_scope(), self._get_variable
    updates = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.UPDATE_OPS)
    before = len(updates)
    with (
      tf.compat.v1.device(_beside_their_variables),
      tf.compat.v1.variable_scope(scope, custom_getter=getter, auxiliary_name_scope=False),
    ):
      logits = self._options.FUNCTION(x, self._is_training, self._num_classes)
    # Operations are named after their towers, whose updates are found so. The result of
    # `variable.assign` is named after the variable, which all towers share.
    updates[before:] = [getattr(update, 'op', update) for update in updates[before:]]
    return logits

  def _get_variable(
    self, getter: Callable[..., tf.Variable], name: str, *args: Any, **settings: Any
  ) -> tf.Tensor | tf.Variable:
    """Replaces tf.compat.v1.get_variable: makes float32 variables, reads them in the wanted dtype.

    A trained variable is returned as its value, like by `Layers._variable`.
    """
    initial = settings.get('initializer')
    if initial is not None and not callable(initial):  # A value, of the variable's type and shape.
      value = tf.convert_to_tensor(initial)
      settings['shape'] = value.shape
      # Not of `value`: the initializer may be called outside of a function that this is within.
      settings['initializer'] = lambda shape, dtype=None: tf.cast(initial, dtype)
      if not value.dtype.is_floating:
        settings['dtype'] = value.dtype
    dtype = tf.as_dtype(settings.get('dtype') or tf.float32)
    trainable = settings.get('trainable') is not False and dtype.is_floating
    trainable = trainable and not (self._frozen and self._frozen.search(name))
    # The network uses the variable more than once. Without `reuse` TensorFlow refuses that.
    if trainable and settings.get('reuse') and name in self.values:
      return tf.cast(self.values[name], dtype)
    settings |= {'use_resource': True, 'trainable': trainable}  # Also after disable_v2_behavior.
    if dtype.is_floating:
      settings['dtype'] = tf.float32
    if not trainable:
      settings['collections'] = model_base.UNTRAINED
    variable = getter(name, *args, **settings)
    is_kernel = variable.shape.rank == 4
    role = (model_base.CONVOLUTION if is_kernel else WEIGHT) if trainable else model_base.AVERAGE
    read = self._read(variable, role, trainable)
    return read if variable.dtype.base_dtype == dtype else tf.cast(read, dtype)


def _beside_their_variables(op: tf.Operation) -> str:
  """Returns an operation's device; an update runs on its variable's device."""
  is_update = op.type.startswith('Assign') and op.type.endswith('VariableOp')
  return op.inputs[0].op.device if is_update and op.inputs else op.device
