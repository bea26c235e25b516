"""Test-time augmentation (TTA): averages the logits of several views of each test image."""

from collections.abc import Callable

import tensorflow as tf

from cifar10.data.augmentation import mirror
from cifar10.inference.predictions import Inferred

# Shifts in pixels down and right; each shifted view is also mirrored.
_MOVES = {
  'mirror': (),
  'mirror+shift': ((-1, -1), (1, 1)),
  'mirror+8shifts': tuple(
    (down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if (down, right) != (0, 0)
  ),
}
_IMAGE_WEIGHT = 2  # The weight of the unshifted image; a shifted one has 1.


def infer(
  classify: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
  images: tf.Tensor,
  tta: str,
  below: float,
) -> Inferred:
  """Classifies images by several views of each, or of those that the network is unsure of.

  Args:
    classify: uint8 [n, 32, 32, 3] -> logits [n, classes], features [n, width].
    images: uint8 [n, 32, 32, 3].
    tta: as in `further_views`.
    below: an image has further views if its likeliest class is less probable; 1: all images.
  """
  if below == 1:
    logits, features = classify(tf.concat([images, further_views(images, tta)], 0))
    count = tf.shape(images)[0]
    mean = mean_of_views(logits, tta)
    return Inferred(mean, logits[:count], features[:count])
  # Entered anew for each pass, so that layers without a name are numbered alike in both.
  scope = tf.compat.v1.get_variable_scope()
  with tf.compat.v1.variable_scope(scope):
    own_logits, features = classify(images)
  certainty = tf.reduce_max(tf.nn.softmax(own_logits), 1)
  is_doubtful = certainty < below
  # The least certain one always has views (they may not count): an empty batch would fail.
  is_least = tf.equal(tf.range(tf.size(certainty)), tf.argmin(certainty, output_type=tf.int32))
  rows = tf.where(is_doubtful | is_least)  # int64 [m, 1]
  further = further_views(tf.gather_nd(images, rows), tta)
  with tf.compat.v1.variable_scope(scope, reuse=True):
    further_logits, _ = classify(further)
  mean = mean_of_views(tf.concat([tf.gather_nd(own_logits, rows), further_logits], 0), tta)
  means = tf.tensor_scatter_nd_update(own_logits, rows, mean)
  return Inferred(tf.where(is_doubtful[:, tf.newaxis], means, own_logits), own_logits, features)


def further_views(images: tf.Tensor, tta: str) -> tf.Tensor:
  """Returns further views of test images, beside the images themselves.

  Args:
    images: uint8 [n, 32, 32, 3].
    tta: 'mirror': mirrored; 'mirror+shift': both also shifted by a pixel up and left, and by a
      pixel down and right (Jordan 2024, section 3.5); 'mirror+8shifts': both also shifted by a
      pixel in all eight directions.

  Returns:
    uint8 [views * n, 32, 32, 3], view by view.
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
  weights = 2 * [_IMAGE_WEIGHT, *(1 for _ in _MOVES[tta])]
  by_view = tf.reshape(logits, [len(weights), -1, logits.shape[1]])
  shares = tf.constant(weights, logits.dtype) / sum(weights)
  return tf.tensordot(shares, by_view, 1)
