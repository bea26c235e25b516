"""What a family of networks brings: its options, its recipes, its layers, its variables' groups."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

import model_base
from cifar10.core.option import Options
from cifar10.data.info import DatasetInfo

PROXY = 'proxy'  # The scope of a proxy's variables, within that of the network's.
MOST_LAYERS = 2000  # The papers' deepest has 1,202; the graph of a million is never finished.


class Recipe(NamedTuple):
  """Defaults that belong together, and what they lead to."""

  accuracy: str  # On the test set.
  cost: str
  defaults: Mapping[str, Any]  # Of options: the family's own, and HParams'.


class Group(NamedTuple):
  """How variables learn."""

  learning_rate_factor: float = (
    1.0  # Times the scheduled rate; the weight decay is so much smaller.
  )
  uses_muon: bool = False  # And is not decayed: Muon fixes the norm.
  # Global steps, after which its gradient is 0 and it does not decay; what momentum has kept moves
  # it a little further. 0: to the end.
  learns_until: int = 0


class Rates(Protocol):
  """What HParams says of all families' groups."""

  @property
  def offset_lr_factor(self) -> float: ...

  @property
  def head_lr_factor(self) -> float: ...

  @property
  def muon_learning_rate(self) -> float: ...


class Start(NamedTuple):
  """What a family can look at before training begins."""

  first_images: Callable[[int], np.ndarray]  # So many of the training split: uint8 [n, 32, 32, 3].
  data: DatasetInfo
  session_config: Any  # The ConfigProto of the sessions to come.
  num_gpus: int


class Family(Options, abc.ABC):
  """One kind of network. A subclass is a frozen dataclass whose fields are its options."""

  NAME: ClassVar[str]  # --network NAME, and the scope of its variables.
  PLACE: ClassVar[str] = ''  # --network module:NAME, where it is the user's own.
  TITLE: ClassVar[str]  # For people, with its source.
  RECIPES: ClassVar[Mapping[str, Recipe]] = {}
  NETWORK: ClassVar[Any]  # Of its layers: NETWORK(options, settings, data) is a model_base.Layers.

  @abc.abstractmethod
  def describe(self) -> str:
    """The network in a log: 'ResNet-44'."""

  def build(
    self, settings: model_base.LayerSettings, data: DatasetInfo, prepared: Any
  ) -> model_base.Layers:
    """The network, whose `forward_pass` makes its layers.

    Args:
      settings: of its layers.
      data: what it classifies.
      prepared: from `prepare`, in training; else None: a checkpoint has what it needs.
    """
    del prepared
    return self.NETWORK(self, settings, data)

  @property
  def has_proxy(self) -> bool:
    """Whether it has `build_proxy`: a small network that chooses what the other one learns from."""
    return False

  def prepare(self, start: Start) -> Any:
    """What has to be known before training begins, for `build`."""
    del start

  def group(self, role: str, rates: Rates) -> Group:
    """How the variables of this role learn; the roles are model_base's, and the family's own."""
    factors = {model_base.OFFSET: rates.offset_lr_factor, model_base.HEAD: rates.head_lr_factor}
    uses_muon = role == model_base.CONVOLUTION and rates.muon_learning_rate > 0
    return Group(factors.get(role, 1.0), uses_muon)
