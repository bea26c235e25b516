"""A Python shell inside a paused training, for --debug-shell."""

import code
import importlib.util
from typing import Any

import tensorflow as tf

from cifar10.callbacks.callback import Run

_BATCH = 'batch'  # The graph's collection of the first tower's images and labels.


def offer_batch(images: tf.Tensor, labels: tf.Tensor) -> None:
  """Lets a shell in this graph show its batches."""
  for tensor in (images, labels):
    tf.compat.v1.add_to_collection(_BATCH, tensor)


def batch_tensors() -> dict[str, tf.Tensor]:
  """Of the first tower: {'images': uint8 [n, 32, 32, 3], 'labels': int32 [n]}."""
  tensors = tf.compat.v1.get_collection(_BATCH)[:2]
  return dict(zip(('images', 'labels'), tensors))


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
  if importlib.util.find_spec('IPython'):
    from IPython import embed  # noqa: PLC0415  (optional)

    embed(user_ns=names, banner1=banner, colors='neutral')
    return
  with session.graph.as_default():
    code.interact(banner, local=names, exitmsg='training goes on')
