"""The base class of network families: options, recipes, layers and parameter groups."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

import model_base
from cifar10.core.errors import InputError
from cifar10.core.option import Check, Options
from cifar10.data.info import DatasetInfo

PROXY = 'proxy'  # Variable scope of a proxy network, within the main network's scope.
# The deepest published ResNet has 1,202 layers; the graph of a million is never built.
DEPTH = Check(lambda layers: layers <= 2000, 'must be 2000 or less')  # `check_depth` does the rest.


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


class Start(NamedTuple):
  """What a family can look at before training begins."""

  first_images: Callable[[int], np.ndarray]  # n -> the first n of training: uint8 [n, 32, 32, 3]
  data: DatasetInfo
  session_config: Any  # The ConfigProto of the sessions that follow.
  num_gpus: int


class Family(Options, abc.ABC):
  """One kind of network. A subclass is a frozen dataclass whose fields are its options."""

  NAME: ClassVar[str]  # The value of --network, and the scope of the network's variables.
  PLACE: ClassVar[str] = ''  # 'module:NAME' of a family written by the user, as --network names it.
  TITLE: ClassVar[str]  # The name shown to people, with the paper.
  RECIPES: ClassVar[Mapping[str, Recipe]] = {}
  NETWORK: ClassVar[Any]  # The class, a model_base.Layers: NETWORK(options, settings, data)

  @abc.abstractmethod
  def describe(self) -> str:
    """Returns the network's name for logs, for example 'ResNet-44'."""

  def build(
    self, settings: model_base.LayerSettings, data: DatasetInfo, prepared: Any
  ) -> model_base.Layers:
    """Returns the network, whose `forward_pass` makes its layers.

    Args:
      settings: shared by all layers of the network.
      data: the data set whose images it classifies.
      prepared: what `prepare` returned, in training; else None (a checkpoint has the values).
    """
    del prepared
    return self.NETWORK(self, settings, data)

  @property
  def has_proxy(self) -> bool:
    """Tells whether the family has `build_proxy`: a small network that picks the hard examples."""
    return False

  def prepare(self, start: Start) -> Any:
    """Returns what `build` must know before training begins."""
    del start

  def unfolded(
    self, exported: dict[str, np.ndarray], data: DatasetInfo
  ) -> Mapping[str, np.ndarray]:
    """Returns the variables of a .keras export as they are in training, where it has others.

    Args:
      exported: float32 values by the variables' names.
      data: the data set of the network that they are for.
    """
    del data
    return exported

  def group(self, role: str, rates: Rates) -> Group:
    """Returns the group of the variables with this role (model_base's or the family's own role)."""
    factors = {model_base.OFFSET: rates.offset_lr_factor, model_base.HEAD: rates.head_lr_factor}
    uses_muon = role == model_base.CONVOLUTION and rates.muon_learning_rate > 0
    return Group(factors.get(role, 1.0), uses_muon)
