"""The means and deviations of a training split's pixels."""

import math

import numpy as np

from cifar10.data.shape import DEPTH

_LEVELS = 256
_DIGITS = 6  # More than the first digits of a split's mean tell nothing.


class ChannelStatistics:
  """Counts how often each channel has each value: exact, whatever the number of images."""

  def __init__(self) -> None:
    """Starts with no image."""
    self._counts = np.zeros([DEPTH, _LEVELS], np.int64)

  def add(self, image: np.ndarray) -> None:
    """Counts one image in: uint8 [3072], planes R, G, B."""
    for channel, plane in enumerate(image.reshape(DEPTH, -1)):
      self._counts[channel] += np.bincount(plane, minlength=_LEVELS)

  def means(self) -> tuple[float, float, float]:
    """Of red, green and blue, in 0..1."""
    return self._by_channel(self._mean)

  def deviations(self) -> tuple[float, float, float]:
    """Standard deviations of red, green and blue, in 0..1.

    One level of 255 at least: networks divide by it, and a channel may have a single value.
    """
    return self._by_channel(self._deviation)

  def _by_channel(self, function) -> tuple[float, float, float]:
    red, green, blue = (round(function(counts), _DIGITS) for counts in self._counts)
    return red, green, blue

  def _mean(self, counts: np.ndarray) -> float:
    return float(counts @ _values() / counts.sum())

  def _deviation(self, counts: np.ndarray) -> float:
    squares = (_values() - self._mean(counts)) ** 2
    return max(math.sqrt(counts @ squares / counts.sum()), 1 / (_LEVELS - 1))


def _values() -> np.ndarray:
  """What the levels mean: 0..1."""
  return np.arange(_LEVELS) / (_LEVELS - 1)
