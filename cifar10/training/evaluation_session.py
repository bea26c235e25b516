"""Evaluates one checkpoint after another in one graph and one session.

`Estimator.evaluate` builds both anew for each checkpoint, which takes longer than 10,000 images do.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cifar10.core.estimator import tf_estimator

_STEP = 'global_step'


class KeptEvaluation:
  """Of one split. It stays as long as the object does: its session has the network's variables."""

  def __init__(self, estimator: Any, input_fn: Any, name: str):
    """Builds the graph; reads nothing yet.

    Args:
      estimator: whose model function's EVAL mode this is, and under whose folder TensorBoard's file
        goes.
      input_fn: a dataset that ends.
      name: of the split.
    """
    self._folder = estimator.eval_dir(name)
    mode = tf_estimator.ModeKeys.EVAL
    with tf.Graph().as_default() as self._graph:
      tf.compat.v1.set_random_seed(estimator.config.tf_random_seed)
      global_step = tf.compat.v1.train.create_global_step()
      with tf.device('/cpu:0'):
        iterator = tf.compat.v1.data.make_initializable_iterator(input_fn())
      spec = estimator.model_fn(*iterator.get_next(), mode, estimator.config)
      metrics = {**spec.eval_metric_ops, 'loss': tf.compat.v1.metrics.mean(spec.loss)}
      self._values = {name: value for name, (value, _) in metrics.items()} | {_STEP: global_step}
      self._update = tf.group(*(update for _, update in metrics.values()))
      self._hooks = spec.evaluation_hooks
      # It completes the graph, and lets nothing be added.
      scaffold = (spec.scaffold or tf.compat.v1.train.Scaffold()).finalize()
    self._saver = scaffold.saver
    self._begin = [scaffold.local_init_op, iterator.initializer]
    self._session = _Lasting(graph=self._graph, config=estimator.config.session_config)

  def evaluate(self, checkpoint: str, hooks: Sequence[Any]) -> dict[str, Any]:
    """Every example once -> the metrics, 'loss' and 'global_step' among them.

    They are also written for TensorBoard, as the Estimator writes them.

    Args:
      checkpoint: whose variables are restored.
      hooks: run beside the model function's own.
    """
    values = _LastValues(self._values)
    creator = _Restoring(self._session, self._saver, checkpoint, self._begin)
    all_hooks = [*hooks, *self._hooks, values]
    with self._graph.as_default():
      with tf.compat.v1.train.MonitoredSession(creator, all_hooks) as session:
        while not session.should_stop():
          session.run(self._update)
      self._write(values.found)
    return values.found

  def _write(self, found: dict[str, Any]) -> None:
    scalars = [
      tf.compat.v1.Summary.Value(tag=name, simple_value=float(value))
      for name, value in found.items()
      if name != _STEP
    ]
    writer = tf.compat.v1.summary.FileWriterCache.get(self._folder)
    writer.add_summary(tf.compat.v1.Summary(value=scalars), int(found[_STEP]))
    writer.flush()


class _Lasting(tf.compat.v1.Session):
  """A session that a MonitoredSession uses and leaves open."""

  def close(self) -> None:
    """Does nothing: the next checkpoint is restored into it."""


class _Restoring(tf.compat.v1.train.SessionCreator):
  """Gives a MonitoredSession a session that is there, with a checkpoint's variables."""

  def __init__(self, session: _Lasting, saver: Any, checkpoint: str, begin: Sequence[tf.Operation]):
    self._session = session
    self._saver = saver
    self._checkpoint = checkpoint
    self._begin = begin

  def create_session(self) -> _Lasting:
    self._saver.restore(self._session, self._checkpoint)
    self._session.run(self._begin)
    return self._session


class _LastValues(tf.compat.v1.train.SessionRunHook):
  """Reads the metrics when the last example is counted."""

  found: dict[str, np.generic]

  def __init__(self, values: dict[str, tf.Tensor]):
    self._values = values

  def end(self, session: Any) -> None:
    self.found = session.run(self._values)
