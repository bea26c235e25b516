"""Test-time augmentation: the views themselves, and their weights."""

import numpy as np
import pytest
import tensorflow as tf

from cifar10.inference import views


def run(tensor):
  with tf.compat.v1.Session() as session:
    return session.run(tensor)


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default():
    yield


@pytest.mark.parametrize(
  ('tta', 'weights'),
  [('none', [1]), ('mirror', [1 / 2] * 2), ('mirror+shift', [1 / 4, 1 / 8, 1 / 8] * 2)],
)
def test_views_and_their_mean(tta, weights):
  images = np.random.default_rng(0).integers(0, 256, [5, 32, 32, 3]).astype(np.uint8)
  seen = run(views.test_views(tf.constant(images), tta))
  padded = np.pad(images, [(0, 0), (1, 1), (1, 1), (0, 0)], 'reflect')
  expected = [images, padded[:, :-2, :-2], padded[:, 2:, 2:]][: 3 if 'shift' in tta else 1]
  if tta != 'none':
    expected += [view[:, :, ::-1] for view in expected]
  np.testing.assert_array_equal(seen, np.concatenate(expected))
  logits = np.random.default_rng(1).normal(size=[5 * len(weights), 10]).astype(np.float32)
  mean = run(views.mean_of_views(tf.constant(logits), tta))
  by_hand = sum(w * logits[5 * i : 5 * i + 5] for i, w in enumerate(weights))
  np.testing.assert_allclose(mean, by_hand, rtol=1e-5, atol=1e-6)
