"""The PyTorch twin of the residual networks: it trains, or measures calls on the CPU.

Runs in the environment of `make bench-install`, which has no TensorFlow; training.py and
inference.py start it. Training prints when each step ended (turns.py), without end; `--calls`
prints one JSON object. At an epoch's end all images are distorted at once, as airbench does it: the
turn of benchmarks in which that falls is slower, and their medians pass over it.

  python benchmarks/torch_resnet.py --network resnet-20 --images IMAGES.npy

IMAGES.npy is a train_images.npy that peers.py wrote, uint8 [n, 32, 32, 3]; labels lie beside it.
Networks are of He et al. 2015, and Zagoruyko and Komodakis 2016; shortcuts are the program's.
"""

import argparse
import json
import os
import statistics
import time
from typing import NoReturn

import networks
import torch
import torch_data
from torch import nn
from torch.nn import functional


def main() -> None:
  """Trains until it is killed, or measures `--calls`."""
  flags = _parse_flags()
  torch.manual_seed(flags.seed)
  torch.set_num_threads(flags.threads)
  images, labels = torch_data.load(flags.images, flags.device)
  if flags.calls:
    print(json.dumps({'seconds': _infer(flags, images), 'torch': torch.__version__}))
  else:
    _train(flags, images, labels)


class Block(nn.Module):
  """conv, bn, relu, conv, bn, + shortcut, relu."""

  def __init__(self, inputs: int, outputs: int, stride: int):
    super().__init__()
    self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    self.bn1 = nn.BatchNorm2d(outputs)
    self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
    self.bn2 = nn.BatchNorm2d(outputs)
    self.stride, self.added = stride, outputs - inputs

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    shortcut = functional.avg_pool2d(x, self.stride) if self.stride > 1 else x
    if self.added:
      shortcut = functional.pad(
        shortcut, [0, 0, 0, 0, self.added // 2, self.added - self.added // 2]
      )
    y = functional.relu(self.bn1(self.conv1(x)))
    return functional.relu(self.bn2(self.conv2(y)) + shortcut)


class WideBlock(nn.Module):
  """bn, relu, conv, bn, relu, conv, + shortcut."""

  def __init__(self, inputs: int, outputs: int, stride: int):
    super().__init__()
    self.bn1 = nn.BatchNorm2d(inputs)
    self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    self.bn2 = nn.BatchNorm2d(outputs)
    self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
    changes = stride > 1 or inputs != outputs
    self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else None

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    activated = functional.relu(self.bn1(x))
    shortcut = self.shortcut(activated) if self.shortcut else x
    y = self.conv1(activated)
    return self.conv2(functional.relu(self.bn2(y))) + shortcut


def _stages(block: type[nn.Module], num_blocks: int, widths: list[int]) -> list[nn.Module]:
  """Three of them; the second and the third begin with a stride of two."""
  blocks, inputs = [], 16
  for width, stride in zip(widths, (1, 2, 2)):
    for index in range(num_blocks):
      blocks.append(block(inputs, width, 1 if index else stride))
      inputs = width
  return blocks


def _residual_network(name: str) -> nn.Sequential:
  """'resnet-20' or 'wrn-16-4': images [n, 3, 32, 32] -> logits [n, 10]."""
  kind, depth, *factor = name.split('-')
  first = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
  widths = [16, 32, 64]
  if kind == 'wrn':
    widths = [int(factor[0]) * width for width in widths]
    blocks = _stages(WideBlock, (int(depth) - 4) // 6, widths)
    body = [first, *blocks, nn.BatchNorm2d(widths[-1]), nn.ReLU()]
  else:
    body = [first, nn.BatchNorm2d(16), nn.ReLU(), *_stages(Block, (int(depth) - 2) // 6, widths)]
  return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))


def _train(flags: argparse.Namespace, images: torch.Tensor, labels: torch.Tensor) -> NoReturn:
  network = _residual_network(flags.network).to(flags.device, memory_format=torch.channels_last)
  run = torch.compile(network) if flags.compile else network
  optimizer = torch.optim.SGD(network.parameters(), 0.1, 0.9, weight_decay=2e-4)
  batches = torch_data.epochs(images, labels, flags.batch_size, 4, 'constant', alternating=False)
  while True:
    x, y = next(batches)
    with torch.autocast(flags.device, torch.bfloat16, enabled=flags.dtype == 'bfloat16'):
      logits = run(x)
    optimizer.zero_grad(set_to_none=True)
    functional.cross_entropy(logits.float(), y).backward()
    optimizer.step()
    torch_data.finish(flags.device)
    print(time.perf_counter(), flush=True)


class Served(nn.Module):
  """uint8 images [n, 3, 32, 32] -> classes [n] and probabilities [n, 10]."""

  def __init__(self, network: nn.Module):
    super().__init__()
    self.network = network
    self.mean, self.deviation = (
      torch.tensor(v)[:, None, None] for v in (torch_data.MEAN, torch_data.DEVIATION)
    )

  def pixels(self, images: torch.Tensor) -> torch.Tensor:
    """What normalised images were before."""
    return ((images * self.deviation + self.mean) * 255).round().byte()

  def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logits = self.network((pixels.float() / 255 - self.mean) / self.deviation).float()
    return logits.argmax(1), logits.softmax(1)


@torch.inference_mode()
def _infer(flags: argparse.Namespace, images: torch.Tensor) -> float:
  """Seconds of a call on one batch, images as they come: uint8 in, probabilities out."""
  served = Served(_residual_network(flags.network)).eval().to(memory_format=torch.channels_last)
  run = torch.compile(served) if flags.compile else served
  pixels = served.pixels(images[: flags.batch_size])
  times = []
  for _ in range(flags.warm_up + flags.calls):
    since = time.perf_counter()
    with torch.autocast('cpu', torch.bfloat16, enabled=flags.dtype == 'bfloat16'):
      classes, probabilities = run(pixels)
    classes.numpy(), probabilities.numpy()
    times.append(time.perf_counter() - since)
  return statistics.median(times[flags.warm_up :])


def _parse_flags() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--network', type=networks.name, required=True, help='resnet-20 or wrn-16-4')
  parser.add_argument('--images', required=True, help='train_images.npy')
  parser.add_argument('--batch-size', type=int, default=128)
  parser.add_argument(
    '--calls', type=int, default=0, help='calls to measure; 0: train, without end'
  )
  parser.add_argument('--warm-up', type=int, default=15, help='calls before the measured ones')
  parser.add_argument('--dtype', choices=('float32', 'bfloat16'), default='bfloat16')
  parser.add_argument('--device', choices=('cpu', 'cuda'), default='cpu', help='to train on')
  parser.add_argument('--compile', action='store_true')
  parser.add_argument('--threads', type=int, default=os.cpu_count())
  parser.add_argument('--seed', type=int, default=0)
  flags = parser.parse_args()
  if flags.calls < 0:
    parser.error(f'--calls {flags.calls} cannot be measured; give 0 or more')
  return flags


if __name__ == '__main__':
  main()
