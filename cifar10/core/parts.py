"""The registry of the program's parts, which a plain training does not load.

A part is loaded when an option needs it, and nothing else imports it. If its file and its line here
are removed, the program still trains, evaluates and exports, and the part's flags are gone: an
option of a part names it (`option(..., part='profile')`).
"""

import collections
import functools
import importlib
import os
from types import ModuleType
from typing import Any

from cifar10.core.errors import InputError

PARTS: dict[str, str] = {  # name -> module
  'all_reduce': 'cifar10.cluster.all_reduce',
  'best_checkpoint': 'cifar10.callbacks.best_checkpoint',
  'cluster_checks': 'cifar10.cluster.checks',
  'control': 'cifar10.callbacks.control_commands',
  'data_service': 'cifar10.training.service_feed',
  'dry_run': 'cifar10.training.dry_run',
  'early_stopping': 'cifar10.callbacks.early_stopping',
  'ema': 'cifar10.training.ema',
  'export': 'cifar10.exporters.export',
  'follow': 'cifar10.training.follow',
  'foreign_records': 'cifar10.data.foreign_records',
  'gpu_prefetch': 'cifar10.training.gpu_prefetch',
  'hard_examples': 'cifar10.training.hard_examples',
  'liveness': 'cifar10.cluster.liveness',
  'lookahead': 'cifar10.training.lookahead',
  'muon': 'cifar10.training.muon',
  'network_size': 'cifar10.training.network_size',
  'own_callback': 'cifar10.callbacks.own_callback',
  'own_network': 'cifar10.networks.own_network',
  'packing': 'cifar10.cluster.packing',
  'parameter_server': 'cifar10.cluster.parameter_server',
  'predict': 'cifar10.inference.predict',
  'pretrained': 'cifar10.job.pretrained',
  'profile': 'cifar10.callbacks.profile',
  'progress_bars': 'cifar10.callbacks.progress_bars',
  'resources': 'cifar10.callbacks.resources',
  'shell': 'cifar10.callbacks.shell',
  'small_conv2d': 'cifar10.ops.convolution',
  'source': 'cifar10.training.source_feed',
  'sync': 'cifar10.cluster.sync',
  'task_roles': 'cifar10.cluster.task_roles',
  'tf_config': 'cifar10.cluster.tf_config',
  'tta': 'cifar10.inference.tta',
  'urls': 'cifar10.core.remote_files',
  'user_command': 'cifar10.callbacks.user_command',
  'warm_start': 'cifar10.training.warm_start',
}


def load(name: str) -> ModuleType:
  """Returns the module of a part; raises InputError if the program does not have it."""
  if name not in PARTS:
    raise InputError(f'this program has no part {name!r}, which these options need; add it again')
  return importlib.import_module(PARTS[name])


def find(place: str) -> Any:
  """Imports 'package.module:NAME'; raises ImportError or AttributeError."""
  module, _, path = place.partition(':')
  return functools.reduce(getattr, path.split('.'), importlib.import_module(module))


class Registry(collections.UserDict[str, Any]):
  """Maps short names to places 'package.module:NAME'; a look-up imports the module."""

  def __getitem__(self, name: str) -> Any:
    return find(self.data[name])


EXPORT_FORMATS = Registry(
  {
    'saved_model': 'cifar10.exporters.saved_model:FORMAT',
    'onnx': 'cifar10.exporters.onnx_file:FORMAT',
    'keras': 'cifar10.exporters.keras_file:FORMAT',
  }
)

# The included trained networks, and their files without .npz and .json.
PRETRAINED = {
  name: os.path.join(os.path.dirname(os.path.dirname(__file__)), 'pretrained', name)
  for name in ('resnet20', 'fast94')
}
