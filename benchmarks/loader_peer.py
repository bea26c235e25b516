"""Images/s of PyTorch's DataLoader and of tensorpack's DataFlow on arrays in memory.

Runs in the environment of `make bench-install`; input_pipeline.py starts it. It prints one JSON
object.

  python benchmarks/loader_peer.py --loader tensorpack --images IMAGES.npy --workers 2

Both do to one image at a time what the program does to a batch: crop the padded image at random,
mirror every second one; and put shuffled images into batches. IMAGES.npy is uint8 [n, 32, 32, 3];
labels lie beside it.
"""

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import numpy as np

_PADDING = 4


def main() -> None:
  """Measures one loader after a warm-up of as many batches."""
  flags = _parse_flags()
  images = np.load(flags.images)
  folder, name = os.path.split(flags.images)
  labels = np.load(os.path.join(folder, name.replace('images', 'labels')))
  if flags.batch_size > len(images):
    sys.exit(f'error: --batch-size {flags.batch_size} is more than the {len(images)} images')
  sides = [(0, 0), (_PADDING, _PADDING), (_PADDING, _PADDING), (0, 0)]
  batches = LOADERS[flags.loader](np.pad(images, sides), labels, flags)
  for _ in itertools.islice(batches, flags.batches):
    pass
  since = time.perf_counter()
  count = sum(len(batch[0]) for batch in itertools.islice(batches, flags.batches))
  rate = count / (time.perf_counter() - since)
  del batches  # Ends tensorpack's processes, which print a line about it.
  versions = {flags.loader: metadata.version(flags.loader)}
  print(json.dumps({'images_per_second': rate, 'versions': versions}))


def _distorted(padded: np.ndarray) -> np.ndarray:
  """uint8 [40, 40, 3] -> a crop [32, 32, 3], mirrored or not."""
  size = padded.shape[0] - 2 * _PADDING
  y, x = np.random.randint(0, 2 * _PADDING + 1, 2)
  image = padded[y : y + size, x : x + size]
  return np.ascontiguousarray(image[:, ::-1] if np.random.rand() < 0.5 else image)


def _torch(padded: np.ndarray, labels: np.ndarray, flags: argparse.Namespace) -> Iterator[Any]:
  import torch.utils.data  # noqa: PLC0415 - tensorpack is measured without it.

  class Images(torch.utils.data.Dataset):
    """One distorted image and its label."""

    def __len__(self) -> int:
      return len(padded)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
      return torch.from_numpy(_distorted(padded[index])), int(labels[index])

  torch.set_num_threads(1)
  loader = torch.utils.data.DataLoader(
    Images(),
    flags.batch_size,
    shuffle=True,
    drop_last=True,
    num_workers=flags.workers,
    persistent_workers=flags.workers > 0,
  )
  return itertools.chain.from_iterable(itertools.repeat(loader))


def _tensorpack(padded: np.ndarray, labels: np.ndarray, flags: argparse.Namespace) -> Iterator[Any]:
  from tensorpack import dataflow  # noqa: PLC0415

  flow = dataflow.DataFromList(list(zip(padded, labels)), shuffle=True)
  flow = dataflow.MapData(flow, lambda point: [_distorted(point[0]), point[1]])
  flow = dataflow.BatchData(dataflow.RepeatedData(flow, -1), flags.batch_size)
  if flags.workers:
    flow = dataflow.MultiProcessRunnerZMQ(flow, flags.workers)
  flow.reset_state()
  return iter(flow)


LOADERS = {'torch': _torch, 'tensorpack': _tensorpack}


def _parse_flags() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--loader', choices=tuple(LOADERS), required=True)
  parser.add_argument('--images', required=True, help='train_images.npy')
  parser.add_argument('--batch-size', type=int, default=128)
  parser.add_argument('--batches', type=int, default=200, help='in the measurement')
  parser.add_argument('--workers', type=int, default=2, help='processes; 0: none')
  return parser.parse_args()


if __name__ == '__main__':
  main()
