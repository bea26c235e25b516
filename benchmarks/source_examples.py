"""A Python source such as users write, for python_source.py and loader_peer.py alike.

It needs NumPy alone: both environments have it.
"""

import pickle
import subprocess
import sys
from collections.abc import Iterator

import numpy as np

_COUNT = 40_000  # An epoch's examples.
_BATCH = 250
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


def ready_in_two() -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Batches of `ready`, made in two processes."""
  return _in_two('ready')


def noisy_in_two() -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Batches of `noisy`, made in two processes."""
  return _in_two('noisy')


def _in_two(name: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """As examples/parallel_source.py does it."""
  words = [[sys.executable, __file__, name, str(shard)] for shard in range(2)]
  processes = [subprocess.Popen(each, stdout=subprocess.PIPE) for each in words]
  try:
    for number in range(_COUNT // _BATCH):
      stream = processes[number % 2].stdout
      assert stream
      yield pickle.load(stream)
  finally:
    for process in processes:
      process.terminate()


if __name__ == '__main__':
  items = {'ready': ready, 'noisy': noisy}[sys.argv[1]](int(sys.argv[2]), 2)
  for _ in range(_COUNT // 2 // _BATCH):
    images, labels = zip(*(next(items) for _ in range(_BATCH)))
    pickle.dump((np.stack(images), np.array(labels)), sys.stdout.buffer)
