"""A checkpoint's network for inference alone: its variables are constants."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.core import parts, sessions
from cifar10.data import info
from cifar10.data.info import DatasetInfo
from cifar10.exporters import fold_batch_norm
from cifar10.inference import predictions
from cifar10.options.hparams import HParams
from cifar10.training import network_builder

SAVED_MODEL = 'saved_model.pb'  # Without it a folder is no SavedModel.


class Learning(NamedTuple):
  """What a network does in training alone, so that its graph for inference does not say it."""

  batch_norm_decay: float
  dropouts: Mapping[str, float]  # The rates, by the operations' names.


class Frozen(NamedTuple):
  """A network from uint8 images to what a server answers."""

  graph: Any  # GraphDef; its nodes that `serving` names are its inputs and outputs.
  unfolded: Any  # The same before batch norm was folded into the convolutions.
  learning: Learning  # What `unfolded` does in training alone.
  values: Mapping[str, np.ndarray]  # float32, of the network's variables.

  @property
  def digest(self) -> str:
    """SHA-256 of the variables: names, shapes and values, in the names' order."""
    digest = hashlib.sha256()
    for name, value in sorted(self.values.items()):
      digest.update(f'{name} {list(value.shape)}\n'.encode())
      digest.update(value.astype('<f4').tobytes())
    return digest.hexdigest()


class Format(NamedTuple):
  """A form in which others read networks."""

  # Writes a file or a folder at a path; the last argument says what it was made from.
  write: Callable[[str, Frozen, Mapping[str, Any]], None]
  check: Callable[[], None] = lambda: None  # Raises InputError where a library is missing.
  suffix: str = ''
  dtype: str = ''  # '': the job's.
  has_views: bool = True  # Whether a network may average the views of --tta.


def freeze(
  hparams: HParams,
  data: DatasetInfo,
  checkpoint: str,
  *,
  use_ema: bool = False,
  batch: int | None = None,
) -> Frozen:
  """Reads a checkpoint; batch norm is folded into the convolutions.

  Args:
    hparams: the job's; with `tta` the probabilities are those of the views' mean logits.
    data: what it classifies.
    checkpoint: its variables.
    use_ema: the averages in their place.
    batch: how many images a call has; None: any number.
  """
  outputs = [predictions.CLASSES, predictions.PROBABILITIES, predictions.FEATURES]
  with sessions.side_graph() as graph:
    sizes = [batch, info.HEIGHT, info.WIDTH, info.DEPTH]
    images = tf.compat.v1.placeholder(tf.uint8, sizes, predictions.IMAGES)
    built = network_builder.build(hparams, data, is_training=False)
    with tf.compat.v1.variable_scope(hparams.family.NAME):
      inferred = network_builder.infer(hparams, built, images)
    tf.argmax(inferred.logits, 1, name=predictions.CLASSES)
    tf.nn.softmax(inferred.logits, name=predictions.PROBABILITIES)
    tf.identity(inferred.features, predictions.FEATURES)
    variables = {variable.op.name: variable for variable in tf.compat.v1.global_variables()}
    averages = parts.load('ema').scaffold().saver if use_ema else None
    saver = averages or tf.compat.v1.train.Saver(variables)
    with tf.compat.v1.Session(config=sessions.session_config()) as session:
      saver.restore(session, checkpoint)
      values = session.run(variables)
      constants = tf.compat.v1.graph_util.convert_variables_to_constants(
        session, graph.as_graph_def(), outputs
      )
  for node in constants.node:  # Of networks that bring gradients of their own: none is wanted here.
    node.attr.pop('_gradient_op_type', None)
  learning = Learning(hparams.batch_norm_decay, built.dropouts)
  return Frozen(fold_batch_norm.folded(constants), constants, learning, values)
