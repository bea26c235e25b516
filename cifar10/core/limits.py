"""The memory and cores that this process may use."""

import contextlib
import math
import os
from collections.abc import Iterator

# Linux control groups: a folder for each, in that of the group around it. Version 1 has such a tree
# for each kind of limit. A container may see its own group as the root.
_TREE = '/sys/fs/cgroup'
_OF_THIS_PROCESS = '/proc/self/cgroup'
_MEMORY = ('memory.max', 'memory.limit_in_bytes')  # Of version 2, and of version 1.
# The same for processor time: microseconds in each period, and the period.
_QUOTAS = (('cpu.max',), ('cpu.cfs_quota_us', 'cpu.cfs_period_us'))


def memory() -> int:
  """Returns the bytes that this process can get: free memory, or a container's smaller limit."""
  limits = [os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')]
  limits += [kibibytes * 1024 for kibibytes in numbers('/proc/meminfo', 'MemAvailable:')]
  places = [os.path.join(folder, name) for folder in _groups('memory') for name in _MEMORY]
  limits += [limit for path in places for limit in numbers(path)]
  return min(limits)


def cores() -> int:
  """Returns the cores that this process may use: its own, or a container's smaller limit."""
  return min([own_cores(), *(max(1, math.ceil(quota)) for quota in _quotas())])


def threads(asked: int) -> int:
  """Returns how many threads TensorFlow is to have: as asked, or a container's cores; 0: its own.

  TensorFlow ignores a container's limit: it would make a thread for each core of the machine, and
  Linux would pause all of them when the container's time is used up.
  """
  allowed = cores()
  return asked or (allowed if allowed < own_cores() else 0)


def own_cores() -> int:
  """Returns how many of the machine's cores this process may run on."""
  if hasattr(os, 'sched_getaffinity'):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def _quotas() -> Iterator[float]:
  """Yields the limits of control groups on processor time, in cores."""
  for folder in _groups('cpu'):
    for names in _QUOTAS:
      lines = [_first_line(os.path.join(folder, name)) for name in names]
      words = [word for line in lines for word in line.split()]
      if len(words) == 2 and all(word.isdecimal() for word in words):
        yield int(words[0]) / int(words[1])


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


def numbers(path: str, start: str = '') -> list[int]:
  """Returns the number in the first line with this start; [] without the file, as on macOS."""
  words = _first_line(path, start).removeprefix(start).split()
  return [int(words[0])] if words and words[0].isdecimal() else []


def _first_line(path: str, start: str = '') -> str:
  """Returns the first line of a file with this start; '' without line or file."""
  try:
    with open(path, encoding='ascii', errors='replace') as file:
      return next((line for line in file if line.startswith(start)), '')
  except OSError:
    return ''
