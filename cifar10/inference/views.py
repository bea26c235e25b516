"""Test-time augmentation: a test image seen several times, and its views' logits averaged."""

import tensorflow as tf

from cifar10.data.dataset import mirror


def test_views(images: tf.Tensor, tta: str) -> tf.Tensor:
  """The views of test images that a network is to see, the images themselves first.

  Args:
    images: uint8 [n, 32, 32, 3].
    tta: 'none'; 'mirror': and mirrored; 'mirror+shift': and both moved by a pixel up and left, and
      by a pixel down and right (Jordan 2024, section 3.5).

  Returns:
    uint8 [views * n, 32, 32, 3], view by view.
  """
  return images if tta == 'none' else tf.concat([images, further_views(images, tta)], 0)


def further_views(images: tf.Tensor, tta: str) -> tf.Tensor:
  """`test_views` without the images themselves; `tta` is not 'none'."""
  views = [images]
  if tta == 'mirror+shift':
    padded = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]], 'REFLECT')
    views += [padded[:, :-2, :-2], padded[:, 2:, 2:]]
  return tf.concat([*views[1:], *map(mirror, views)], 0)


def mean_of_views(logits: tf.Tensor, tta: str) -> tf.Tensor:
  """`test_views`' logits, float32 [views * n, classes] -> [n, classes]; the shifts count half."""
  if tta == 'none':
    return logits
  weights = 2 * ([0.5] if tta == 'mirror' else [0.25, 0.125, 0.125])
  by_view = tf.reshape(logits, [len(weights), -1, logits.shape[1]])
  return tf.tensordot(tf.constant(weights, logits.dtype), by_view, 1)
