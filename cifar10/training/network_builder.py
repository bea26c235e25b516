"""Builds a job's network from its hyper-parameters, and classifies images with it."""

import tensorflow as tf

import model_base
from cifar10.data import input_pipeline
from cifar10.data.info import DatasetInfo
from cifar10.inference import tta
from cifar10.inference.predictions import Inferred
from cifar10.networks import families
from cifar10.networks.fastnet import Prepared
from cifar10.options.hparams import HParams


def build(
  hparams: HParams,
  data: DatasetInfo,
  *,
  is_training: bool,
  data_format: str = 'channels_last',
  prepared: Prepared | None = None,
) -> model_base.Layers:
  """Returns the network, whose `forward_pass` makes its layers in the default graph.

  Args:
    hparams: the network's; `dtype` is one of TensorFlow's, not 'auto'.
    data: the data set that it classifies.
    is_training: as in model_base.LayerSettings, like `data_format`.
    prepared: returned by `families.prepare`; not needed where a checkpoint has the values.
  """
  settings = layer_settings(hparams, is_training, data_format)
  network = families.build(hparams.family, settings, data, prepared)
  network.freeze(hparams.freeze)
  return network


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
  )


def infer(hparams: HParams, network: model_base.Layers, images: tf.Tensor) -> Inferred:
  """Normalises uint8 images [n, 32, 32, 3] and classifies them; batch norm uses moving averages."""

  def classify(seen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    logits = network.forward_pass(input_pipeline.normalise(seen, tf.as_dtype(hparams.dtype)))
    # The input of the last layer is not known of every network of a user's own.
    return logits, logits if network.features is None else network.features

  if hparams.tta != 'none':
    return tta.infer(classify, images, hparams.tta, hparams.tta_below)
  logits, features = classify(images)
  return Inferred(logits, logits, features)
