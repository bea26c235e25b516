"""The parts of the program that a plain training does without, by name.

A part is loaded when an option asks for it, and nothing else imports it. Without its file and its
line here the program still trains, evaluates and exports, and the part's flags are gone: an option
that belongs to a part names it (`option(..., part='profile')`).
"""

import importlib
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

PARTS: dict[str, str] = {  # name -> module
  'early_stopping': 'cifar10.callbacks.early_stopping',
  'export': 'cifar10.exporters.export',
  'on_evaluation': 'cifar10.callbacks.on_evaluation',
  'predict': 'cifar10.inference.predict',
  'profile': 'cifar10.callbacks.profile',
  'small_conv2d': 'cifar10.ops.convolution',
  'tta': 'cifar10.inference.tta',
}


def load(name: str) -> ModuleType:
  """The module of a part that is there."""
  return importlib.import_module(PARTS[name])


def find(place: str) -> Any:
  """What 'package.module:NAME' names; raises ImportError or AttributeError where it is not."""
  module, _, name = place.partition(':')
  return getattr(importlib.import_module(module), name)


class Registry(Mapping[str, Any]):
  """Places 'package.module:NAME' by a short name; the module is loaded when one is looked up."""

  def __init__(self, places: Mapping[str, str]):
    self._places = places

  def __getitem__(self, name: str) -> Any:
    return find(self._places[name])

  def __contains__(self, name: object) -> bool:
    return name in self._places

  def __iter__(self) -> Iterator[str]:
    return iter(self._places)

  def __len__(self) -> int:
    return len(self._places)


EXPORT_FORMATS = Registry(
  {
    'saved_model': 'cifar10.exporters.saved_model:FORMAT',
    'onnx': 'cifar10.exporters.onnx_file:FORMAT',
    'keras': 'cifar10.exporters.keras_file:FORMAT',
  }
)
