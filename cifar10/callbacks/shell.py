"""Opens a Python shell inside a paused training, for --debug-shell."""

import code
import contextlib
import importlib.util
import sys
from typing import Any

import tensorflow as tf
import tqdm

from cifar10.callbacks.base import Callback, TrainingGraph
from cifar10.job.run import Run


def make(run: Run) -> Callback | None:
  """Returns the callback in the chief, for --debug-shell."""
  return Shell(run) if run.is_chief and run.options.debug_shell else None


class Shell(Callback):
  """Keeps the last batch, and opens the shell when `cifar10.control JOB shell` asks for it."""

  def __init__(self, run: Run):
    self._run = run
    self._batch: Any = None
    run.open_shell = self.open

  def on_graph(self, graph: TrainingGraph) -> None:
    self._tensors = {'images': graph.images, 'labels': graph.labels}

  def before_run(self, run_context: Any) -> Any:
    return tf.compat.v1.train.SessionRunArgs(self._tensors)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    self._batch = run_values.results

  def open(self, session: Any, step: int) -> None:
    """Runs a shell (IPython's if installed) until the person closes it."""
    names = {
      'session': session,
      'graph': session.graph,
      'step': step,
      'batch': self._batch,
      'run': self._run,
      'tf': tf,
    }
    banner = f'training is paused after step {step:,}; here are {", ".join(names)}; Ctrl-D goes on'
    with tqdm.tqdm.external_write_mode(sys.stderr), session.graph.as_default():
      if importlib.util.find_spec('IPython'):
        from IPython.terminal.embed import InteractiveShellEmbed  # noqa: PLC0415  (optional)

        InteractiveShellEmbed(banner1=banner + '\n')(local_ns=names)
      else:
        with contextlib.suppress(SystemExit):
          code.interact(banner, local={**names, 'exit': _leave, 'quit': _leave}, exitmsg='')


def _leave(code: object = None) -> None:
  """Python's own `exit` would close standard input, too."""
  raise SystemExit
