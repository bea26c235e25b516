"""Profiles some steps: a trace in JOB/profile/, and the costliest operations in the log.

The trace is in Chrome's format, for Perfetto. Without --profile-steps nothing is traced or slower.
"""

import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from cifar10.callbacks.base import Callback, Step
from cifar10.core import files
from cifar10.core.logs import log
from cifar10.job.run import Run
from cifar10.options.run_options import first_and_last

FOLDER = 'profile'
_SHOWN = 10  # How many operations the log lists.
# These operations wait for a result of another device: their time counts there.
_WAITING = {'_Recv', '_HostRecv', 'RecvTensor'}


class Operation(NamedTuple):
  """One operation that ran on a device."""

  device: str  # '/job:worker/replica:0/task:0/device:CPU:0'; of a GPU also '/device:GPU:0/stream:1'
  type: str  # 'Conv2D'
  name: str  # 'tower_0/resnet/conv/Conv2D'
  start: int  # microseconds since 1970
  duration: int  # microseconds


def make(run: Run) -> Callback | None:
  """Returns the callback in a single process or the chief, if --profile-steps is given."""
  asked = run.options.profile_steps
  if not (asked and run.is_chief):
    return None
  first, last = first_and_last(asked)
  return Profile(run.job_dir, first, last)


class Profile(Callback):
  """Traces the steps from `first` to `last`, both included.

  In a cluster it traces this worker's own steps among these, at least one.
  """

  def __init__(self, job_dir: str, first: int, last: int):
    self._job_dir = job_dir
    self._first = first
    self._last = last
    self._step = 0
    self._traced: list[int] = []
    self._operations: list[Operation] = []
    self._is_over = False

  def after_create_session(self, session: Any, coord: Any) -> None:
    self._step = int(session.run(tf.compat.v1.train.get_global_step(session.graph)))
    if self._step >= self._last and not self._is_over:
      log.info('--profile-steps %s:%s: these steps are already done', self._first, self._last)
      self._is_over = True

  def on_step_end(self, step: Step) -> None:
    self._step = step.step

  def before_run(self, run_context: Any) -> Any:
    if self._is_over or self._step + 1 < self._first:
      return None
    full = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
    return tf.compat.v1.train.SessionRunArgs(None, options=full)

  def after_run(self, run_context: Any, run_values: Any) -> None:
    if self._is_over or not run_values.options.trace_level:
      return
    self._traced.append(self._step)
    self._operations += operations(run_values.run_metadata.step_stats)
    if self._step >= self._last:
      self._finish()

  def on_train_end(self, reason: str, message: str, step: int) -> None:
    if self._is_over:
      return
    if self._traced:  # Training ended before the last of the steps.
      self._finish()
    else:
      log.info('--profile-steps %s:%s: training ended before', self._first, self._last)

  def _finish(self) -> None:
    self._is_over = True
    folder = os.path.join(self._job_dir, FOLDER)
    files.make_folder(folder)
    path = os.path.join(folder, f'steps-{self._traced[0]}-{self._traced[-1]}.json')
    files.write_text(path, files.json_text(to_json(self._operations)))
    log.info('profiled %s step(s): %s opens in https://ui.perfetto.dev', len(self._traced), path)
    for line in costs_table(self._operations, _SHOWN):
      log.info('%s', line)
    self._operations = []


def operations(step_stats: Any) -> Iterator[Operation]:
  """Yields all operations of a StepStats."""
  for device in step_stats.dev_stats:
    for node in device.node_stats:
      kind, name = _kind_and_name(node, is_kernel=_is_gpu_trace(device.device))
      duration = max(node.op_end_rel_micros - node.op_start_rel_micros, 1)
      start = node.all_start_micros + node.op_start_rel_micros
      yield Operation(device.device, kind, name, start, duration)


def _kind_and_name(node: Any, is_kernel: bool) -> tuple[str, str]:
  """Parses 'name = Type(inputs)'; for a GPU's kernel '...@@name:Type#...' or 'name:Type'."""
  label, name = node.timeline_label, node.node_name
  if is_kernel:
    noted = re.search('@@([^#]*)#', label)
    name, _, kind = (noted[1] if noted else name).partition(':')
    return kind or 'unknown', name
  named = re.search(r' = (\w+)\(', label)
  return (named[1] if named else name), name


def _is_gpu_trace(device: str) -> bool:
  """Tells whether a device lists a GPU's kernels, not the operations that launched them."""
  return '/stream:' in device or '/memcpy' in device


def to_json(traced: Sequence[Operation]) -> dict[str, Any]:
  """Returns a Chrome trace: a process for each device, a thread for each concurrent operation.

  The format is the "Trace Event Format" of Chrome's catapult project.
  """
  events: list[dict[str, Any]] = []
  for number, device in enumerate(sorted({each.device for each in traced})):
    events.append({'name': 'process_name', 'ph': 'M', 'pid': number, 'args': {'name': device}})
    ends: list[int] = []  # When each thread's last operation ends.
    mine = (each for each in traced if each.device == device)
    for each in sorted(mine, key=lambda operation: operation.start):
      free = (thread for thread, end in enumerate(ends) if end <= each.start)
      thread = next(free, len(ends))
      ends[thread : thread + 1] = [each.start + each.duration]
      events.append(
        {
          'name': each.type,
          'cat': 'operation',
          'ph': 'X',
          'pid': number,
          'tid': thread,
          'ts': each.start,
          'dur': each.duration,
          'args': {'name': each.name},
        }
      )
  return {'traceEvents': events, 'displayTimeUnit': 'ms'}


def costs_table(traced: Sequence[Operation], rows: int) -> Iterator[str]:
  """Yields a table of the costliest operations, without those that wait for another device.

  Of traced GPUs it counts the kernels, of all other devices the operations.
  """
  kernels = '/stream:all'
  # '/device:GPU:0/stream:all' and '/job:worker/replica:0/task:0/device:GPU:0' are the same device.
  timed = tuple({each.device.removesuffix(kernels) for each in traced if kernels in each.device})
  costs: dict[tuple[str, str], list[int]] = defaultdict(list)
  for each in traced:
    is_of_gpu = _is_gpu_trace(each.device) or each.device.endswith(timed)
    if each.type not in _WAITING and (each.device.endswith(kernels) or not is_of_gpu):
      costs[each.type, each.name].append(each.duration)
  total = sum(itertools.chain(*costs.values())) or 1
  costliest = sorted(costs.items(), key=lambda item: -sum(item[1]))[:rows]
  wide = max((len(kind) for (kind, _), _ in costliest), default=0)
  yield f'{"operation":{wide}} {"calls":>6} {"total ms":>10} {"share":>6}  name'
  for (kind, name), durations in costliest:
    spent = sum(durations)
    yield f'{kind:{wide}} {len(durations):6} {spent / 1e3:10.2f} {spent / total:6.1%}  {name}'
