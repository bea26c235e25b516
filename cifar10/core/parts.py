"""The parts of the program that a plain training does without, by name.

A part is loaded when an option asks for it, and nothing else imports it. Without its file and its
line here the program still trains, evaluates and exports, and the part's flags are gone: an option
that belongs to a part names it (`option(..., part='profile')`).
"""

import importlib
from types import ModuleType

PARTS: dict[str, str] = {  # name -> module
  'all_reduce': 'cifar10.cluster.all_reduce',
  'data_service': 'cifar10.training.service_feed',
  'dry_run': 'cifar10.training.dry_run',
  'early_stopping': 'cifar10.callbacks.early_stopping',
  'ema': 'cifar10.training.ema',
  'follow': 'cifar10.training.follow',
  'gpu_prefetch': 'cifar10.training.gpu_prefetch',
  'hard_examples': 'cifar10.training.hard_examples',
  'liveness': 'cifar10.cluster.liveness',
  'lookahead': 'cifar10.training.lookahead',
  'muon': 'cifar10.training.muon',
  'on_evaluation': 'cifar10.callbacks.on_evaluation',
  'parameter_server': 'cifar10.cluster.parameter_server',
  'profile': 'cifar10.callbacks.profile',
  'shell': 'cifar10.callbacks.shell',
  'source': 'cifar10.training.source_feed',
  'sync': 'cifar10.cluster.sync',
  'tf_config': 'cifar10.cluster.tf_config',
  'variable_files': 'cifar10.training.variable_files',
  'warm_start': 'cifar10.training.warm_start',
}


def load(name: str) -> ModuleType:
  """The module of a part that is there."""
  return importlib.import_module(PARTS[name])
