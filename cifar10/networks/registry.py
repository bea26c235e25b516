"""The registry of network families: a new family is a file in this folder and a line here.

The module of a family is imported when the family, or one of its recipes, is looked up.
"""

from typing import Any, NamedTuple

from cifar10.core import parts
from cifar10.core.option import FUNCTION, names
from cifar10.core.parts import Registry
from cifar10.networks.family import Recipe


class _Entry(NamedTuple):
  place: str  # 'module:CLASS', a subclass of `Family` whose NAME is this entry's key.
  recipes: tuple[str, ...] = ()  # The names in the family's RECIPES.


_NETWORKS = {  # The first one is the default.
  'resnet': _Entry('cifar10.networks.resnet:ResNetFamily', ('classic', 'he2015')),
  'fastnet': _Entry('cifar10.networks.fastnet:FastNetFamily', ('fast94', 'fast95', 'fast96')),
  'wrn': _Entry('cifar10.networks.wrn:WideResNetFamily', ('wrn-28-10',)),
  'vgg': _Entry('cifar10.networks.vgg:VggFamily', ('vgg16',)),
  'inception': _Entry('cifar10.networks.inception:InceptionFamily'),
}


class _Families(Registry):
  """Families by name; 'module:NAME' is a user's own family, or a function to make one of."""

  def __getitem__(self, name: str) -> Any:
    return parts.load('own_network').family(name) if _is_own(name) else super().__getitem__(name)

  def __contains__(self, name: object) -> bool:
    return super().__contains__(name) or _is_own(name)


def _is_own(name: object) -> bool:
  is_place = isinstance(name, str) and FUNCTION.accepts(name)
  return is_place and 'own_network' in parts.PARTS


FAMILIES = _Families({name: entry.place for name, entry in _NETWORKS.items()})
DEFAULT = next(iter(FAMILIES))
# The values of --network, for errors.
CHOICES = f'{", ".join(FAMILIES)}, or MODULE:NAME of your own, which Python imports: no hyphens'
# The network's name of each recipe, by the recipe's name.
RECIPES = {recipe: name for name, entry in _NETWORKS.items() for recipe in entry.recipes}


def recipe(name: str) -> Recipe:
  """Returns a recipe; its defaults include --network if its family is not the default one."""
  network = RECIPES[name]
  plain = FAMILIES[network].RECIPES[name]
  chosen = {} if network == DEFAULT else {'network': network}
  return plain._replace(defaults={**chosen, **plain.defaults})


def owner(name: str) -> str | None:
  """Returns the family that has this option, or None if none has. Imports all families."""
  return next((network for network, family in FAMILIES.items() if name in names(family)), None)
