"""The callbacks that there are: a new one is a file in this folder, and a line here."""

import importlib

from cifar10.callbacks.base import Callback, Run

_MODULES = (  # In the order in which they hear of an event.
  'metrics',
  'summaries',
  'resources',
  'profile',
  'best_checkpoint',
  'early_stopping',
  'control_listener',
  'on_evaluation',
  'progress',
)


def make_all(run: Run) -> list[Callback]:
  """Those that have something to do in this process."""
  modules = (importlib.import_module(f'{__package__}.{name}') for name in _MODULES)
  return [callback for module in modules if (callback := module.make(run))]
