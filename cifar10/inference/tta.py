"""Test-time augmentation: a test image seen several times, and its views' logits averaged."""

import tensorflow as tf

from cifar10.data.augmentation import mirror

# By what an image is moved, in pixels down and right. Each move is also seen mirrored.
_MOVES = {
  'mirror': (),
  'mirror+shift': ((-1, -1), (1, 1)),
  'mirror+8shifts': tuple(
    (down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if (down, right) != (0, 0)
  ),
}
_IMAGE_WEIGHT = 2  # Of the image that is not moved; a moved one counts once.


def test_views(images: tf.Tensor, tta: str) -> tf.Tensor:
  """The views of test images that a network is to see, the images themselves first.

  Args:
    images: uint8 [n, 32, 32, 3].
    tta: 'none'; 'mirror': and mirrored; 'mirror+shift': and both moved by a pixel up and left, and
      by a pixel down and right (Jordan 2024, section 3.5); 'mirror+8shifts': and both moved by a
      pixel in all eight directions.

  Returns:
    uint8 [views * n, 32, 32, 3], view by view.
  """
  return images if tta == 'none' else tf.concat([images, further_views(images, tta)], 0)


def further_views(images: tf.Tensor, tta: str) -> tf.Tensor:
  """`test_views` without the images themselves; `tta` is not 'none'."""
  height, width = images.shape[1:3]
  padded = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]], 'REFLECT')
  moved = [
    padded[:, 1 - down : 1 - down + height, 1 - right : 1 - right + width]
    for down, right in _MOVES[tta]
  ]
  return tf.concat([*moved, *map(mirror, [images, *moved])], 0)


def mean_of_views(logits: tf.Tensor, tta: str) -> tf.Tensor:
  """`test_views`' logits, float32 [views * n, classes] -> [n, classes]; moved ones count half."""
  if tta == 'none':
    return logits
  weights = 2 * [_IMAGE_WEIGHT, *(1 for _ in _MOVES[tta])]
  by_view = tf.reshape(logits, [len(weights), -1, logits.shape[1]])
  shares = tf.constant(weights, logits.dtype) / sum(weights)
  return tf.tensordot(shares, by_view, 1)
