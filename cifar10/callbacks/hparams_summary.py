"""A job's options, by which TensorBoard's HParams page compares the jobs below a folder.

The page finds out by itself which of them differ, and takes the last value of every curve.
"""

import time
from typing import Any

import tensorflow as tf
from tensorboard.plugins.hparams import api_pb2, summary

from cifar10.callbacks.callback import Run
from cifar10.options.hparams import all_values


def start(run: Run) -> Any:
  """The options of a training that begins: a Summary."""
  values = {
    name: ','.join(map(str, value)) if isinstance(value, tuple) else value
    for name, value in all_values(run.hparams).items()
    if value is not None
  }
  # A group is a row of the table; it is shown by name.
  return _tensorflows(
    summary.session_start_pb(values, group_name=run.job_dir, start_time_secs=time.time())
  )


def end(reason: str) -> Any:
  """How it ended, with the reason that `Callback.ended` hears: a Summary."""
  failed = reason == 'error'
  status = api_pb2.STATUS_FAILURE if failed else api_pb2.STATUS_SUCCESS
  return _tensorflows(summary.session_end_pb(status))


def _tensorflows(summary_pb: Any) -> Any:
  """TensorBoard has a copy of its own of the class Summary."""
  return tf.compat.v1.Summary.FromString(summary_pb.SerializeToString())
