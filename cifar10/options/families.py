"""The families of networks: their base, the built-in ones with their recipes, and users' own.

It loads no TensorFlow: what a family's options describe, networks/families.py builds. A network of
your own is a subclass of `Family` with a `NETWORK`, or a function (docs/python.md).
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from cifar10.core import gone, start_tensorflow
from cifar10.core.errors import CommandError, InputError
from cifar10.core.option import FUNCTION, Check, Options, at_least, between, declarations, option
from cifar10.core.user_code import imported, others_code

PROXY = 'proxy'  # Variable scope of a proxy network, within the main network's scope.

_DEEPEST = 2000  # Layers. The deepest published ResNet has 1,202; a million are never built.

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


class Family(Options):
  """One kind of network. A subclass becomes a frozen dataclass, whose fields are its options."""

  NAME: ClassVar[str] = ''  # The value of --network, and the scope of the network's variables.
  TITLE: ClassVar[str] = ''  # The name shown to people, with the paper.
  # Of a user's own: 'module:NAME' as --network names it, and its class, a model_base.Layers made by
  # NETWORK(options, settings, data), or the function that makes its layers.
  PLACE: ClassVar[str] = ''
  NETWORK: ClassVar[Callable[..., Any] | None] = None
  FUNCTION: ClassVar[Callable[..., Any] | None] = None

  def describe(self) -> str:
    """Returns the name of the network for logs, for example 'ResNet-44'."""
    return self.TITLE

  def group(self, role: str, hparams: Any) -> Group:
    """Returns the group of the variables with this role, by the job's HParams."""
    factors = {OFFSET: hparams.offset_lr_factor, HEAD: hparams.head_lr_factor}
    uses_muon = role == CONVOLUTION and hparams.muon_learning_rate > 0
    return Group(factors.get(role, 1.0), uses_muon)


# Options of a network's shape: a job's checkpoints fit no other.
_of_shape = functools.partial(option, fixed=True)

VGG_CONVS_PER_GROUP = {
  11: (1, 1, 2, 2, 2),
  13: (2, 2, 2, 2, 2),
  16: (2, 2, 3, 3, 3),
  19: (2, 2, 4, 4, 4),
}


@dataclasses.dataclass(frozen=True)
class ResNetFamily(Family):
  NAME: ClassVar[str] = 'resnet'
  TITLE: ClassVar[str] = 'the ResNets of He et al. 2015 and 2016 for 32x32 images'

  num_layers: int = _of_shape(44, 'depth: 6n+2 layers, or 9n+2 with --bottleneck')
  resnet_version: int = _of_shape(
    1, 'order in a block; 1: conv, bn, relu; 2: bn, relu, conv', choices=(1, 2)
  )
  bottleneck: bool = _of_shape(False, 'blocks of 1x1, 3x3, 1x1; need --resnet-version 2')

  def check(self) -> None:
    if self.bottleneck and self.resnet_version == 1:
      raise InputError('--bottleneck blocks are version 2 only; add --resnet-version 2')
    per_n = 9 if self.bottleneck else 6  # Three stages times the convolutions of a block.
    if self.num_layers not in range(per_n + 2, _DEEPEST + 1, per_n):
      said = f'is not {per_n}n+2 with n of 1 or more, at most {_DEEPEST}'
      raise InputError(f'--num-layers {self.num_layers} {said}')

  def describe(self) -> str:
    return f'ResNet-{self.num_layers}'


_WIDTHS = Check(
  lambda widths: len(widths) == 3 and 24 <= widths[0] <= widths[1] <= widths[2] <= 4096,
  'must be three numbers that do not fall, from 24 to 4096',
)


@dataclasses.dataclass(frozen=True)
class FastNetFamily(Family):
  NAME: ClassVar[str] = 'fastnet'
  TITLE: ClassVar[str] = 'the networks of airbench (Jordan 2024)'

  widths: tuple[int, ...] = _of_shape(
    (64, 256, 256),
    'channels of the three groups of convolutions; the --head-lr-factor of a recipe fits its own',
    _WIDTHS,
  )
  proxy_widths: tuple[int, ...] = _of_shape(
    (),
    'widths of a small proxy network that is trained beside the other one and chooses the harder '
    'half of each batch, which both train on; none: all is trained on',
    Check(lambda widths: not widths or _WIDTHS.accepts(widths), f'{_WIDTHS.remedy}, or none'),
  )
  convs_per_group: int = _of_shape(
    2, 'convolutions a group; from 3 on with a shortcut', between(1, 100)
  )
  # Steps that train the first bias, 0: all; in hiverge's cifar10-speedrun a fifth of an epoch.
  first_bias_steps: int = option(10, None, at_least(0), fixed=True)

  def describe(self) -> str:
    return f'fastnet {"-".join(map(str, self.widths))}'

  def group(self, role: str, hparams: Any) -> Group:
    if role == FIRST_BIAS:
      return Group(learns_until=self.first_bias_steps)
    return super().group(role, hparams)


@dataclasses.dataclass(frozen=True)
class WideResNetFamily(Family):
  NAME: ClassVar[str] = 'wrn'
  TITLE: ClassVar[str] = 'wide ResNets (Zagoruyko and Komodakis 2016)'

  wrn_depth: int = _of_shape(
    16,
    'depth of the wide ResNet: 6n+4 layers',
    Check(lambda depth: depth in range(10, _DEEPEST + 1, 6), f'must be 6n+4, 10 to {_DEEPEST}'),
  )
  wrn_widen_factor: int = _of_shape(4, "times a plain ResNet's channels", between(1, 100))

  def describe(self) -> str:
    return f'WRN-{self.wrn_depth}-{self.wrn_widen_factor}'


@dataclasses.dataclass(frozen=True)
class VggFamily(Family):
  NAME: ClassVar[str] = 'vgg'
  TITLE: ClassVar[str] = 'VGG with batch norm (Simonyan and Zisserman 2014)'

  vgg_layers: int = _of_shape(16, 'depth, with 3 dense layers', choices=(11, 13, 16, 19))

  def describe(self) -> str:
    return f'VGG-{self.vgg_layers}'


# What --network names; the first one is the default.
BUILT_IN: dict[str, type[Family]] = {
  family.NAME: family for family in (ResNetFamily, FastNetFamily, WideResNetFamily, VggFamily)
}
DEFAULT = ResNetFamily.NAME
# The values of --network, for errors.
CHOICES = f'{", ".join(BUILT_IN)}, or MODULE:NAME of your own, which Python imports: no hyphens'

# Jordan 2024, '94% on CIFAR-10 in 3.29 Seconds on a Single GPU' (arXiv 2404.00498), and airbench.
_FAST = {
  'network': 'fastnet',
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
# SGD and lookahead like airbench95 and airbench96. airbench divides its logits by 9, this network
# by its last width, and batch norm multiplies by 1.702: factors of the squares equalise the steps.
_FAST_SGD = {
  **_FAST,
  'train_batch_size': 1024,
  'offset_lr_factor': 64 * 2.9,
  'lookahead_steps': 5,
}

RECIPES: dict[str, Recipe] = {
  'classic': Recipe(
    '92.45 % with --dtype bfloat16 (one seed)',
    '80,000 steps of 128 images, of 40,000; 6.5 hours on two cores with AVX-512 BF16 (computed)',
    {},
  ),
  # He et al. 2015, 'Deep Residual Learning', section 4.2. Unlike there, inputs are in -1 to 1 and
  # not less the mean of each pixel, and what a crop adds is black.
  'he2015': Recipe(
    '91.53 +- 0.16 % with --num-layers 20 --dtype bfloat16 (3 seeds; the paper: 91.25 %)',
    '64,000 steps of 128 images; with --num-layers 20 2.5 hours on two cores with AVX-512 BF16',
    {
      'train_on': 'train+validation',
      'train_steps': 64_000,
      'lr_values': (1.0, 0.1, 0.01),
      'lr_boundaries_epochs': (81.92, 122.88),  # 32,000 and 48,000 steps of 50,000 images.
      'weight_decay': 1e-4,
    },
  ),
  # airbench94 with Muon, in smaller batches: more steps from as many images. Those of the first
  # half are smaller, as in fulcrumresearch's cifar-10-speedrun, which pays for two of ten epochs.
  'fast94': Recipe(
    '94.09 +- 0.16 % (21 seeds)',
    '10 epochs: 500 steps of 1,000 images, 5 minutes on two fast cores with AVX-512 BF16, 36 on '
    'slower ones with AVX2 alone',
    {
      **_FAST,
      'train_batch_size': 1000,
      'train_steps': 500,
      'resolutions': (20.0, 0.2, 24.0, 0.5),
      'learning_rate': 53.0,
      'lr_triangle': (0.0, 0.0, 0.0),
      'weight_decay': 3.8e-5,
      'offset_lr_factor': 2.9,  # 1.702^2: batch norm multiplies by 1.702 before it adds them.
      'head_lr_factor': 12.6,
      'muon_learning_rate': 0.17,
      # Measured after 8 epochs on a validation split: 93.92 %; six views of all images: 93.86 %.
      'tta': 'mirror+8shifts',
      'tta_below': 0.6,
    },
  ),
  'fast95': Recipe(
    '95.09 +- 0.07 % (3 seeds, before a repair; the source: 95.01 %)',
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
  ),
  # airbench96_faster trains on the harder half of each batch. It sums the loss over 512 images; the
  # mean makes the same step with half the learning rate of 1,024 images and twice their decay.
  'fast96': Recipe(
    '95.92 % (one seed, 0, before a repair; the source: 96.00 %, the mean of 200)',
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
  ),
  # The paper, section 3: 200 epochs of SGD, 0.1 times 0.2 at epochs 60, 120 and 160. Padding by
  # reflection and batch norm's constants are those of the authors' code. That code standardises
  # images (here they are -1..1) and initialises kernels by their outputs (here by their inputs).
  'wrn-28-10': Recipe(
    '96.00 % (the paper, without dropout); not measured here',
    '200 epochs: 78,125 steps of 128 images, 5.2 billion multiplications each',
    {
      'network': 'wrn',
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
  ),
  # The schedule of kuangliu's pytorch-cifar (its convolutions have a bias beside batch norm): 350
  # epochs of SGD with 0.1, and a tenth of that from epochs 150 and 250. Its images are
  # standardised, those here are -1..1.
  'vgg16': Recipe(
    '92.64 % (the source); not measured here',
    '350 epochs: 136,718 steps of 128 images, 0.31 billion multiplications each',
    {
      'network': 'vgg',
      'train_on': 'train+validation',
      'train_steps': 136_718,
      'lr_values': (1.0, 0.1, 0.01),
      'lr_boundaries_epochs': (150, 250),
      'weight_decay': 5e-4,
      'batch_norm_decay': 0.9,
    },
  ),
}


def is_known(name: object) -> bool:
  """Tells whether this is the name of a family, or the place of a user's own: 'module:NAME'."""
  return isinstance(name, str) and (name in BUILT_IN or FUNCTION.accepts(name))


def find(name: str) -> type[Family]:
  """Returns the family of a name; of a user's own function, one that is made of it.

  Raises InputError for an unknown name, and for a user's own that cannot be imported, or is no
  family and no function.
  """
  if not is_known(name):
    said = gone.NETWORKS.get(str(name), f'is none of {CHOICES}')
    raise InputError(f'--network {name} {said}')
  if name in BUILT_IN:
    return BUILT_IN[name]
  start_tensorflow.start()  # First, because the user's module may import it and print lines.
  named = imported('--network', name)
  if not isinstance(named, type):
    # Not the function's name as the scope: another name can start with it.
    made = {'NAME': 'network', 'TITLE': name, 'FUNCTION': staticmethod(named)}
    named = type('OwnNetwork', (Family,), made)
  elif not (issubclass(named, Family) and named.NETWORK and named.NAME and named.TITLE):
    said = 'is no class derived from cifar10.Family with NAME, TITLE and NETWORK'
    raise InputError(f'--network {name} {said}; docs/python.md has one, and takes a function, too')
  named.PLACE = name
  with own_code(named):
    if '__dataclass_fields__' not in vars(named):
      named = dataclasses.dataclass(frozen=True)(named)
    declarations(named)  # Types may be names of nothing.
  return named


@contextlib.contextmanager
def own_code(family: Family | type[Family]) -> Iterator[None]:
  """A context, or a decorator, for a user's own network: raises InputError where it fails."""
  fault = f'--network {family.PLACE} fails: '
  with others_code(lambda said: InputError(fault + said), family.FUNCTION, but=(CommandError,)):
    yield
