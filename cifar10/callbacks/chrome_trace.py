"""What TensorFlow says of a traced step -> Chrome's trace format, and a table of costs."""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

# They wait for what another device computes. That would be counted twice.
_WAITING = {'_Recv', '_HostRecv', 'RecvTensor'}


class Operation(NamedTuple):
  """One operation that ran on a device."""

  device: str  # '/job:worker/replica:0/task:0/device:CPU:0'; of a GPU also '/device:GPU:0/stream:1'
  type: str  # 'Conv2D'
  name: str  # 'tower_0/resnet/conv/Conv2D'
  start: int  # microseconds since 1970
  duration: int  # microseconds


def operations(step_stats: Any) -> Iterator[Operation]:
  """All of them, of a StepStats."""
  for device in step_stats.dev_stats:
    for node in device.node_stats:
      kind, name = _kind_and_name(node, is_kernel=_is_gpu_trace(device.device))
      duration = max(node.op_end_rel_micros - node.op_start_rel_micros, 1)
      start = node.all_start_micros + node.op_start_rel_micros
      yield Operation(device.device, kind, name, start, duration)


def _kind_and_name(node: Any, is_kernel: bool) -> tuple[str, str]:
  """From 'name = Type(inputs)'; of a GPU's kernel from '...@@name:Type#...' or 'name:Type'."""
  label, name = node.timeline_label, node.node_name
  if is_kernel:
    noted = re.search('@@([^#]*)#', label)
    name, _, kind = (noted[1] if noted else name).partition(':')
    return kind or 'unknown', name
  found = re.search(r' = (\w+)\(', label)
  return (found[1] if found else name), name


def _is_gpu_trace(device: str) -> bool:
  """Whether these are a GPU's kernels, and not the operations that started them."""
  return '/stream:' in device or '/memcpy' in device


def to_json(traced: Sequence[Operation]) -> dict[str, Any]:
  """The trace: a process for each device, in it as many threads as ran side by side.

  The format: "Trace Event Format", of Chrome's catapult project.
  """
  events: list[dict[str, Any]] = []
  for number, device in enumerate(sorted({each.device for each in traced})):
    events.append({'name': 'process_name', 'ph': 'M', 'pid': number, 'args': {'name': device}})
    ends: list[int] = []  # Of what each thread ran last.
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


def table(traced: Sequence[Operation], rows: int) -> Iterator[str]:
  """Lines about those that took longest in all; waiting for another device is left out."""
  costs: dict[tuple[str, str], list[int]] = defaultdict(list)
  for each in _counted(traced):
    costs[each.type, each.name].append(each.duration)
  total = sum(itertools.chain(*costs.values())) or 1
  costliest = sorted(costs.items(), key=lambda item: -sum(item[1]))[:rows]
  wide = max((len(kind) for (kind, _), _ in costliest), default=0)
  yield f'{"operation":{wide}} {"calls":>6} {"total ms":>10} {"share":>6}  name'
  for (kind, name), durations in costliest:
    spent = sum(durations)
    yield f'{kind:{wide}} {len(durations):6} {spent / 1e3:10.2f} {spent / total:6.1%}  {name}'


def _counted(traced: Sequence[Operation]) -> Iterator[Operation]:
  """Of a GPU whose kernels were traced, those; else what ran on the device."""
  kernels = '/stream:all'
  # '/device:GPU:0/stream:all' and '/job:worker/replica:0/task:0/device:GPU:0' are one device.
  timed = tuple(each.device.removesuffix(kernels) for each in traced if kernels in each.device)
  timed = tuple(dict.fromkeys(timed))
  for each in traced:
    if each.type in _WAITING:
      continue
    if _is_gpu_trace(each.device):
      if each.device.endswith(kernels):
        yield each
    elif not each.device.endswith(timed or ('no GPU',)):
      yield each
