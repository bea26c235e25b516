"""A checkpoint's network for inference alone: its variables are constants."""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cifar10.data import shape
from cifar10.data.data_set import Description
from cifar10.inference import folding, keras_layers, serving
from cifar10.options.hparams import HParams
from cifar10.platform import sessions
from cifar10.training import averages, network


class Frozen(NamedTuple):
  """A network from uint8 images to what a server answers."""

  graph: Any  # GraphDef; its nodes that `serving` names are its inputs and outputs.
  unfolded: Any  # The same before batch norm was folded into the convolutions.
  learning: keras_layers.Learning  # What `unfolded` does in training alone.
  values: Mapping[str, np.ndarray]  # float32, of the network's variables.

  @property
  def digest(self) -> str:
    """SHA-256 of the variables: names, shapes and values, in the names' order."""
    digest = hashlib.sha256()
    for name, value in sorted(self.values.items()):
      digest.update(f'{name} {list(value.shape)}\n'.encode())
      digest.update(value.astype('<f4').tobytes())
    return digest.hexdigest()


def freeze(
  hparams: HParams,
  data: Description,
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
  outputs = [serving.CLASSES, serving.PROBABILITIES, serving.FEATURES]
  with sessions.side_graph() as graph:
    sizes = [batch, shape.HEIGHT, shape.WIDTH, shape.DEPTH]
    images = tf.compat.v1.placeholder(tf.uint8, sizes, serving.IMAGES)
    built = network.build(hparams, data, is_training=False)
    with tf.compat.v1.variable_scope(hparams.family.NAME):
      inferred = network.infer(hparams, built, images)
    tf.argmax(inferred.logits, 1, name=serving.CLASSES)
    tf.nn.softmax(inferred.logits, name=serving.PROBABILITIES)
    tf.identity(inferred.features, serving.FEATURES)
    variables = {variable.op.name: variable for variable in tf.compat.v1.global_variables()}
    saver = averages.scaffold().saver if use_ema else tf.compat.v1.train.Saver(variables)
    with tf.compat.v1.Session(config=sessions.session_config()) as session:
      saver.restore(session, checkpoint)
      values = session.run(variables)
      constants = tf.compat.v1.graph_util.convert_variables_to_constants(
        session, graph.as_graph_def(), outputs
      )
  for node in constants.node:  # Of networks that bring gradients of their own: none is wanted here.
    node.attr.pop('_gradient_op_type', None)
  learning = keras_layers.Learning(hparams.batch_norm_decay, built.dropouts)
  return Frozen(folding.folded(constants), constants, learning, values)
