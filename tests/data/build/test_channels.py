"""Means and deviations of small images, worked out by hand."""

import numpy as np

from cifar10.data.build.writer import ChannelStatistics


def image(red, green, blue):
  """Planes of one value each: uint8 [3072]."""
  return np.repeat(np.array([red, green, blue], np.uint8), 1024)


def test_means_and_deviations_by_hand():
  statistics = ChannelStatistics()
  statistics.add(image(0, 51, 255))
  statistics.add(image(255, 102, 255))
  # Red 0 and 1: mean 0.5, deviation 0.5. Green 0.2 and 0.4: mean 0.3, deviation 0.1. Blue has one
  # value: its deviation is 0, for which one level of 255 stands, 0.003922.
  assert statistics.means() == (0.5, 0.3, 1.0)
  assert statistics.stds() == (0.5, 0.1, 0.003922)


def test_pixels_of_an_image_count_alike():
  statistics = ChannelStatistics()
  mixed = image(0, 0, 0)
  mixed[:256] = 255  # A quarter of red is 1: variance 0.25 x 0.75 = 0.1875, whose root is 0.433013.
  statistics.add(mixed)
  assert statistics.means() == (0.25, 0.0, 0.0)
  assert statistics.stds()[0] == 0.433013


def test_the_same_as_numpy_says():
  images = np.random.default_rng(0).integers(0, 256, [20, 3072]).astype(np.uint8)
  statistics = ChannelStatistics()
  for each in images:
    statistics.add(each)
  pixels = images.reshape(20, 3, 1024) / 255
  np.testing.assert_allclose(statistics.means(), pixels.mean((0, 2)), atol=1e-6)
  np.testing.assert_allclose(statistics.stds(), pixels.std((0, 2)), atol=1e-6)
