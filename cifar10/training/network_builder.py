"""A job's network, made of its hyper-parameters, and what it says of images."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

import model_base
from cifar10.data import input_pipeline
from cifar10.data.info import DatasetInfo
from cifar10.inference import tta
from cifar10.options.hparams import HParams


class Initialization(NamedTuple):
  """What the network of a new job starts from."""

  prepared: Any = None  # From the family's `prepare`.
  initializers: Mapping[str, Any] = {}  # By the variables' names; others have their layers'.


DEFAULT_INIT = Initialization()


class Inferred(NamedTuple):
  """What a network says of n images."""

  logits: tf.Tensor  # float32 [n, classes], the mean over the views that --tta has of an image
  own_logits: tf.Tensor  # float32 [n, classes], of the image itself
  features: tf.Tensor  # float32 [n, width], what the last layer is given for the image itself


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
  settings = _settings(hparams, is_training, data_format)
  if batch_norm_decay is not None:
    settings = settings._replace(batch_norm_decay=batch_norm_decay)
  network = hparams.family.build(settings, data, beginning.prepared)
  network.freeze(hparams.freeze)
  network.start_from(beginning.initializers)
  return network


def build_proxy(
  hparams: HParams,
  data: DatasetInfo,
  *,
  data_format: str,
  beginning: Initialization = DEFAULT_INIT,
) -> model_base.Layers | None:
  """The small network that chooses what the other one learns from, where the family has one.

  Arguments are as for `build`. It starts anew and freezes nothing, whatever the other one does.
  """
  settings = _settings(hparams, True, data_format)
  return hparams.family.build_proxy(settings, data, beginning.prepared)


def _settings(hparams: HParams, is_training: bool, data_format: str) -> model_base.LayerSettings:
  return model_base.LayerSettings(
    is_training=is_training,
    data_format=data_format,
    batch_norm_decay=hparams.batch_norm_decay,
    batch_norm_epsilon=hparams.batch_norm_epsilon,
    dtype=tf.as_dtype(hparams.dtype),
  )


def infer(hparams: HParams, network: model_base.Layers, images: tf.Tensor) -> Inferred:
  """Normalises uint8 images [n, 32, 32, 3] and classifies them, by the moving averages."""

  def classify(seen: tf.Tensor) -> tf.Tensor:
    return network.forward_pass(input_pipeline.normalise(seen, tf.as_dtype(hparams.dtype)))

  if hparams.tta == 'none' or hparams.tta_below == 1:
    logits = classify(tta.test_views(images, hparams.tta))
    count = tf.shape(images)[0]
    mean = tta.mean_of_views(logits, hparams.tta)
    return Inferred(mean, logits[:count], network.features[:count])
  own_logits = classify(images)
  features = network.features
  certainty = tf.reduce_max(tf.nn.softmax(own_logits), 1)
  is_doubtful = certainty < hparams.tta_below
  # The least certain one always, though what it gives may not count: an empty batch would fail.
  is_least = tf.equal(tf.range(tf.size(certainty)), tf.argmin(certainty, output_type=tf.int32))
  rows = tf.where(is_doubtful | is_least)  # int64 [m, 1]
  further = tta.further_views(tf.gather_nd(images, rows), hparams.tta)
  with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), reuse=True):
    logits = tf.concat([tf.gather_nd(own_logits, rows), classify(further)], 0)
  mean = tta.mean_of_views(logits, hparams.tta)
  means = tf.tensor_scatter_nd_update(own_logits, rows, mean)
  return Inferred(tf.where(is_doubtful[:, tf.newaxis], means, own_logits), own_logits, features)
