"""Images/s of PyTorch's DataLoader and of tensorpack's DataFlow, in shuffled batches.

Runs in the environment of `make bench-install`; input_pipeline.py and python_source.py start it. It
prints one JSON object.

  python benchmarks/loader_peer.py --loader tensorpack --images IMAGES.npy --workers 2
  python benchmarks/loader_peer.py --loader tensorpack --source source_examples:noisy --workers 2

From arrays in memory, both do to one image at a time what the program does to a batch: crop the
padded image at random and mirror every second one. IMAGES.npy is uint8 [n, 32, 32, 3]; labels lie
beside it.

From a Python source, each of tensorpack's processes runs the whole source, shuffles and batches it,
and sends whole batches: the fastest order that its tutorial knows. The source's shards are not
used: tensorpack has none.
"""

import argparse
import importlib
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
_BUFFER = 10_000  # A source's examples to draw from, as many as the program has.


def main() -> None:
  """Measures one loader after a warm-up of as many batches."""
  flags = _parse_flags()
  batches = LOADERS[flags.loader](flags)
  for _ in itertools.islice(batches, flags.batches):
    pass
  since = time.perf_counter()
  count = sum(len(batch[0]) for batch in itertools.islice(batches, flags.batches))
  rate = count / (time.perf_counter() - since)
  del batches  # Ends tensorpack's processes, which print a line about it.
  versions = {flags.loader: metadata.version(flags.loader)}
  print(json.dumps({'images_per_second': rate, 'versions': versions}))


def _arrays(flags: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
  """Images with a border of zeros, uint8 [n, 40, 40, 3], and labels [n]."""
  images = np.load(flags.images)
  folder, name = os.path.split(flags.images)
  labels = np.load(os.path.join(folder, name.replace('images', 'labels')))
  if flags.batch_size > len(images):
    sys.exit(f'error: --batch-size {flags.batch_size} is more than the {len(images)} images')
  return np.pad(images, [(0, 0), (_PADDING, _PADDING), (_PADDING, _PADDING), (0, 0)]), labels


def _distorted(padded: np.ndarray) -> np.ndarray:
  """uint8 [40, 40, 3] -> a crop [32, 32, 3], mirrored or not."""
  size = padded.shape[0] - 2 * _PADDING
  y, x = np.random.randint(0, 2 * _PADDING + 1, 2)
  image = padded[y : y + size, x : x + size]
  return np.ascontiguousarray(image[:, ::-1] if np.random.rand() < 0.5 else image)


def _torch(flags: argparse.Namespace) -> Iterator[Any]:
  import torch.utils.data  # noqa: PLC0415 - tensorpack is measured without it.

  padded, labels = _arrays(flags)

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


def _tensorpack(flags: argparse.Namespace) -> Iterator[Any]:
  from tensorpack import dataflow  # noqa: PLC0415

  if flags.source:
    module, _, name = flags.source.partition(':')
    flow = dataflow.DataFromGenerator(getattr(importlib.import_module(module), name))
    flow = dataflow.LocallyShuffleData(dataflow.RepeatedData(flow, -1), _BUFFER)
  else:
    flow = dataflow.DataFromList(list(zip(*_arrays(flags))), shuffle=True)
    flow = dataflow.MapData(flow, lambda point: [_distorted(point[0]), point[1]])
    flow = dataflow.RepeatedData(flow, -1)
  flow = dataflow.BatchData(flow, flags.batch_size)
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
  origin = parser.add_mutually_exclusive_group(required=True)
  origin.add_argument('--images', help='train_images.npy')
  origin.add_argument('--source', help='module:function; of tensorpack alone')
  parser.add_argument('--batch-size', type=int, default=128)
  parser.add_argument('--batches', type=int, default=200, help='in the measurement')
  parser.add_argument('--workers', type=int, default=2, help='processes; 0: none')
  flags = parser.parse_args()
  if flags.source and flags.loader != 'tensorpack':
    parser.error(f'--source {flags.source} is not for --loader {flags.loader}; give --images')
  return flags


if __name__ == '__main__':
  main()
