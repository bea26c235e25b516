"""How training images are distorted, as options."""

from __future__ import annotations

import dataclasses

from cifar10.core.option import Options, between, option


@dataclasses.dataclass(frozen=True)
class Augmentation(Options):
  """Random crop and mirror, and a blanked square; by default as in He et al. 2015, section 4.2."""

  crop_padding: int = option(
    4, 'pixels added on each side before a crop back to 32x32', check=between(0, 31, ' pixels')
  )
  padding_mode: str = option(
    'zeros',
    "what a crop's padding is; reflect: the image's own pixels, mirrored at its edge",
    choices=('zeros', 'reflect'),
  )
  # Alternating: Jordan 2024 (arXiv 2404.00498), section 3.6. Both forms are seen within any two
  # epochs.
  flip: str = option(
    'random',
    'random: each image each time with probability 1/2; alternating: at random in the first epoch '
    'and every other epoch from then on',
    choices=('random', 'alternating'),
  )
  # DeVries and Taylor 2017 (arXiv 1708.04552).
  cutout: int = option(
    0, 'pixels: the side of a grey square in each image; 0: none', check=between(0, 32, ' pixels')
  )
