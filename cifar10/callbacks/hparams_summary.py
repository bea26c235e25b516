"""A job's options and results, as TensorBoard's HParams page compares them between jobs."""

import time
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorboard.plugins.hparams import api_pb2, summary

from cifar10.callbacks.callback import Run
from cifar10.data.distortion import Distortion
from cifar10.networks.registry import FAMILIES
from cifar10.options.hparams import HParams, all_values
from cifar10.platform.option import declarations

# A column each: the tag of an evaluation's run.
_METRICS = (('validation', 'accuracy'), ('validation', 'loss'), ('eval', 'accuracy'))


def start(run: Run) -> Any:
  """The options of a training that begins: a Summary."""
  # Every job says the same of the columns, because the page reads what one of them says.
  experiment = summary.experiment_pb(list(_columns()), list(_metrics()))
  values = {
    name: ','.join(map(str, value)) if isinstance(value, tuple) else value
    for name, value in all_values(run.hparams).items()
    if value is not None
  }
  session = summary.session_start_pb(values, group_name=run.job_dir, start_time_secs=time.time())
  return _merged(experiment, session)


def end(reason: str) -> Any:
  """How it ended, with the reason that `Callback.ended` hears: a Summary."""
  status = api_pb2.STATUS_FAILURE if reason == 'error' else api_pb2.STATUS_SUCCESS
  return _merged(summary.session_end_pb(status))


def _columns() -> Iterator[Any]:
  """The options of all families: a job of any can be compared with a job of any other."""
  yield api_pb2.HParamInfo(name='network', type=api_pb2.DATA_TYPE_STRING)
  declared = {
    each.name: each.kind
    for cls in (HParams, Distortion, *FAMILIES.values())
    for each in declarations(cls)
  }
  kinds = {
    bool: api_pb2.DATA_TYPE_BOOL,
    int: api_pb2.DATA_TYPE_FLOAT64,
    float: api_pb2.DATA_TYPE_FLOAT64,
  }
  for name, kind in declared.items():
    yield api_pb2.HParamInfo(name=name, type=kinds.get(kind, api_pb2.DATA_TYPE_STRING))


def _metrics() -> Iterator[Any]:
  for group, tag in _METRICS:
    name = api_pb2.MetricName(group=group, tag=tag)
    yield api_pb2.MetricInfo(name=name, display_name=f'{group} {tag}')


def _merged(*summaries: Any) -> Any:
  """TensorBoard has a copy of its own of the class."""
  values = [
    tf.compat.v1.Summary.Value.FromString(value.SerializeToString())
    for each in summaries
    for value in each.value
  ]
  return tf.compat.v1.Summary(value=values)
