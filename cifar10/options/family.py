"""The base class of network families: their options, recipes and parameter groups.

It loads no TensorFlow: what it describes, networks/families.py builds. A network of a user's own is
a subclass with a `NETWORK` (docs/python.md).
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

from cifar10.core.errors import InputError
from cifar10.core.option import Check, Options

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
