"""The callbacks that there are: a new one is a file in this folder, and a line here."""

import importlib

from cifar10.callbacks.base import Callback, Run
from cifar10.core import parts

# In the order in which they hear of an event: a module of this folder, or a part of the program
# with the options of which one must be given, else it is not loaded.
_CALLBACKS: dict[str, tuple[str, ...]] = {
  'metrics': (),
  'summaries': (),
  'resources': (),
  'profile': ('profile_steps',),
  'best_checkpoint': (),
  'early_stopping': ('stop_at_accuracy', 'stop_without_gain', 'max_minutes'),
  'control_listener': (),
  'on_evaluation': ('on_evaluation',),
  'progress': (),
}


def make_all(run: Run) -> list[Callback]:
  """Those that have something to do in this process."""
  made = []
  for name, asked_by in _CALLBACKS.items():
    if not asked_by:
      module = importlib.import_module(f'{__package__}.{name}')
    elif name in parts.PARTS and any(getattr(run.options, each) is not None for each in asked_by):
      module = parts.load(name)
    else:
      continue
    if callback := module.make(run):
      made.append(callback)
  return made
