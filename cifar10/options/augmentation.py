"""Options of image augmentation in training: random crop, mirroring and cutout."""

from __future__ import annotations

import dataclasses

from cifar10.core.option import Options, between, option


@dataclasses.dataclass(frozen=True)
class Augmentation(Options):
  """Options of random crop, mirroring and cutout; defaults: He et al. 2015, section 4.2."""

  crop_padding: int = option(
    4,
    'pixels of padding on each side of a training image before its random crop to 32x32',
    check=between(0, 31, ' pixels'),
    needs='use_distortion_for_training',
  )
  padding_mode: str = option(
    'zeros',
    'padding of random crops; reflect: the pixels of the image, mirrored at its edge',
    choices=('zeros', 'reflect'),
    needs='crop_padding',
  )
  # Alternating: Jordan 2024 (arXiv 2404.00498), section 3.6. Any two epochs in a row show both
  # forms.
  flip: str = option(
    'random',
    'mirroring of training images; random: each image each time with probability 1/2; '
    'alternating: at random in the first epoch, then the opposite of the epoch before',
    choices=('random', 'alternating'),
    needs='use_distortion_for_training',
  )
  # As in airbench. The squares of DeVries and Taylor 2017 (arXiv 1708.04552) may lie partly
  # outside, so that one of 16 pixels a side hides 196 on average, and here 256.
  cutout: int = option(
    0,
    'cutout: side in pixels of the grey square in each training image, wholly within it; 0: off',
    check=between(0, 32, ' pixels'),
    needs='use_distortion_for_training',
  )
