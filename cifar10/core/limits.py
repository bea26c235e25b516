"""The memory and cores that this process may use, so that what cannot fit is refused."""

import math
import os
import resource
from collections.abc import Iterator

_LIMITS = (  # Of a container: version 2 of Linux's control groups, and version 1.
  '/sys/fs/cgroup/memory.max',
  '/sys/fs/cgroup/memory/memory.limit_in_bytes',
)
# The same of its processor time: microseconds in each period, and the period's.
_QUOTAS = (
  ('/sys/fs/cgroup/cpu.max',),
  ('/sys/fs/cgroup/cpu/cpu.cfs_quota_us', '/sys/fs/cgroup/cpu/cpu.cfs_period_us'),
)


def memory() -> int:
  """Bytes that this process can get at most: the free memory, or its limit where that is less."""
  limits = [os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')]
  limits += [kibibytes * 1024 for kibibytes in _numbers('/proc/meminfo', 'MemAvailable:')]
  limits += [limit for path in _LIMITS for limit in _numbers(path)]
  return min([*limits, room() or limits[0]])


def room() -> int | None:
  """Bytes that this process may have of address space (`ulimit -v`); None: there is no limit."""
  allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
  return None if allowed == resource.RLIM_INFINITY else allowed


def cores() -> int:
  """How many cores this process may keep busy: its own, or fewer by its container's limit."""
  return min([own_cores(), *(max(1, math.ceil(quota)) for quota in _quotas())])


def own_cores() -> int:
  """How many of the machine's cores this process may run on."""
  if hasattr(os, 'sched_getaffinity'):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def _quotas() -> Iterator[float]:
  """The limits of control groups on processor time, in cores; none where there is no limit."""
  for paths in _QUOTAS:
    words = [word for path in paths for word in _first_line(path).split()]
    if len(words) == 2 and all(word.isdecimal() for word in words):
      yield int(words[0]) / int(words[1])


def _numbers(path: str, start: str = '') -> list[int]:
  """The number in the first line with this start; none where there is no such file, as on macOS."""
  words = _first_line(path, start).removeprefix(start).split()
  return [int(words[0])] if words and words[0].isdecimal() else []


def _first_line(path: str, start: str = '') -> str:
  """The first line of a file with this start; '' where there is none, or no file."""
  try:
    with open(path, encoding='ascii') as file:
      return next((line for line in file if line.startswith(start)), '')
  except OSError:
    return ''
