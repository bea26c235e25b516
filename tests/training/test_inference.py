"""What a network says of images: of each in one view, or in several."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from graphs import run, run_and_trace

from cifar10.core import devices
from cifar10.data.manifest import CIFAR10
from cifar10.networks import families
from cifar10.options.hparams import from_values
from cifar10.training import inference

FASTNET = {'network': 'fastnet', 'widths': (24, 24, 32), 'tta': 'mirror+shift'}
_NOISE = np.random.default_rng(0).integers(0, 256, [40, 32, 32, 3])
IMAGES = (_NOISE * np.linspace(0.2, 1, 40).reshape(-1, 1, 1, 1)).astype(np.uint8)


def infer(network, variants):
  """What one random network says in variants (options, chunk), and by which convolutions."""
  inferred = []
  with tf.Graph().as_default(), tf.compat.v1.Session(config=devices.session_config(2)) as session:
    tf.compat.v1.set_random_seed(2)
    for options, chunk in variants:
      hparams = from_values({**network, **options})
      built = families.build(hparams, families.layer_settings(hparams, False), CIFAR10)
      with tf.compat.v1.variable_scope('a', reuse=bool(inferred)), tf.device(f'/cpu:{chunk > 0:d}'):
        inferred.append(inference.infer(hparams, built, tf.constant(IMAGES), chunk))
    tf.compat.v1.summary.merge_all()  # As the scaffold of an evaluation does.
    session.run(tf.compat.v1.global_variables_initializer())
    for kernel in tf.compat.v1.global_variables('.*/whitening/kernel'):
      kernel.load(np.random.default_rng(1).normal(scale=0.15, size=kernel.shape), session)
    return [run_and_trace(session, each) for each in inferred]


def test_every_view_of_the_doubtful_alone():
  """Nobody is below 0: the least certain one's views, which are made all the same, do not count."""
  belows = 1.0, 0.0, 0.5
  every, *some = [said for said, _ in infer(FASTNET, [({'tta_below': at}, 0) for at in belows])]
  own = every.own_logits.astype(np.float64)
  likeliest = (np.exp(own) / np.exp(own).sum(1, keepdims=True)).max(1)
  assert 5 < np.sum(likeliest < 0.5) < 35
  for below, answers in zip(belows[1:], some, strict=True):
    logits = np.where(likeliest[:, np.newaxis] < below, every.logits, own)
    for found, expected in zip(answers, (logits, own, every.features), strict=True):
      np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# The second's layers have no names, the third's variables have values to begin with.
NETWORKS = [FASTNET, {'network': 'tiny_network:Tiny'}, {'network': 'outside_parts:of_values'}]


@pytest.mark.parametrize('network', NETWORKS)
@pytest.mark.parametrize(
  ('tta', 'below'), [('none', 1), ('mirror+shift', 1), ('mirror+8shifts', 0.6)]
)
def test_a_network_that_sees_chunks_answers_alike(network, tta, below):
  """As on a GPU, here on a second CPU: fewer images than a chunk has, as many, and more."""
  chunks, options = (0, 16, 40, 64), {'tta': tta, 'tta_below': below}
  (expected, passes), *others = infer(network, [(options, chunk) for chunk in chunks])
  for chunk, (found, convolutions) in zip(chunks[1:], others, strict=True):
    ran = sum(layers * -(-images // chunk) for (_, images), layers in passes.items())
    assert convolutions == collections.Counter({('CPU:1', chunk): ran})
    for one, other in zip(expected, found, strict=True):
      assert one.std(0).max() > 0.05
      np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


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
