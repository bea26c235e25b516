"""Hyper-parameters: all options of training that belong to no network family, and the recipes."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from cifar10.core.errors import InputError
from cifar10.core.option import (
  BELOW_ONE,
  FUNCTION,
  PATTERN,
  POSITIVE,
  Check,
  Options,
  as_flag,
  at_least,
  between,
  names,
  option,
  picked,
  values,
)
from cifar10.options import families
from cifar10.options.run_options import RunOptions

_of_distortion = functools.partial(option, needs='use_distortion_for_training')


def _door(what: str, **declared: bool) -> Any:
  """Returns the option that names a Python function, which does `what`."""
  help = f'a Python function that {what}'
  return option(None, help, FUNCTION, metavar='MODULE:FUNCTION', **declared)


def _are_rising(numbers: Sequence[float], largest: float) -> bool:
  return list(numbers) == sorted(set(numbers)) and all(0 < number <= largest for number in numbers)


def _in_pairs(pairs: Sequence[float]) -> bool:
  sides, ends = pairs[::2], pairs[1::2]
  return len(sides) == len(ends) and set(sides) <= set(range(12, 32)) and _are_rising(ends, 1)


@dataclasses.dataclass(frozen=True)
class Augmentation(Options):
  """Options of augmentation; defaults: He et al. 2015, section 4.2."""

  crop_padding: int = _of_distortion(4, 'pixels that crops add to each side', between(0, 31))
  padding_mode: str = option(
    'zeros',
    'padding of random crops; reflect: the pixels of the image, mirrored at its edge',
    choices=('zeros', 'reflect'),
    needs='crop_padding',
  )
  # Alternating: Jordan 2024 (arXiv 2404.00498), section 3.6. Any two epochs in a row show both.
  flip: str = _of_distortion(
    'random', 'mirroring; alternating: unlike the epoch before', choices=('random', 'alternating')
  )
  # As in airbench. The squares of DeVries and Taylor 2017 (arXiv 1708.04552) may lie partly
  # outside, so that one of 16 pixels a side hides 196 on average, and here 256.
  cutout: int = _of_distortion(0, 'pixels a side of a grey square in each image', between(0, 32))
  augmentation: str | None = _door('changes training batches after all these (docs/python.md)')


@dataclasses.dataclass(frozen=True)
class HParams(Options):
  """The hyper-parameters of a training. Defaults are those of the old program unless noted."""

  family: families.Family = dataclasses.field(default_factory=families.ResNetFamily)
  augmentation: Augmentation = dataclasses.field(default_factory=Augmentation)

  # Data.
  train_on: str = option(
    'train',
    'the training split; train+validation: the 50,000 images of published results',
    choices=('train', 'train+validation'),
    fixed=True,
  )
  source: str | None = _door(
    'yields the training examples in place of the split (docs/data.md)', fixed=True
  )
  validation_source: str | None = _door('yields examples in place of the validation split')
  examples_per_epoch: int | None = option(
    None, 'examples of --source in an epoch (default: its len())', at_least(1), needs='source'
  )
  # Optimization.
  train_steps: int = option(80_000, 'steps to train in all, earlier runs included', at_least(1))
  train_epochs: float | None = option(None, 'epochs to train, in place of --train-steps', POSITIVE)
  train_batch_size: int = option(
    128, 'training examples in a step of one process, shared by its towers', at_least(1)
  )
  eval_batch_size: int = option(100, 'evaluation batch size; changes the speed alone', at_least(1))
  optimizer: str | None = _door(
    'makes an optimizer of the learning rate, in place of SGD (docs/python.md)', switch=True
  )
  learning_rate: float = option(0.1, 'base learning rate, which the schedule multiplies', POSITIVE)
  lr_values: tuple[float, ...] = option(
    (1.0, 0.1, 0.01, 0.002),
    'factors of the learning rate, one for each phase of the schedule',
    Check(lambda factors: all(each >= 0 for each in factors), 'must be 0 or more'),
  )
  lr_boundaries_epochs: tuple[float, ...] = option(
    (82, 123, 300),
    'epochs at which a phase of the schedule ends; one fewer than --lr-values',
    Check(lambda epochs: all(epoch < 1e6 for epoch in epochs), 'must be below a million'),
  )
  lr_triangle: tuple[float, ...] = option(
    (),
    'a triangle in place of phases: the first factor, the part of training at which it is 1, the '
    'last factor',
    Check(
      lambda numbers: not numbers or (len(numbers) == 3 and min(numbers) >= 0 and numbers[1] <= 1),
      'must be three numbers of 0 or more, as 0.2,0.23,0.07, the second of at most 1',
    ),
  )
  # As in fulcrumresearch's cifar-10-speedrun: fewer multiplications while training is young.
  resolutions: tuple[float, ...] = option(
    (),
    'pairs of a side in pixels and a part of the training: until then its images are made so '
    'small; after the last pair, as in 20,0.2,24,0.5, they are whole',
    Check(_in_pairs, 'must be pairs of 12 to 31 pixels and rising parts up to 1, as 20,0.2,24,0.5'),
  )
  schedule: str | None = _door('tells the learning rate of a step (docs/python.md)')
  momentum: float = option(0.9, 'SGD momentum', BELOW_ONE)
  nesterov: bool = option(False, 'use Nesterov momentum in place of plain momentum')
  weight_decay: float = option(
    2e-4, 'factor of half the sum of squares of all variables but those of Muon', at_least(0)
  )
  offset_lr_factor: float = option(
    1.0, 'multiplies the rate of batch-norm offsets, divides their weight decay', POSITIVE
  )
  head_lr_factor: float = option(1.0, 'as --offset-lr-factor, for the last layer', POSITIVE)
  muon_learning_rate: float = option(
    0.0, 'rate of Muon, which updates convolution kernels; 0: SGD does', at_least(0), switch=True
  )
  label_smoothing: float = option(0.0, 'part of the target spread over all classes', BELOW_ONE)
  lookahead_steps: int = option(
    0, 'steps between means of variables with their slow copies; 0: off', at_least(0), switch=True
  )
  ema_decay: float = option(
    0.0, "decay of the weights' moving average, as 0.999; 0: off", BELOW_ONE, switch=True
  )
  use_distortion_for_training: bool = option(True, 'augment by random crops, mirroring and cutout')
  batch_norm_decay: float = option(0.997, "decay of batch norm's moving averages a step", BELOW_ONE)
  # Whether that decay rises to its value: as `plan.check` sets it in a new job.
  batch_norm_warmup: bool = option(False, None, fixed=True)
  batch_norm_epsilon: float = option(1e-5, 'added to the variance in batch norm', POSITIVE)
  dtype: str = option(
    'float32', 'compute dtype; auto: what is fast here', choices=('auto', 'float32', 'bfloat16')
  )
  tta: str = option(
    'none',
    'test-time augmentation: the views of an image whose logits are averaged',
    choices=('none', 'mirror', 'mirror+shift', 'mirror+8shifts'),
  )
  tta_below: float = option(
    1.0, '--tta where no class is likelier than this; 1: for all images', between(0, 1), needs='tta'
  )
  freeze: str = option(
    '', 'a regular expression: variables with such names are not trained', PATTERN, fixed=True
  )
  seed: int = option(0, 'random seed of initial values, order of examples and augmentation')

  def sides_and_ends(self) -> list[tuple[int, int]]:
    """Returns each side of --resolutions in pixels, and the first step whose images are larger."""
    pairs = zip(self.resolutions[::2], self.resolutions[1::2])
    return [(int(side), round(part * self.train_steps)) for side, part in pairs]

  def check(self) -> None:
    boundaries = self.lr_boundaries_epochs
    if len(self.lr_values) != len(boundaries) + 1:
      raise InputError(
        f'--lr-values has {len(self.lr_values)} values and its boundaries are {len(boundaries)}; '
        'give one value more than boundaries'
      )
    if not _are_rising(boundaries, 1e6):
      raise InputError(f'learning-rate boundaries {list(boundaries)} must rise from above 0')


def all_values(hparams: HParams) -> dict[str, Any]:
  """Returns all options of training by name, with the network's name and its family's options."""
  return {
    'network': hparams.family.PLACE or hparams.family.NAME,
    **values(hparams.family),
    **values(hparams.augmentation),
    **values(hparams),
  }


def from_values(given: Mapping[str, Any]) -> HParams:
  """Returns the hyper-parameters with these values, by name; all others have their defaults.

  Raises InputError for values that are refused, an unknown network, another family's options.
  """
  network = given.get('network', families.DEFAULT)
  family = families.find(network)
  for name in sorted(set(given) - names(HParams, Augmentation, family) - {'network'}):
    owners = [owner for owner, each in families.BUILT_IN.items() if name in names(each)]
    if not owners:
      raise InputError(f'{name} is no option of a training; leave it out')
    shown = as_flag(name, given[name])
    raise InputError(f'{shown} belongs to --network {owners[0]}, not to {network}; leave it out')
  with families.own_code(family):
    own = family(**picked(given, family))
  augmentation = Augmentation(**picked(given, Augmentation))
  return HParams(own, augmentation, **picked(given, HParams))


def from_params(params: Any) -> HParams:
  """Returns the hyper-parameters in an Estimator's `params`: these, or others by their names."""
  if isinstance(params, HParams):
    return params
  given = params if isinstance(params, Mapping) else vars(params)
  # Of a run, and what the old program added: who makes the model function has said it.
  others = names(RunOptions) | {'is_chief', 'num_workers'}
  return from_values({name: value for name, value in given.items() if name not in others})


def recipe_values(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the values, by name, of a recipe with the given options applied.

  A given option overrides the recipe's value, the recipe's other options of the learning rate,
  and, if it selects another network, the recipe's options of its own network.
  """
  defaults = dict(families.RECIPES[name].defaults)
  network = given.get('network', defaults.get('network', families.DEFAULT))
  kept = names(HParams, Augmentation, families.find(network)) | {'network'}
  defaults = {option: value for option, value in defaults.items() if option in kept}
  if {'lr_values', 'lr_boundaries_epochs'} & set(given) and 'lr_triangle' not in given:
    defaults.pop('lr_triangle', None)
  return {**defaults, **given}
