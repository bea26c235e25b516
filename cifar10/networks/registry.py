"""The families of networks that there are: a new one is a file in this folder, and a line here."""

import importlib

from cifar10.core.option import names
from cifar10.networks.family import Family, Recipe

_MODULES = (  # The default first. Each has the family's class as FAMILY.
  'resnet',
  'fastnet',
  'wrn',
  'vgg',
  'inception',
)

FAMILIES: dict[str, type[Family]] = {
  family.NAME: family
  for family in (importlib.import_module(f'{__package__}.{name}').FAMILY for name in _MODULES)
}
DEFAULT = next(iter(FAMILIES))


def recipes() -> dict[str, Recipe]:
  """All families' recipes by name. A recipe of another family than the default chooses it."""
  found = {}
  for name, family in FAMILIES.items():
    for title, recipe in family.RECIPES.items():
      network = {} if name == DEFAULT else {'network': name}
      found[title] = recipe._replace(defaults={**network, **recipe.defaults})
  return found


def owner(name: str) -> str | None:
  """The family whose option this is, or None: no family's."""
  return next((network for network, family in FAMILIES.items() if name in names(family)), None)
