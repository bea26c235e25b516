"""The registry of callbacks: a new callback is a file in this folder and a line here.

A callback that training can do without is also a part of the program, with a line in core/parts.py.
"""

import importlib
from collections.abc import Sequence
from typing import Any

from cifar10.callbacks.base import Callback, Run
from cifar10.core import parts
from cifar10.core.option import declarations

_CALLBACKS: dict[str, bool] = {  # In the order of their calls -> whether it is a part.
  # Before `metrics`, whose event says that an evaluation is done: a disk that is full between them
  # would leave best/ without it for good.
  'best_checkpoint': True,
  'metrics': False,
  'summaries': False,
  'resources': True,
  'profile': True,
  'early_stopping': True,
  'shell': True,
  'control_listener': False,
  'user_command': True,
  'progress': False,
}


def make_all(run: Run, own: Sequence[Any] = ()) -> list[Callback]:
  """Returns the callbacks that have something to do in this process, then the user's `own`."""
  made = []
  for name, is_part in _CALLBACKS.items():
    if is_part and not _is_asked_for(name, run):
      continue
    module = parts.load(name) if is_part else importlib.import_module(f'{__package__}.{name}')
    if callback := module.make(run):
      made.append(callback)
  return made + (parts.load('own_callback').make_all(run, own) if own else [])


def _is_asked_for(part: str, run: Run) -> bool:
  """Tells whether one of the part's options is given; a part without options is always used."""
  declared = declarations(type(run.options))
  given = [getattr(run.options, each.name) for each in declared if each.option.part == part]
  is_given = any(value is not None and value is not False for value in given)
  return part in parts.PARTS and (is_given or not given)
