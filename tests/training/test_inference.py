"""What a network says of images: of each in one view, or in several."""

import numpy as np
import pytest
import tensorflow as tf
from graphs import run

from cifar10.data.manifest import CIFAR10
from cifar10.networks import families
from cifar10.options.hparams import from_values
from cifar10.training import inference

FASTNET = {'network': 'fastnet', 'widths': (24, 24, 32), 'tta': 'mirror+shift'}
IMAGES = np.random.default_rng(0).integers(0, 256, [40, 32, 32, 3]).astype(np.uint8)


@pytest.fixture(scope='module')
def answers():
  """Of one random network, by --tta-below: logits, its own ones, features."""
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tf.compat.v1.set_random_seed(2)
    inferred = {}
    for below in (1.0, 0.0, 0.5):
      hparams = from_values({**FASTNET, 'tta_below': below})
      built = families.build(hparams, families.layer_settings(hparams, False), CIFAR10)
      with tf.compat.v1.variable_scope('fastnet', reuse=bool(inferred)):
        inferred[below] = inference.infer(hparams, built, tf.constant(IMAGES))
    session.run(tf.compat.v1.global_variables_initializer())
    variables = {variable.op.name: variable for variable in tf.compat.v1.global_variables()}
    kernel = variables['fastnet/whitening/kernel']
    kernel.load(np.random.default_rng(1).normal(scale=0.15, size=kernel.shape), session)
    return session.run(inferred)


def test_every_view_of_the_doubtful_alone(answers):
  own = answers[1].own_logits.astype(np.float64)
  likeliest = (np.exp(own) / np.exp(own).sum(1, keepdims=True)).max(1)
  doubtful = likeliest < 0.5
  assert 5 < doubtful.sum() < 35
  expected = np.where(doubtful[:, np.newaxis], answers[1].logits, own)
  np.testing.assert_allclose(answers[0.5].logits, expected, rtol=1e-4, atol=1e-5)


def test_nobody_doubtful(answers):
  """The least certain image's further views, which are made all the same, do not count."""
  np.testing.assert_array_equal(answers[0].logits, answers[0].own_logits)


@pytest.mark.parametrize('below', [0, 0.5])
def test_an_image_itself_answers_alike(answers, below):
  for kind in ('own_logits', 'features'):
    expected = getattr(answers[1], kind)
    np.testing.assert_allclose(getattr(answers[below], kind), expected, rtol=1e-4, atol=1e-5)


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
@pytest.mark.usefixtures('graph')
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
