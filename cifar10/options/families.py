"""The families of networks: their base, the built-in ones with their recipes, and users' own.

It loads no TensorFlow: what a family's options describe, networks/families.py builds. A network of
your own is a subclass of `Family` with a `NETWORK`, or a function (docs/python.md).
"""

from __future__ import annotations

import abc
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from cifar10.core import start_tensorflow
from cifar10.core.errors import CommandError, InputError
from cifar10.core.option import (
  FUNCTION,
  Check,
  Options,
  at_least,
  between,
  declarations,
  names,
  option,
)
from cifar10.core.user_code import imported, others_code

PROXY = 'proxy'  # Variable scope of a proxy network, within the main network's scope.
# The deepest published ResNet has 1,202 layers; the graph of a million is never built.
DEPTH = Check(lambda layers: layers <= 2000, 'must be 2000 or less')  # `check_depth` does the rest.

# The role of a variable in its layer; parameter groups are made of roles.
CONVOLUTION = 'convolution'  # A convolution's kernel.
SCALE = 'scale'  # Batch norm's scale.
OFFSET = 'offset'  # Batch norm's offset.
HEAD = 'head'  # The kernel and the bias of a fully connected layer.
AVERAGE = 'moving average'  # Batch norm's moving averages; they have no gradient.
FIRST_BIAS = 'first bias'  # The bias that a fastnet adds to the whitened patches.


class Recipe(NamedTuple):
  """Default values of options that belong together, and the accuracy and cost they lead to."""

  accuracy: str  # On the test set.
  cost: str
  defaults: Mapping[str, Any]  # By option: the family's own, and those of HParams.


class Group(NamedTuple):
  """How the variables of one parameter group learn."""

  # Factor of the scheduled learning rate; the weight decay shrinks by the same factor.
  learning_rate_factor: float = 1.0
  uses_muon: bool = False  # Muon fixes the norm of such variables, so they have no weight decay.
  # Global steps after which the group's gradient and weight decay are 0. Momentum still moves the
  # variables, with 0.85 by what up to five more steps would. 0: it learns to the end of training.
  learns_until: int = 0


def check_depth(flag: str, depth: int, per_n: int, others: int, kind: str = '') -> None:
  """Raises InputError unless the depth is `per_n` layers times an n of 1 or more, and `others`."""
  n, rest = divmod(depth - others, per_n)
  if n < 1 or rest:
    nearest = [str(per_n * m + others) for m in sorted({max(n, 1), max(n + 1, 1)})]
    raise InputError(
      f'{flag} {depth} is not {per_n}n+{others}{kind} with n of 1 or more; nearest: '
      f'{" or ".join(nearest)}'
    )


class Rates(Protocol):
  """The options of HParams that every family's parameter groups use."""

  @property
  def offset_lr_factor(self) -> float: ...

  @property
  def head_lr_factor(self) -> float: ...

  @property
  def muon_learning_rate(self) -> float: ...


class Family(Options, abc.ABC):
  """One kind of network. A subclass is a frozen dataclass whose fields are its options."""

  NAME: ClassVar[str]  # The value of --network, and the scope of the network's variables.
  TITLE: ClassVar[str]  # The name shown to people, with the paper.
  RECIPES: ClassVar[Mapping[str, Recipe]] = {}
  # Of a user's own: 'module:NAME' as --network names it, and its class, a model_base.Layers made by
  # NETWORK(options, settings, data), or the function that makes its layers.
  PLACE: ClassVar[str] = ''
  NETWORK: ClassVar[Callable[..., Any] | None] = None
  FUNCTION: ClassVar[Callable[..., Any] | None] = None

  @abc.abstractmethod
  def describe(self) -> str:
    """Returns the network's name for logs, for example 'ResNet-44'."""

  def group(self, role: str, rates: Rates) -> Group:
    """Returns the group of the variables with this role (one of the above, or the family's own)."""
    factors = {OFFSET: rates.offset_lr_factor, HEAD: rates.head_lr_factor}
    uses_muon = role == CONVOLUTION and rates.muon_learning_rate > 0
    return Group(factors.get(role, 1.0), uses_muon)


# The layers for each n, by `bottleneck`: three stages times the convolutions in a block.
RESNET_LAYERS_PER_N = {False: 6, True: 9}
RESNET_OTHER_LAYERS = 2  # The first convolution and the fully connected layer.
# The paper counts convolutions: two in each block, n blocks in each of three stages; and the first
# convolution, and one in the shortcut of each stage.
WRN_LAYERS_PER_N, WRN_OTHER_LAYERS = 6, 4
VGG_CONVS_PER_GROUP = {
  11: (1, 1, 2, 2, 2),
  13: (2, 2, 2, 2, 2),
  16: (2, 2, 3, 3, 3),
  19: (2, 2, 4, 4, 4),
}


@dataclasses.dataclass(frozen=True)
class ResNetFamily(Family):
  """The options of a ResNet, and its recipes."""

  NAME: ClassVar[str] = 'resnet'
  TITLE: ClassVar[str] = 'the ResNets of He et al. 2015 and 2016 for 32x32 images'

  num_layers: int = option(
    44, 'depth of the ResNet: 6n+2 layers, or 9n+2 with --bottleneck', check=DEPTH, fixed=True
  )
  resnet_version: int = option(
    1, 'order in a block; 1: conv, bn, relu; 2: bn, relu, conv', choices=(1, 2), fixed=True
  )
  bottleneck: bool = option(
    False, 'residual blocks of 1x1, 3x3 and 1x1 convolutions; need --resnet-version 2', fixed=True
  )

  RECIPES: ClassVar[dict[str, Recipe]] = {
    'classic': Recipe(
      '92.45 % with --dtype bfloat16 (one seed)',
      '80,000 steps of 128 images, of 40,000; 6.5 hours on two cores with AVX-512 BF16 (computed)',
      {},
    ),
    # He et al. 2015, 'Deep Residual Learning', section 4.2. Unlike there, inputs are in -1 to 1 and
    # not less the mean of each pixel, and what a crop adds is black.
    'he2015': Recipe(
      '91.53 % with --num-layers 20 --dtype bfloat16 (the mean of 3 seeds: 91.62, 91.35, 91.62; '
      'the paper: 91.25 %)',
      '64,000 steps of 128 images; with --num-layers 20 2.5 hours on two cores with AVX-512 BF16',
      {
        'train_on': 'train+validation',
        'train_steps': 64_000,
        'lr_values': (1.0, 0.1, 0.01),
        'lr_boundaries_steps': (32_000, 48_000),
        'weight_decay': 1e-4,
      },
    ),
  }

  def check(self) -> None:
    if self.bottleneck and self.resnet_version == 1:
      raise InputError('--bottleneck blocks are version 2 only; add --resnet-version 2')
    kind = ' (bottleneck)' if self.bottleneck else ''
    per_n = RESNET_LAYERS_PER_N[self.bottleneck]
    check_depth('--num-layers', self.num_layers, per_n, RESNET_OTHER_LAYERS, kind)

  def describe(self) -> str:
    return f'ResNet-{self.num_layers}'


# Jordan 2024, '94% on CIFAR-10 in 3.29 Seconds on a Single GPU' (arXiv 2404.00498), and airbench.
_FAST = {
  'train_on': 'train+validation',
  'eval_batch_size': 200,
  'nesterov': True,
  'momentum': 0.85,
  'label_smoothing': 0.2,
  'crop_padding': 2,
  'padding_mode': 'reflect',
  'flip': 'alternating',
  'batch_norm_decay': 0.6,
  'batch_norm_epsilon': 1e-12,
  'dtype': 'auto',
  'tta': 'mirror+shift',
  # Measured with fast94 for 8 epochs on a validation split: 0.7 reaches the accuracy of six views
  # of all images, 93.86 %; 0.5 reaches 93.76 %.
  'tta_below': 0.7,
}

# airbench94 with Muon, in smaller batches: more steps from as many images.
_FAST94 = Recipe(
  '94.03 % (the mean of 15 seeds: 93.95, 94.02, 93.85, 94.32, 94.30, 94.14, 93.99, 94.12, 93.86, '
  '94.16, 94.07, 94.18, 93.79, 93.82, 93.84)',
  '8 epochs: 400 steps of 1,000 images, 6 minutes on two fast cores with AVX-512 BF16, 40 on '
  'slower ones with AVX2 alone',
  {
    **_FAST,
    'train_batch_size': 1000,
    'train_steps': 400,
    'learning_rate': 53.0,
    'lr_triangle': (0.0, 0.0, 0.0),
    'weight_decay': 3.8e-5,
    'offset_lr_factor': 2.9,  # 1.702^2: batch norm multiplies by 1.702 before it adds the offsets.
    # A fifth of an epoch, as in hiverge's cifar10-speedrun (airbench94 trains it for three epochs).
    'first_bias_steps': 10,
    'head_lr_factor': 12.6,
    'muon_learning_rate': 0.17,
    # Measured after 8 epochs on a validation split: 93.92 %; six views of all images: 93.86 %.
    'tta': 'mirror+8shifts',
    'tta_below': 0.6,
  },
)
# SGD and lookahead like airbench95 and airbench96. airbench divides its logits by 9, this network
# by its last width, and batch norm multiplies by 1.702: factors of the squares equalise the steps.
# 146 steps are the three epochs for which they train the first bias (airbench96_faster names them,
# too, but compares an epoch with a step, and so trains it to the end).
_FAST_SGD = {
  **_FAST,
  'train_batch_size': 1024,
  'offset_lr_factor': 64 * 2.9,
  'first_bias_steps': 146,
  'lookahead_steps': 5,
}
_FAST95 = Recipe(
  '95.09 % (the mean of 3 seeds: 95.17, 95.04, 95.06; the source: 95.01 %)',
  '15 epochs: 732 steps of 1,024 images, half an hour on two fast cores with AVX-512 BF16',
  {
    **_FAST_SGD,
    'widths': (128, 384, 384),
    'train_steps': 732,
    'learning_rate': 1.304,
    'lr_triangle': (0.2, 0.23, 0.07),
    'weight_decay': 1.53e-3,
    'head_lr_factor': (384 / 9) ** 2,
  },
)
# airbench96_faster trains on the harder half of each batch. It sums the loss over 512 images; the
# mean makes the same step with half the learning rate of 1,024 images and twice their decay.
_FAST96 = Recipe(
  '95.92 % (one seed, 0; the source: 96.00 %, the mean of 200)',
  '44 epochs: 2,160 steps of the harder half of 1,024 images, an hour and a quarter on two fast '
  'cores with AVX-512 BF16',
  {
    **_FAST_SGD,
    'widths': (128, 384, 512),
    'proxy_widths': (32, 64, 64),
    'convs_per_group': 3,
    'train_steps': 2160,
    'learning_rate': 0.587,
    'lr_triangle': (0.2, 0.1, 0.0),
    'weight_decay': 2.667e-3,
    'head_lr_factor': (512 / 9) ** 2,
    'crop_padding': 4,
    'cutout': 12,
    'batch_norm_decay': 0.9,
  },
)


def _are_widths(widths: Sequence[int]) -> bool:
  return len(widths) == 3 and 24 <= widths[0] <= widths[1] <= widths[2] <= 4096


@dataclasses.dataclass(frozen=True)
class FastNetFamily(Family):
  """The options of airbench's network, and its recipes."""

  NAME: ClassVar[str] = 'fastnet'
  TITLE: ClassVar[str] = 'the networks of airbench (Jordan 2024)'
  RECIPES: ClassVar[dict[str, Recipe]] = {'fast94': _FAST94, 'fast95': _FAST95, 'fast96': _FAST96}

  widths: tuple[int, ...] = option(
    (64, 256, 256),
    'channels of the three groups of convolutions; the --head-lr-factor of a recipe fits its own',
    check=Check(_are_widths, 'must be three numbers that do not fall, from 24 to 4096'),
    fixed=True,
  )
  proxy_widths: tuple[int, ...] = option(
    (),
    'widths of a small proxy network that is trained beside the other one and chooses the harder '
    'half of each batch, which both train on; none: all is trained on',
    check=Check(
      lambda widths: not widths or _are_widths(widths),
      'must be three numbers that do not fall, from 24 to 4096, or none',
    ),
    fixed=True,
  )
  convs_per_group: int = option(
    2, 'convolutions in a group; from 3 on, it has a shortcut', check=between(1, 100), fixed=True
  )
  first_bias_steps: int = option(
    0, 'steps for which the bias of the whitening is trained; 0: to the end', check=at_least(0)
  )

  def describe(self) -> str:
    return f'fastnet {"-".join(map(str, self.widths))}'

  def group(self, role: str, rates: Rates) -> Group:
    if role == FIRST_BIAS:
      return Group(learns_until=self.first_bias_steps)
    return super().group(role, rates)


# Section 3: 200 epochs of SGD, 0.1 times 0.2 at epochs 60, 120 and 160. Padding by reflection and
# batch norm's constants are those of the authors' code. That code standardises images (here they
# are -1..1) and initialises kernels by their outputs (here by their inputs).
_WRN_28_10 = Recipe(
  '96.00 % (the paper, without dropout); not measured here',
  '200 epochs: 78,125 steps of 128 images, 5.2 billion multiplications each',
  {
    'wrn_depth': 28,
    'wrn_widen_factor': 10,
    'train_on': 'train+validation',
    'train_steps': 78_125,
    'lr_values': (1.0, 0.2, 0.04, 0.008),
    'lr_boundaries_epochs': (60, 120, 160),
    'nesterov': True,
    'weight_decay': 5e-4,
    'padding_mode': 'reflect',
    'batch_norm_decay': 0.9,
  },
)


@dataclasses.dataclass(frozen=True)
class WideResNetFamily(Family):
  """The options of a wide ResNet, and its recipe."""

  NAME: ClassVar[str] = 'wrn'
  TITLE: ClassVar[str] = 'wide ResNets (Zagoruyko and Komodakis 2016)'
  RECIPES: ClassVar[dict[str, Recipe]] = {'wrn-28-10': _WRN_28_10}

  wrn_depth: int = option(16, 'depth of the wide ResNet: 6n+4 layers', check=DEPTH, fixed=True)
  wrn_widen_factor: int = option(
    4, 'the factor of the channels of a plain ResNet', check=between(1, 100), fixed=True
  )

  def check(self) -> None:
    check_depth('--wrn-depth', self.wrn_depth, WRN_LAYERS_PER_N, WRN_OTHER_LAYERS)

  def describe(self) -> str:
    return f'WRN-{self.wrn_depth}-{self.wrn_widen_factor}'


# The schedule of kuangliu's pytorch-cifar (its convolutions have a bias beside batch norm): 350
# epochs of SGD with 0.1, and a tenth of that from epochs 150 and 250. Its images are standardised,
# those here are -1..1.
_VGG16 = Recipe(
  '92.64 % (the source); not measured here',
  '350 epochs: 136,718 steps of 128 images, 0.31 billion multiplications each',
  {
    'train_on': 'train+validation',
    'train_steps': 136_718,
    'lr_values': (1.0, 0.1, 0.01),
    'lr_boundaries_epochs': (150, 250),
    'weight_decay': 5e-4,
    'batch_norm_decay': 0.9,
  },
)


@dataclasses.dataclass(frozen=True)
class VggFamily(Family):
  """The options of a VGG network, and its recipe."""

  NAME: ClassVar[str] = 'vgg'
  TITLE: ClassVar[str] = 'VGG with batch norm (Simonyan and Zisserman 2014)'
  RECIPES: ClassVar[dict[str, Recipe]] = {'vgg16': _VGG16}

  vgg_layers: int = option(
    16,
    'depth as the paper counts it, with three dense layers',
    choices=(11, 13, 16, 19),
    fixed=True,
  )

  def describe(self) -> str:
    return f'VGG-{self.vgg_layers}'


# What --network names; the first one is the default.
BUILT_IN: dict[str, type[Family]] = {
  family.NAME: family for family in (ResNetFamily, FastNetFamily, WideResNetFamily, VggFamily)
}
DEFAULT = ResNetFamily.NAME
# The values of --network, for errors.
CHOICES = f'{", ".join(BUILT_IN)}, or MODULE:NAME of your own, which Python imports: no hyphens'
# The network's name of each recipe, by the recipe's name.
RECIPES = {recipe: name for name, family in BUILT_IN.items() for recipe in family.RECIPES}


def is_known(name: object) -> bool:
  """Tells whether this is the name of a family, or the place of a user's own: 'module:NAME'."""
  return isinstance(name, str) and (name in BUILT_IN or FUNCTION.accepts(name))


def find(name: str) -> type[Family]:
  """Returns the family of a known name; raises InputError for a user's own that is none."""
  return BUILT_IN.get(name) or load(name)


def recipe(name: str) -> Recipe:
  """Returns a recipe; its defaults include --network if its family is not the default one."""
  network = RECIPES[name]
  plain = BUILT_IN[network].RECIPES[name]
  chosen = {} if network == DEFAULT else {'network': network}
  return plain._replace(defaults={**chosen, **plain.defaults})


def owner(option_name: str) -> str | None:
  """Returns the name of the family that has this option, or None if none has."""
  return next((name for name, each in BUILT_IN.items() if option_name in names(each)), None)


# --network module:NAME, a user's own.


def load(place: str) -> type[Family]:
  """Returns the family that 'module:NAME' names, or one made of the function that it names.

  Raises:
    InputError: the name cannot be imported, or is neither a family nor a function.
  """
  start_tensorflow.start()  # First, because the user's module may import it and print lines.
  named = imported('--network', place)
  if not isinstance(named, type):
    return _family_of(place, named)
  if not issubclass(named, Family):
    raise InputError(f'--network {place} is no subclass of cifar10.Family and no function')
  missing = [name for name in ('NAME', 'TITLE', 'NETWORK') if not getattr(named, name, None)]
  missing += sorted(named.__abstractmethods__)
  if missing:
    raise InputError(f'--network {place} has no {", ".join(missing)}; docs/python.md has one')
  if not re.fullmatch(r'[A-Za-z0-9.][\w.-]*', named.NAME, re.ASCII):
    raise InputError(f'--network {place}: its NAME {named.NAME!r} is no scope of variables')
  undeclared = any(isinstance(value, dataclasses.Field) for value in vars(named).values())
  if undeclared or not dataclasses.is_dataclass(named):
    raise InputError(
      f'--network {place} is no dataclass; put @dataclasses.dataclass(frozen=True) before it'
    )
  guard = others_code(
    lambda said: InputError(f'--network {place} fails: {said}'), None, but=(CommandError,)
  )
  methods = ('__init__', 'describe', 'group')  # `__init__` calls `check`.
  guarded = {name: guard(getattr(named, name)) for name in methods}
  guard(declarations)(named)  # Types may be names of nothing.
  return type(named.__name__, (named,), {'PLACE': place, '__module__': named.__module__, **guarded})


def _family_of(place: str, function: Callable[..., Any]) -> type[Family]:
  @dataclasses.dataclass(frozen=True)
  class OwnNetwork(Family):
    """Without options."""

    NAME: ClassVar[str] = 'network'  # Not the function's name: another name can start with it.
    PLACE: ClassVar[str] = place
    TITLE: ClassVar[str] = place
    FUNCTION: ClassVar[Any] = staticmethod(function)

    def describe(self) -> str:
      return place

  return OwnNetwork
