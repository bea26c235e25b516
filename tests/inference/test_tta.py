"""Test-time augmentation: the views themselves, and their weights."""

import numpy as np
import pytest
import tensorflow as tf
from graphs import run

from cifar10.training import inference

pytestmark = pytest.mark.usefixtures('graph')

# Row and column of a padded image where a view begins: a later row shows the image moved up.
BEGINS = {
  'mirror+shift': [(2, 2), (0, 0)],
  'mirror+8shifts': [(2, 2), (2, 1), (2, 0), (1, 2), (1, 0), (0, 2), (0, 1), (0, 0)],
}


@pytest.mark.parametrize(
  ('views', 'weights'),
  [
    ('mirror', [1 / 2] * 2),
    ('mirror+shift', [1 / 4, 1 / 8, 1 / 8] * 2),
    ('mirror+8shifts', [1 / 10, *[1 / 20] * 8] * 2),
  ],
)
def test_views_and_their_mean(views, weights):
  images = np.random.default_rng(0).integers(0, 256, [5, 32, 32, 3]).astype(np.uint8)
  seen = run(inference.further_views(tf.constant(images), views))
  padded = np.pad(images, [(0, 0), (1, 1), (1, 1), (0, 0)], 'reflect')
  expected = [images, *(padded[:, y : y + 32, x : x + 32] for y, x in BEGINS.get(views, []))]
  expected += [view[:, :, ::-1] for view in expected]
  np.testing.assert_array_equal(seen, np.concatenate(expected[1:]))
  logits = np.random.default_rng(1).normal(size=[5 * len(weights), 10]).astype(np.float32)
  mean = run(inference.mean_of_views(tf.constant(logits), views))
  by_hand = sum(w * logits[5 * i : 5 * i + 5] for i, w in enumerate(weights))
  np.testing.assert_allclose(mean, by_hand, rtol=1e-5, atol=1e-6)
