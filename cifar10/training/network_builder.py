"""Builds a job's network from its hyper-parameters, and classifies images with it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

import model_base
from cifar10.core import parts
from cifar10.data import input_pipeline
from cifar10.data.info import DatasetInfo
from cifar10.inference.predictions import Inferred
from cifar10.options.hparams import HParams


class Initialization(NamedTuple):
  """The initial values of a new job's network."""

  prepared: Any = None  # Returned by the family's `prepare`.
  initializers: Mapping[str, Any] = {}  # By variable name; others have their layers'.


DEFAULT_INIT = Initialization()


def build(
  hparams: HParams,
  data: DatasetInfo,
  *,
  is_training: bool,
  data_format: str = 'channels_last',
  beginning: Initialization = DEFAULT_INIT,
) -> model_base.Layers:
  """Returns the network, whose `forward_pass` makes its layers in the default graph.

  Args:
    hparams: the network's; `dtype` is one of TensorFlow's, not 'auto'.
    data: the data set that it classifies.
    is_training: as in model_base.Layers, like `data_format`.
    beginning: the initial values if no checkpoint is restored.
  """
  settings = layer_settings(hparams, is_training, data_format)
  settings = settings._replace(initializers=beginning.initializers)
  return hparams.family.build(settings, data, beginning.prepared)


def layer_settings(
  hparams: HParams, is_training: bool, data_format: str = 'channels_last'
) -> model_base.LayerSettings:
  """Returns the settings that all layers of a network share; for the arguments see `build`."""
  return model_base.LayerSettings(
    is_training=is_training,
    data_format=data_format,
    batch_norm_decay=hparams.batch_norm_decay,
    batch_norm_epsilon=hparams.batch_norm_epsilon,
    dtype=tf.as_dtype(hparams.dtype),
    frozen=hparams.freeze,
  )


def infer(hparams: HParams, network: model_base.Layers, images: tf.Tensor) -> Inferred:
  """Normalises uint8 images [n, 32, 32, 3] and classifies them; batch norm uses moving averages."""

  def classify(seen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    logits = network.forward_pass(input_pipeline.normalise(seen, tf.as_dtype(hparams.dtype)))
    # The input of the last layer is not known of every network of a user's own.
    return logits, logits if network.features is None else network.features

  if hparams.tta != 'none':
    return parts.load('tta').infer(classify, images, hparams.tta, hparams.tta_below)
  logits, features = classify(images)
  return Inferred(logits, logits, features)
