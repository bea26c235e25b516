"""A job's network, made of its hyper-parameters."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

import model_base
from cifar10.data.data_set import Description
from cifar10.networks.family import LayerSettings
from cifar10.options.hparams import HParams


class Beginning(NamedTuple):
  """What the network of a new job starts from."""

  prepared: Any = None  # From the family's `prepare`.
  initializers: Mapping[str, Any] = {}  # By the variables' names; others have their layers'.


NOWHERE = Beginning()


def build(
  hparams: HParams,
  data: Description,
  *,
  is_training: bool,
  data_format: str = 'channels_last',
  batch_norm_decay: Any = None,
  beginning: Beginning = NOWHERE,
) -> model_base.Layers:
  """The network, whose `forward_pass` makes its layers in the default graph.

  Args:
    hparams: which one; `dtype` is one of TensorFlow's, not 'auto'.
    data: what it classifies.
    is_training: as in model_base.Layers, and `data_format`, too.
    batch_norm_decay: float or scalar tensor, in place of the hyper-parameter.
    beginning: what it starts from where no checkpoint is restored.
  """
  settings = LayerSettings(
    is_training=is_training,
    data_format=data_format,
    batch_norm_decay=hparams.batch_norm_decay if batch_norm_decay is None else batch_norm_decay,
    batch_norm_epsilon=hparams.batch_norm_epsilon,
    dtype=tf.as_dtype(hparams.dtype),
  )
  network = hparams.family.build(settings, data, beginning.prepared)
  network.freeze(hparams.freeze)
  network.start_from(beginning.initializers)
  return network
