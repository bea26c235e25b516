"""A job's network, made of its hyper-parameters, and what it says of images."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

import model_base
from cifar10.data import dataset
from cifar10.data.data_set import Description
from cifar10.inference import views
from cifar10.networks.family import LayerSettings
from cifar10.options.hparams import HParams


class Beginning(NamedTuple):
  """What the network of a new job starts from."""

  prepared: Any = None  # From the family's `prepare`.
  initializers: Mapping[str, Any] = {}  # By the variables' names; others have their layers'.


NOWHERE = Beginning()


class Inferred(NamedTuple):
  """What a network says of n images."""

  logits: tf.Tensor  # float32 [n, classes], the mean over --tta's views of an image
  own_logits: tf.Tensor  # float32 [n, classes], of the image itself
  features: tf.Tensor  # float32 [n, width], what the last layer is given for the image itself


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


def infer(hparams: HParams, network: model_base.Layers, images: tf.Tensor) -> Inferred:
  """Normalises uint8 images [n, 32, 32, 3] and classifies them, by the moving averages."""
  seen = views.test_views(images, hparams.tta)
  logits = network.forward_pass(dataset.normalise(seen, tf.as_dtype(hparams.dtype)))
  count = tf.shape(images)[0]
  return Inferred(
    views.mean_of_views(logits, hparams.tta), logits[:count], network.features[:count]
  )
