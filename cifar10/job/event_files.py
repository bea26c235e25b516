"""TensorBoard's event files: one in each folder of a job, shared by all that write there."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def write_scalars(folder: str, step: int, values: Mapping[str, float]) -> None:
  """Adds a point to each of these curves."""
  listed = [tf.compat.v1.Summary.Value(tag=tag, simple_value=values[tag]) for tag in values]
  write(folder, step, tf.compat.v1.Summary(value=listed))


def write(folder: str, step: int, summary: Any) -> None:
  """Writes a summary of a step, a Summary or its bytes, at once."""
  writer(folder).add_summary(summary, step)
  writer(folder).flush()


def drop_from(folder: str, step: int) -> None:
  """Makes TensorBoard drop what a folder has of this step and later ones."""
  start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
  writer(folder).add_session_log(start, step)


def writer(folder: str) -> tf.compat.v1.summary.FileWriter:
  """Returns the writer of a folder's event file, which the Estimator shares."""
  with tf.Graph().as_default():  # Evaluations end outside of a graph, where a writer raises.
    return tf.compat.v1.summary.FileWriterCache.get(folder)
