"""Starts commands for harness.py and says how each ended.

  python launcher.py REQUEST      the command in a process of its own
  python launcher.py              one request a line; each in a fork that has imported TensorFlow

A request is JSON: argv, folder, environment, limits, streams and seconds. What is printed is the
exit code, or below 0 the number of the signal; 142 where it had to be ended.
"""

import contextlib
import importlib
import json
import os
import resource
import runpy
import signal
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENDED_BY_US = 128 + signal.SIGALRM


def main():
  """Obeys the request of the command line, or those that come."""
  sys.path.insert(0, ROOT)
  if len(sys.argv) > 1:
    request = json.loads(sys.argv[1])
    print(watched(start(request, new_process), request['seconds']))
    return
  import_all()
  for line in sys.stdin:
    request = json.loads(line)
    print(watched(start(request, same_process), request['seconds']), flush=True)


def import_all():
  """What commands load, without starting a thread of it."""
  os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
  from cifar10.core import lazy_tf  # noqa: PLC0415

  lazy_tf.import_tensorflow()
  for name in ('cifar10_main', 'cifar10.modes', 'cifar10.training.trainer', 'cifar10.checkpoint'):
    importlib.import_module(name)


def start(request, become):
  """Forks -> the number of the child, which is the leader of a group of its own."""
  child = os.fork()
  if child:
    return child
  os.setpgid(0, 0)
  os.environ.update(request['environment'], CUDA_VISIBLE_DEVICES='-1')
  os.chdir(request['folder'])
  for stream, name in enumerate(request['streams'], 1):
    lead(stream, name)
  lead(0, '/dev/null')
  for name, limit in request['limits'].items():
    resource.setrlimit(getattr(resource, name), (limit, limit))
  become(*request['argv'])
  raise AssertionError('it has returned')


def lead(stream, name):
  """Leads a file descriptor to a file; without a name closes it."""
  if name is None:
    os.close(stream)
    return
  mode = os.O_RDONLY if stream == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
  file = os.open(name, mode, 0o644)
  os.dup2(file, stream)
  if file != stream:
    os.close(file)


def new_process(name, *words):
  """Becomes the command."""
  place = ['-m', name] if name.startswith('cifar10.') else [os.path.join(ROOT, name)]
  os.environ['PYTHONPATH'] = os.pathsep.join([ROOT, os.environ.get('PYTHONPATH', '')])
  os.execv(sys.executable, [sys.executable, *place, *words])


def same_process(name, *words):
  """Runs the command as Python runs a file or a module, to the end of the interpreter."""
  sys.path[:] = [os.getcwd(), *sys.path]
  sys.argv = [name, *words]
  sys.stdout = open(1, 'w', encoding='utf-8', closefd=False)  # noqa: SIM115
  sys.stderr = open(2, 'w', encoding='utf-8', closefd=False, buffering=1, errors='backslashreplace')  # noqa: SIM115
  if name.startswith('cifar10.'):
    runpy.run_module(name, run_name='__main__', alter_sys=True)
  else:
    runpy.run_path(os.path.join(ROOT, name), run_name='__main__')


def watched(child, seconds):
  """Waits for the end of a child, and ends it after so many seconds."""
  deadline = time.monotonic() + seconds
  code = None
  while code is None and time.monotonic() < deadline:
    ended, status = os.waitpid(child, os.WNOHANG)
    code = os.waitstatus_to_exitcode(status) if ended else None
    time.sleep(0 if ended else 0.01)
  with contextlib.suppress(ProcessLookupError):  # What it has left behind, too.
    os.killpg(child, signal.SIGKILL)
  if code is None:
    os.waitpid(child, 0)
  return ENDED_BY_US if code is None else code


if __name__ == '__main__':
  main()
