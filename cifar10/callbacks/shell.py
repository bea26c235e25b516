"""A Python shell inside a paused training, for --debug-shell."""

import code
import importlib.util
import sys
from typing import Any

import tensorflow as tf
import tqdm

from cifar10.callbacks.base import Run


def open_shell(session: Any, step: int, batch: Any, run: Run) -> None:
  """Returns when the person leaves it; IPython's where it is installed."""
  names = {
    'session': session,
    'graph': session.graph,
    'step': step,
    'batch': batch,
    'run': run,
    'tf': tf,
  }
  banner = f'training is paused after step {step:,}; here are {", ".join(names)}; Ctrl-D goes on'
  with tqdm.tqdm.external_write_mode(sys.stderr), session.graph.as_default():
    if importlib.util.find_spec('IPython'):
      from IPython.terminal.embed import InteractiveShellEmbed  # noqa: PLC0415  (optional)

      InteractiveShellEmbed(banner1=banner + '\n')(local_ns=names)
    else:
      code.interact(banner, local=names, exitmsg='')
