"""Generates images for tests and demonstrations: textures that a small network learns."""

import math
import os
import pickle
from collections.abc import Mapping

import numpy as np

from cifar10.core import files
from cifar10.data.build.archive import CIFAR10, NAMES, Published
from cifar10.data.manifest import DEPTH, HEIGHT, IMAGE_BYTES, WIDTH

_TEXTURES = 5  # Horizontal and vertical stripes, checks, diagonal stripes and rings.
_PERIODS = (5.0, 11.0)  # pixels, of a data set whose classes are single textures
_LAYERED_PERIODS = (3.5, 7.0, 14.0)  # pixels, of the three textures of an image; an octave apart


def write_synthetic(
  data_dir: str, images_per_batch: int, seed: int, published: Published = CIFAR10
) -> str:
  """Writes the members of an archive with generated images, as if they were unpacked.

  Each of CIFAR-10's six batches has `images_per_batch`; CIFAR-100's two members have as many
  together, `train` five times as many as `test`. Returns the folder: DATA_DIR/cifar-10-synthetic.
  """
  rng = np.random.default_rng(seed)
  folder = os.path.join(data_dir, published.name.replace('cifar', 'cifar-') + '-synthetic')
  files.make_folder(folder)

  def write(name: str, content: Mapping[bytes, object]) -> None:
    files.remove_unfinished(os.path.join(folder, name))
    with files.writing(os.path.join(folder, name)) as file:
      file.write(pickle.dumps(content, protocol=2))  # As Python 2 does.

  kinds, batches = published.labels.values(), dict.fromkeys(CIFAR10.digests, 1)
  if published.name != CIFAR10.name:
    words = zip(kinds, (b'texture_%02d', b'group_%02d'))
    names = {kind.names_key: [word % i for i in range(kind.num_classes)] for kind, word in words}
    write(NAMES, names)
    batches = {'test': 1, 'train': 5}
  num_classes = published.labels['fine'].num_classes
  for name, count in batches.items():
    labels = rng.permutation(np.arange(count * images_per_batch) % num_classes)
    # Batch by batch, because making one image takes more than 100 KB.
    parts = [synthetic_images(part, rng, num_classes) for part in np.split(labels, count)]
    # Fine classes with two equal longer textures share a coarse one.
    per_class = {kind.key: num_classes // kind.num_classes for kind in kinds}
    numbers = {key: (labels // fine).tolist() for key, fine in per_class.items()}
    write(name, {**numbers, b'data': np.concatenate(parts)})
  return folder


def synthetic_images(
  labels: np.ndarray, rng: np.random.Generator, num_classes: int = 10
) -> np.ndarray:
  """Generates textures that a small convolutional network learns and a linear model does not.

  Returns uint8 [n, 3072], planes R, G, B, for labels [n] of 0 to num_classes - 1, at most 124.

  Of up to ten classes, class 2t + f is texture t of period f (5 or 11 pixels). Of more, each image
  is the sum of three textures, of 14, 7 and 3.5 pixels, named by the class's digits to the base 5.

  Phase, colours and noise are random, so that all classes have the same mean image; mirrored or
  shifted images stay in their class.
  """
  n = len(labels)
  if num_classes <= _TEXTURES * len(_PERIODS):
    pattern = _texture(labels // 2, np.choose(labels % 2, _PERIODS), rng)
  else:
    layers = [
      _texture(labels // _TEXTURES**place % _TEXTURES, np.full(n, period), rng)
      for place, period in enumerate(_LAYERED_PERIODS)
    ]
    pattern = np.sum(layers, 0) / math.sqrt(len(layers))  # The deviation of one layer.
  base = rng.uniform(90, 165, [n, DEPTH, 1, 1])
  # Contrast has a random size and sign in every colour: no colour identifies a class.
  contrast = rng.uniform(25, 75, [n, 1, 1, 1]) * rng.uniform(-1, 1, [n, DEPTH, 1, 1])
  noise = rng.normal(0, 8, [n, DEPTH, HEIGHT, WIDTH])
  images = np.clip(base + contrast * pattern[:, np.newaxis] + noise, 0, 255)
  return images.astype(np.uint8).reshape(n, IMAGE_BYTES)


def _texture(texture: np.ndarray, period: np.ndarray, rng: np.random.Generator) -> np.ndarray:
  """Returns textures (0..4, [n]) of these periods (pixels, [n]) with random phases.

  They are float64 [n, 32, 32], about -1..1.
  """
  n, period = len(texture), period[:, np.newaxis, np.newaxis]
  y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)

  def draw(low: float, high: float) -> np.ndarray:
    return rng.uniform(low, high, [n, 1, 1])

  def wave(distance: np.ndarray) -> np.ndarray:
    return np.sin(2 * np.pi * (distance / period + draw(0, 1)))

  direction = np.where(draw(0, 1) < 0.5, -1, 1)
  rings = np.hypot(y - draw(8, 24), x - draw(8, 24))
  diagonal = (x + direction * y) / np.sqrt(2)
  kinds = [wave(y), wave(x), wave(y) * wave(x) * 1.5, wave(diagonal), wave(rings)]
  return np.stack(kinds)[texture, np.arange(n)]
