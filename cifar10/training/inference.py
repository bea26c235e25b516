"""What a network answers for images, of one view of each or of several (test-time augmentation)."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from cifar10.data import input_pipeline
from cifar10.data.augmentation import mirror
from cifar10.options.hparams import HParams
from model_base import Layers

# The inputs and outputs of exported networks.
IMAGES = 'images'  # uint8 [n, 32, 32, 3]
ENCODED = 'encoded'  # string [n]: bytes of PNG or JPEG files of any size
CLASSES = 'classes'  # int64 [n]
PROBABILITIES = 'probabilities'  # float32 [n, classes]
FEATURES = 'features'  # float32 [n, width]: the input of the last layer
# Shifts in pixels down and right, by --tta; each shifted view is also mirrored.
_MOVES = {
  'mirror': (),
  'mirror+shift': ((-1, -1), (1, 1)),  # Jordan 2024, section 3.5.
  'mirror+8shifts': tuple((y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0)),
}


class Inferred(NamedTuple):
  """A network's outputs for n images."""

  logits: tf.Tensor  # float32 [n, classes], the mean over the views of --tta
  own_logits: tf.Tensor  # float32 [n, classes], of the images alone
  features: tf.Tensor  # float32 [n, width], the input of the last layer for the images alone


def infer(hparams: HParams, network: Layers, images: tf.Tensor, chunk: int = 0) -> Inferred:
  """Normalises uint8 images [n, 32, 32, 3] and classifies them; batch norm uses moving averages.

  With --tta an image has further views if its likeliest class is less probable than --tta-below.
  The network sees `chunk` images or views at a time, black ones in the last; 0: all at once.
  """

  def classify(seen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    logits = network.forward_pass(input_pipeline.normalise(seen, tf.as_dtype(hparams.dtype)))
    # The input of the last layer is not known of every network of a user's own.
    return logits, logits if network.features is None else network.features

  def by_chunks(seen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    count, scope = tf.shape(seen)[0], tf.compat.v1.get_variable_scope()
    filled = tf.pad(seen, [[0, -count % chunk], [0, 0], [0, 0], [0, 0]])
    chunks = tf.reshape(filled, [-1, chunk, *seen.shape[1:]])
    with tf.compat.v1.variable_scope(scope):  # Never run: it makes variables, outside of the loop.
      kinds = tuple(each.dtype for each in classify(chunks[0]))
    values = dict(network.values)
    summaries = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.SUMMARIES)
    outside = len(summaries)
    with tf.compat.v1.variable_scope(scope, reuse=True):  # One by one, or memory might not do.
      answers = tf.map_fn(classify, chunks, parallel_iterations=1, fn_output_signature=kinds)
    network.values = values  # The loop's own cannot be used outside.
    del summaries[outside:]
    return tuple(tf.reshape(each, [-1, each.shape[2]])[:count] for each in answers)

  answer = by_chunks if chunk else classify
  if hparams.tta == 'none':
    logits, features = answer(images)
    return Inferred(logits, logits, features)
  if hparams.tta_below < 1:
    return _infer_the_doubtful(hparams, answer, images)
  logits, features = answer(tf.concat([images, further_views(images, hparams.tta)], 0))
  count = tf.shape(images)[0]
  return Inferred(mean_of_views(logits, hparams.tta), logits[:count], features[:count])


def _infer_the_doubtful(
  hparams: HParams, classify: Callable[..., tuple[tf.Tensor, tf.Tensor]], images: tf.Tensor
) -> Inferred:
  """Classifies all images, and by further views those of which the network is less sure."""
  # Entered anew for each pass, so that layers without a name are numbered alike in both.
  scope = tf.compat.v1.get_variable_scope()
  with tf.compat.v1.variable_scope(scope):
    own_logits, features = classify(images)
  certainty = tf.reduce_max(tf.nn.softmax(own_logits), 1)
  is_doubtful = certainty < hparams.tta_below
  # The least certain one always has views (they may not count): an empty batch would fail.
  is_least = tf.equal(tf.range(tf.size(certainty)), tf.argmin(certainty, output_type=tf.int32))
  rows = tf.where(is_doubtful | is_least)  # int64 [m, 1]
  with tf.compat.v1.variable_scope(scope, reuse=True):
    further_logits, _ = classify(further_views(tf.gather_nd(images, rows), hparams.tta))
  mean = mean_of_views(tf.concat([tf.gather_nd(own_logits, rows), further_logits], 0), hparams.tta)
  means = tf.tensor_scatter_nd_update(own_logits, rows, mean)
  return Inferred(tf.where(is_doubtful[:, tf.newaxis], means, own_logits), own_logits, features)


def further_views(images: tf.Tensor, tta: str) -> tf.Tensor:
  """Returns the images shifted by a pixel as `tta` says, then all mirrored, view by view.

  They are uint8 [n, 32, 32, 3] and [views * n, 32, 32, 3].
  """
  height, width = images.shape[1:3]
  padded = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]], 'REFLECT')
  moved = [
    padded[:, 1 - down : 1 - down + height, 1 - right : 1 - right + width]
    for down, right in _MOVES[tta]
  ]
  return tf.concat([*moved, *map(mirror, [images, *moved])], 0)


def mean_of_views(logits: tf.Tensor, tta: str) -> tf.Tensor:
  """Averages logits of images and views: float32 [views * n, classes] -> [n, classes].

  Shifted views count half.
  """
  weights = 2 * [2, *(1 for _ in _MOVES[tta])]
  by_view = tf.reshape(logits, [len(weights), -1, logits.shape[1]])
  shares = tf.constant(weights, logits.dtype) / sum(weights)
  return tf.tensordot(shares, by_view, 1)
