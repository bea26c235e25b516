"""The memory and cores that this process may use."""

import contextlib
import math
import os
from collections.abc import Iterator

# Linux control groups: a folder for each, in that of the group around it. Version 1 has such a tree
# for each kind of limit. A container may see its own group as the root.
_TREE = '/sys/fs/cgroup'
_OF_THIS_PROCESS = '/proc/self/cgroup'


def memory() -> int:
  """Returns the bytes that this process can get: free memory, or a container's smaller limit."""
  limits = [os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')]
  limits += [kibibytes * 1024 for kibibytes in _numbers('/proc/meminfo', 'MemAvailable:')]
  for name in ('memory.max', 'memory.limit_in_bytes'):  # Of version 2, and of version 1.
    limits += [limit for folder in _groups('memory') for limit in _numbers(f'{folder}/{name}')]
  return min(limits)


def cores() -> int:
  """Returns the cores that this process may use: its own, or a container's smaller limit."""
  quotas = []  # Each microseconds of processor time, and the period in which it may have them.
  for folder in _groups('cpu'):
    quotas.append(_numbers(f'{folder}/cpu.max'))
    quotas.append(_numbers(f'{folder}/cpu.cfs_quota_us') + _numbers(f'{folder}/cpu.cfs_period_us'))
  allowed = [math.ceil(quota[0] / quota[1]) for quota in quotas if len(quota) == 2]
  return max(1, min([_own_cores(), *allowed]))


def set_threads(**asked: int) -> None:
  """Sets how many threads TensorFlow makes, `intra` and `inter` its operations; 0: one per core.

  It does so once, in its first session or function. Of a container's limit it knows nothing: it
  would make a thread for each core of the machine, and Linux would pause all of them when the
  container's time is used up.
  """
  for kind in ('intra', 'inter'):
    name = f'TF_NUM_{kind.upper()}OP_THREADS'
    if asked.get(kind):
      os.environ[name] = str(asked[kind])
    elif cores() < _own_cores():
      os.environ.setdefault(name, str(cores()))


def _own_cores() -> int:
  return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def _groups(kind: str) -> Iterator[str]:
  """Yields the folders of the control groups around this process that may limit memory or cpu."""
  tree = os.path.join(_TREE, kind)
  yield from (_TREE, tree)
  with contextlib.suppress(OSError, ValueError), open(_OF_THIS_PROCESS, 'rb') as file:
    for line in file:  # As 0::/system.slice/slurmstepd.scope, or 4:cpu,cpuacct:/user.slice
      _, kinds, group = os.fsdecode(line.rstrip(b'\n')).split(':', 2)
      if not kinds or kind in kinds.split(','):
        while group.strip('/'):
          yield (tree if kinds else _TREE) + group
          group = os.path.dirname(group)


def _numbers(path: str, start: str = '') -> list[int]:
  """Returns the numbers in the first line with this start; [] without the file, as on macOS."""
  with contextlib.suppress(OSError), open(path, encoding='ascii', errors='replace') as file:
    line = next((each for each in file if each.startswith(start)), '')
    return [int(word) for word in line.removeprefix(start).split() if word.isdecimal()]
  return []
