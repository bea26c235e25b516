"""CIFAR-10 for the PyTorch twins: as airbench does it, in memory, distorted an epoch at a time."""

import os
import sys
from collections.abc import Iterator

import numpy as np
import torch
from torch.nn import functional

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def load(path: str, device: str = 'cpu') -> tuple[torch.Tensor, torch.Tensor]:
  """Images normalised, float32 [n, 3, 32, 32] in channels_last, and labels int64 [n]."""
  if device == 'cuda' and not torch.cuda.is_available():
    sys.exit(
      f'error: --device cuda, but PyTorch {torch.__version__} sees no GPU; does its driver fit?'
    )
  images = torch.from_numpy(np.load(path)).float().div_(255)
  images = (images - torch.tensor(MEAN)) / torch.tensor(DEVIATION)
  folder, name = os.path.split(path)
  labels = torch.from_numpy(np.load(os.path.join(folder, name.replace('images', 'labels')))).long()
  # Strides of channels_last, as loaded.
  return images.permute(0, 3, 1, 2).to(device), labels.to(device)


def finish(device: str) -> None:
  """Waits for what a GPU still computes, as TensorFlow does at a step's end."""
  if device == 'cuda':
    torch.cuda.synchronize()


def _crops(images: torch.Tensor, padding: int, mode: str) -> torch.Tensor:
  """Each image cropped at random out of its padded self."""
  size = images.shape[-1]
  padded = functional.pad(images, [padding] * 4, mode)
  cropped = torch.empty_like(images)
  dy, dx = torch.randint(0, 2 * padding + 1, [2, len(images)], device=images.device)
  for y in range(2 * padding + 1):
    for x in range(2 * padding + 1):
      chosen = (dy == y) & (dx == x)
      cropped[chosen] = padded[chosen, :, y : y + size, x : x + size]
  return cropped


def epochs(
  images: torch.Tensor,
  labels: torch.Tensor,
  batch: int,
  padding: int,
  mode: str,
  *,
  alternating: bool,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
  """Endless shuffled, cropped, mirrored batches; an epoch's last one is left out if not whole."""
  if batch > len(images):
    sys.exit(f'error: --batch-size {batch} is more than the {len(images)} images')
  where = images.device
  first = torch.rand(len(images), device=where) < 0.5
  epoch = 0
  while True:
    mirrored = (
      first ^ bool(epoch % 2) if alternating else torch.rand(len(images), device=where) < 0.5
    )
    augmented = _crops(images, padding, mode)
    augmented[mirrored] = augmented[mirrored].flip(-1)
    order = torch.randperm(len(images), device=where)
    for start in range(0, len(images) - batch + 1, batch):
      chosen = order[start : start + batch]
      yield augmented[chosen].contiguous(memory_format=torch.channels_last), labels[chosen]
    epoch += 1
