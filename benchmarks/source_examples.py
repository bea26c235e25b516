"""A Python source such as users write, for python_source.py and loader_peer.py alike.

It needs NumPy alone: both environments have it.
"""

from collections.abc import Iterator

import numpy as np

_COUNT = 40_000  # An epoch's examples.
_DIFFERENT = 1000  # Images that are kept in memory and yielded again and again.


def ready(shard: int = 0, num_shards: int = 1) -> Iterator[tuple[np.ndarray, int]]:
  """Images that are there already: what is measured is the way from the function to a batch."""
  images = np.random.default_rng(0).integers(0, 256, [_DIFFERENT, 32, 32, 3]).astype(np.uint8)
  for number in range(shard, _COUNT, num_shards):
    yield images[number % _DIFFERENT], number % 10


def noisy(shard: int = 0, num_shards: int = 1) -> Iterator[tuple[np.ndarray, int]]:
  """The same with Gaussian noise of 5 grey levels: the function itself takes most of the time."""
  rng = np.random.default_rng(shard)
  for image, label in ready(shard, num_shards):
    changed = image + rng.normal(scale=5, size=image.shape)
    yield np.clip(changed, 0, 255).astype(np.uint8), label
