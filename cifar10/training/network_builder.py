"""A job's network, made of its hyper-parameters, and what it says of images."""

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
  """What the network of a new job starts from."""

  prepared: Any = None  # From the family's `prepare`.
  initializers: Mapping[str, Any] = {}  # By the variables' names; others have their layers'.


DEFAULT_INIT = Initialization()


def build(
  hparams: HParams,
  data: DatasetInfo,
  *,
  is_training: bool,
  data_format: str = 'channels_last',
  batch_norm_decay: Any = None,
  beginning: Initialization = DEFAULT_INIT,
) -> model_base.Layers:
  """The network, whose `forward_pass` makes its layers in the default graph.

  Args:
    hparams: which one; `dtype` is one of TensorFlow's, not 'auto'.
    data: what it classifies.
    is_training: as in model_base.Layers, and `data_format`, too.
    batch_norm_decay: float or scalar tensor, in place of the hyper-parameter.
    beginning: what it starts from where no checkpoint is restored.
  """
  settings = layer_settings(hparams, is_training, data_format)
  if batch_norm_decay is not None:
    settings = settings._replace(batch_norm_decay=batch_norm_decay)
  network = hparams.family.build(settings, data, beginning.prepared)
  network.freeze(hparams.freeze)
  network.start_from(beginning.initializers)
  return network


def layer_settings(
  hparams: HParams, is_training: bool, data_format: str
) -> model_base.LayerSettings:
  """What all layers of a network have in common; arguments are as for `build`."""
  return model_base.LayerSettings(
    is_training=is_training,
    data_format=data_format,
    batch_norm_decay=hparams.batch_norm_decay,
    batch_norm_epsilon=hparams.batch_norm_epsilon,
    dtype=tf.as_dtype(hparams.dtype),
  )


def infer(hparams: HParams, network: model_base.Layers, images: tf.Tensor) -> Inferred:
  """Normalises uint8 images [n, 32, 32, 3] and classifies them, by the moving averages."""

  def classify(seen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    logits = network.forward_pass(input_pipeline.normalise(seen, tf.as_dtype(hparams.dtype)))
    return logits, network.features

  if hparams.tta != 'none':
    return parts.load('tta').infer(classify, images, hparams.tta, hparams.tta_below)
  logits, features = classify(images)
  return Inferred(logits, logits, features)
