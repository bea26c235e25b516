"""The PyTorch twins of fast94, on a CPU or a GPU: the networks and optimizers of airbench94.

Runs in the environment of `make bench-install`, which has no TensorFlow; time_to_accuracy.py
starts it. It prints one JSON object.

  python benchmarks/torch_fastnet.py --images IMAGES.npy --optimizer muon

IMAGES.npy is a train_images.npy that peers.py wrote, uint8 [n, 32, 32, 3]; labels and the test set
lie beside it.

`--optimizer sgd` is airbench94 (Jordan 2024, arXiv 2404.00498): batch 1024, Nesterov, parameter
groups, lookahead. `--optimizer muon` is its form with Muon: batch 2000, 8 epochs.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
import torch_data
from torch import nn
from torch.nn import functional


def main() -> None:
  """Trains, or measures `--steps` steps of training."""
  flags = _parse_flags()
  torch.manual_seed(flags.seed)
  torch.set_num_threads(flags.threads)
  images, labels = torch_data.load(flags.images, flags.device)
  print(json.dumps({**_train(flags, images, labels), 'torch': torch.__version__}))


class FastNet(nn.Module):
  """Whitening, three groups of two convolutions, and a linear layer."""

  def __init__(self, activation: str, patches: torch.Tensor):
    super().__init__()
    act = {'relu': nn.ReLU, 'gelu': nn.GELU}[activation]
    self.whiten = nn.Conv2d(3, 24, 2)
    self.whiten.weight.requires_grad = False
    layers: list[nn.Module] = [act()]
    inputs = 24
    for width in (64, 256, 256):
      layers += [_conv(inputs, width), nn.MaxPool2d(2), _norm(width), act()]
      layers += [_conv(width, width), _norm(width), act()]
      inputs = width
    self.layers = nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten())
    self.head = nn.Linear(256, 10, bias=False)
    with torch.no_grad():
      self.head.weight.mul_(256 / 9)  # Logits are divided by 256 here, by 9 in airbench94.
      self.whiten.bias.zero_()
      flat = patches.unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, 12)
      values, vectors = torch.linalg.eigh(flat.T @ flat / len(flat))
      scaled = (vectors.T / (values + 5e-4).sqrt()[:, None]).reshape(-1, 3, 2, 2)
      self.whiten.weight.copy_(torch.cat([scaled, -scaled]))

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    return self.head(self.layers(self.whiten(x))) / self.head.in_features


def _conv(inputs: int, outputs: int) -> nn.Conv2d:
  conv = nn.Conv2d(inputs, outputs, 3, padding='same', bias=False)
  with torch.no_grad():
    nn.init.dirac_(conv.weight[:inputs])
  return conv


def _norm(width: int) -> nn.BatchNorm2d:
  norm = nn.BatchNorm2d(width, eps=1e-12, momentum=0.4)
  norm.weight.requires_grad = False
  return norm


class Muon(torch.optim.Optimizer):
  """Orthogonalised Nesterov momentum for convolution kernels of a fixed norm."""

  def __init__(self, params: list, lr: float, momentum: float):
    super().__init__(params, {'lr': lr, 'momentum': momentum})

  @torch.no_grad()
  def step(self, closure: Callable | None = None) -> None:
    for group in self.param_groups:
      for p in group['params']:
        buffer = self.state[p].setdefault('momentum', torch.zeros_like(p.grad))
        buffer.mul_(group['momentum']).add_(p.grad)
        direction = p.grad.add(buffer, alpha=group['momentum'])
        p.mul_(len(p) ** 0.5 / p.norm())
        matrix = _orthogonalised(direction.reshape(len(p), -1))
        p.add_(matrix.view(p.shape), alpha=-group['lr'])


def _orthogonalised(matrix: torch.Tensor) -> torch.Tensor:
  x = (matrix / (matrix.norm() + 1e-7)).bfloat16()
  for _ in range(3):
    square = x @ x.T
    x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
  return x.float()


def _train(flags: argparse.Namespace, images: torch.Tensor, labels: torch.Tensor) -> dict:
  """Training and the test with its six views, timed together; with `--steps`, its first steps."""
  is_muon = flags.optimizer == 'muon'
  batch = flags.batch_size
  since = time.perf_counter()
  network = FastNet(flags.activation, images[:5000].cpu())
  network = network.to(flags.device, memory_format=torch.channels_last)
  run = torch.compile(network) if flags.compile else network
  last_step = math.ceil(flags.epochs * (len(images) // batch))
  steps = min(last_step, flags.steps or last_step)
  bias_steps = flags.bias_epochs / flags.epochs * steps
  optimizers = (_muon_optimizers if is_muon else _sgd_optimizers)(network, flags)
  slow = {name: value.clone() for name, value in network.state_dict().items()}
  batches = torch_data.epochs(images, labels, batch, 2, 'reflect', alternating=True)
  times = [time.perf_counter()]
  for step in range(steps):
    x, y = next(batches)
    # Where only some steps are measured, they have every size in its proportion.
    if (side := _side(flags.resolutions, step / steps)) < x.shape[-1]:
      x = functional.interpolate(x, side, mode='bilinear')
    factor = 1 - step / last_step if is_muon else _triangle(step, last_step)
    for optimizer in optimizers:
      for group in optimizer.param_groups:
        group['lr'] = group['base'] * factor
    network.whiten.bias.requires_grad = step < bias_steps
    with torch.autocast(flags.device, torch.bfloat16, enabled=flags.dtype == 'bfloat16'):
      logits = run(x)
    loss = functional.cross_entropy(logits.float(), y, label_smoothing=0.2)
    for optimizer in optimizers:
      optimizer.zero_grad(set_to_none=True)
    loss.backward()
    for optimizer in optimizers:
      optimizer.step()
    if not is_muon:
      _look_ahead(network, slow, step + 1, last_step)
    torch_data.finish(flags.device)
    times.append(time.perf_counter())
    if step % 20 == 0:
      rate = batch / (times[-1] - times[-2])
      print(f'step {step} of {last_step}  loss {loss:.3f}  {rate:.0f} images/s', file=sys.stderr)
  seconds = times[-1] - since
  rate = (len(times) - 4) * batch / (times[-1] - times[3])
  # What is left of the steps would take as long as those that were measured.
  seconds += (last_step - steps) * batch / rate
  evaluation_since = time.perf_counter()
  result = _evaluate(flags, network)
  evaluation_seconds = time.perf_counter() - evaluation_since
  if steps < last_step:
    result = {}
  return {
    'seconds': seconds + evaluation_seconds,
    'steps_measured': steps,
    'steps': last_step,
    'images_per_second': rate,
    'evaluation_seconds': evaluation_seconds,
    **result,
  }


def _groups(network: FastNet) -> tuple[list, list, list, list]:
  kernels = [p for p in network.layers.parameters() if p.ndim == 4]
  offsets = [p for p in network.layers.parameters() if p.ndim == 1 and p.requires_grad]
  return kernels, offsets, [network.whiten.bias], [network.head.weight]


def _sgd(groups: list[tuple[list, float, float]]) -> torch.optim.SGD:
  """Groups of (parameters, learning rate, weight decay)."""
  settings = [{'params': p, 'lr': lr, 'base': lr, 'weight_decay': wd} for p, lr, wd in groups]
  return torch.optim.SGD(settings, momentum=0.85, nesterov=True)


def _sgd_optimizers(network: FastNet, flags: argparse.Namespace) -> list:
  """airbench94's, for a mean loss; its logits are divided by 9, these by 256."""
  kernels, offsets, bias, head = _groups(network)
  rate, decay, factor = 1.50 * flags.batch_size / 1024, 1.33e-3, (256 / 9) ** 2
  groups = [
    (kernels + bias, rate, decay),
    (offsets, 64 * rate, decay / 64),
    (head, factor * rate, decay / factor),
  ]
  return [_sgd(groups)]


def _muon_optimizers(network: FastNet, flags: argparse.Namespace) -> list:
  kernels, offsets, bias, head = _groups(network)
  batch = flags.batch_size
  decay = 2e-6 * batch
  groups = [
    (offsets + bias, 0.053 * batch, decay / (0.053 * batch)),
    (head, 0.67 * batch, decay / (0.67 * batch)),
  ]
  muon = Muon(kernels, lr=flags.muon_learning_rate, momentum=0.6)
  for group in muon.param_groups:
    group['base'] = group['lr']
  return [_sgd(groups), muon]


def _side(resolutions: list[float], part: float) -> int:
  pairs = zip(resolutions[::2], resolutions[1::2])
  return next((int(side) for side, end in pairs if part < end), 32)


def _triangle(step: int, last_step: int) -> float:
  return float(np.interp(step, [0, int(0.23 * last_step), last_step], [0.2, 1, 0.07]))


@torch.no_grad()
def _look_ahead(network: FastNet, slow: dict, step: int, last_step: int) -> None:
  if step % 5 and step < last_step:
    return
  decay = 1.0 if step % 5 else 0.95**5 * (step / last_step) ** 3
  for name, value in network.state_dict().items():
    if value.is_floating_point():
      slow[name].lerp_(value, 1 - decay)
      value.copy_(slow[name])


@torch.no_grad()
def _evaluate(flags: argparse.Namespace, network: FastNet) -> dict:
  """Accuracy of the mean over six views, and of the images alone."""
  folder = os.path.dirname(flags.images)
  images, labels = torch_data.load(os.path.join(folder, 'test_images.npy'), flags.device)
  network.eval()
  views_right = right = 0
  for start in range(0, len(images), 500):
    x, y = images[start : start + 500], labels[start : start + 500]
    padded = functional.pad(x, [1] * 4, 'reflect')
    views = [x, padded[:, :, :-2, :-2], padded[:, :, 2:, 2:]]
    logits = []
    for view in [*views, *(view.flip(-1) for view in views)]:
      with torch.autocast(flags.device, torch.bfloat16, enabled=flags.dtype == 'bfloat16'):
        logits.append(network(view.contiguous(memory_format=torch.channels_last)).float())
    weights = [0.25, 0.125, 0.125] * 2
    mean = sum(weight * value for weight, value in zip(weights, logits))
    views_right += int((mean.argmax(1) == y).sum())
    right += int((logits[0].argmax(1) == y).sum())
  return {'accuracy': views_right / len(images), 'accuracy_without_tta': right / len(images)}


def _parse_flags() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--images', required=True, help='train_images.npy')
  parser.add_argument('--optimizer', choices=('sgd', 'muon'), default='muon')
  parser.add_argument('--activation', choices=('relu', 'gelu'), default='gelu')
  parser.add_argument('--batch-size', type=int, default=2000)
  parser.add_argument('--epochs', type=float, default=8)
  parser.add_argument('--bias-epochs', type=float, default=3, help="of the whitening's bias")
  parser.add_argument('--muon-learning-rate', type=float, default=0.24)
  parser.add_argument('--resolutions', type=float, nargs='*', default=[], help="the program's")
  parser.add_argument('--steps', type=int, default=0, help='to measure; 0: train to the end')
  parser.add_argument('--dtype', choices=('float32', 'bfloat16'), default='bfloat16')
  parser.add_argument('--device', choices=('cpu', 'cuda'), default='cpu')
  parser.add_argument('--compile', action='store_true')
  parser.add_argument('--threads', type=int, default=os.cpu_count())
  parser.add_argument('--seed', type=int, default=0)
  flags = parser.parse_args()
  if flags.steps < 0 or 0 < flags.steps < 5:
    parser.error(f'--steps {flags.steps}: give 5 or more, or 0 for all')
  return flags


if __name__ == '__main__':
  main()
