"""The parts of the program that a plain training does without, by name.

A part is loaded when an option asks for it, and nothing else imports it. Without its file and its
line here the program still trains, evaluates and exports, and the part's flags are gone: an option
that belongs to a part names it (`option(..., part='profile')`).
"""

import importlib
from types import ModuleType

PARTS: dict[str, str] = {  # name -> module
  'early_stopping': 'cifar10.callbacks.early_stopping',
  'on_evaluation': 'cifar10.callbacks.on_evaluation',
  'profile': 'cifar10.callbacks.profile',
  'urls': 'cifar10.core.remote_files',
}


def load(name: str) -> ModuleType:
  """The module of a part that is there."""
  return importlib.import_module(PARTS[name])
