"""Augmentation: each image its own crop, mirror and grey square."""

import numpy as np
import pytest
import tensorflow as tf
from graphs import run

from cifar10.data.augmentation import as_strings, augment, cutout, downsampled, pad
from cifar10.options.hparams import Augmentation

pytestmark = pytest.mark.usefixtures('graph')


@pytest.mark.parametrize(
  ('pixels', 'mode', 'numpys'), [(4, 'zeros', 'constant'), (2, 'reflect', 'reflect')]
)
def test_distortion_is_a_crop_of_the_padded_image_perhaps_mirrored(pixels, mode, numpys):
  count, places, augmentation = 400, 2 * pixels + 1, Augmentation(pixels, mode)
  images = np.random.default_rng(0).integers(1, 256, [count, 32, 32, 3]).astype(np.uint8)
  padded = as_strings(pad(tf.constant(images), augmentation))
  augmented = run(augment(padded, tf.constant([1, 2]), augmentation))
  assert augmented.dtype == np.uint8
  found = []
  for image, result in zip(images, augmented, strict=True):
    reference = np.pad(image, [(pixels, pixels), (pixels, pixels), (0, 0)], numpys)
    matches = [
      (dy, dx, mirrored)
      for dy in range(places)
      for dx in range(places)
      for mirrored in (False, True)
      if np.array_equal(reference[dy : dy + 32, dx : dx + 32][:, :: -1 if mirrored else 1], result)
    ]
    assert len(matches) == 1
    found += matches
  # Each image draws for itself: of 400 draws all offsets come up each way, and about half are
  # mirrored (200 +- 5 standard deviations of 10).
  assert {dy for dy, _, _ in found} == {dx for _, dx, _ in found} == set(range(places))
  assert 150 < sum(mirrored for _, _, mirrored in found) < 250
  # Of 162 kinds, or 50; one shared offset would leave 2.
  assert len(set(found)) > (120 if places == 9 else 45)


def test_cutout_greys_one_whole_square():
  images = np.full([200, 32, 32, 3], 7, np.uint8)
  corners = set()
  for image in run(cutout(tf.constant(images), tf.constant([1, 2]), 12)):
    assert set(np.unique(image)) == {7, 128}
    rows, columns = np.nonzero(image[..., 0] == 128)
    assert len(rows) == 12 * 12
    assert np.ptp(rows) == np.ptp(columns) == 11
    assert (image == image[..., :1]).all()
    corners.add((rows.min(), columns.min()))
  # 21 places each way: 200 draws find both ends, and hardly ever the same corner.
  assert {y for y, _ in corners} >= {0, 20}
  assert len(corners) > 130


def test_downsampled_pixels_by_hand():
  """Half the side: means of four pixels. At 24, pixel 0 lies at (0 + 0.5) x 32 / 24 - 0.5 = 1/6."""
  images = (np.arange(32 * 32).reshape(1, 32, 32, 1).repeat(3, 3) % 251).astype(np.uint8)
  half, some = run([downsampled(tf.constant(images), tf.constant(side)) for side in (16, 24)])
  np.testing.assert_allclose(half, images.reshape(1, 16, 2, 16, 2, 3).mean((2, 4)))
  # Rows are 32 apart, columns 1: 33 / 6.
  assert (some.shape, some[0, 0, 0, 0]) == ((1, 24, 24, 3), pytest.approx(5.5))
