"""Starts commands for harness.py and says how each ended.

  python launcher.py REQUEST      the command in a process of its own
  python launcher.py              one request a line; each in a fork that has imported TensorFlow

A request is JSON: argv, folder, environment, limits, streams and so on, as `harness.Case` has them.
What is printed is the exit code, or below 0 the number of the signal; 142 where it had to be ended.
"""

import contextlib
import importlib
import json
import os
import resource
import runpy
import select
import signal
import sys
import time
import types

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENDED_BY_US = 128 + signal.SIGALRM


def main():
  """Obeys the request of the command line, or those that come."""
  sys.path.insert(0, ROOT)
  if len(sys.argv) > 1:
    request = json.loads(sys.argv[1])
    print(watched(start(request, new_process), request))
    return
  import_all()
  for line in sys.stdin:
    request = json.loads(line)
    print(watched(start(request, same_process), request), flush=True)


def import_all():
  """What commands load, without starting a thread of it."""
  os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
  from cifar10.core import start_tensorflow  # noqa: PLC0415

  start_tensorflow.start()
  for name in ('cifar10_main', 'cifar10.modes', 'cifar10.training.trainer', 'cifar10.checkpoint'):
    importlib.import_module(name)


def start(request, become):
  """Forks -> the number of the child, the leader of a group of its own, and what it prints to."""
  pipes = {name: os.pipe() for name in request['streams'] if is_read(name)}
  child = os.fork()
  if child:
    for _, writer in pipes.values():
      os.close(writer)
    return child, {reader: name for name, (reader, _) in pipes.items()}
  os.setpgid(0, 0)
  os.environ.update(request['environment'], CUDA_VISIBLE_DEVICES='-1')
  os.chdir(request['folder'])
  lead(0, os.open(os.devnull, os.O_RDONLY))
  for stream, name in enumerate(request['streams'], 1):
    lead(stream, pipes[name][1] if name in pipes else name and os.open(name, os.O_WRONLY))
  for name, limit in request['limits'].items():
    resource.setrlimit(getattr(resource, name), (limit, limit))
  become(request['shell'], *request['argv'])
  raise AssertionError('it has returned')


def is_read(name):
  """Whether a stream is a pipe, whose content goes to a file: no limit of files holds for it."""
  return bool(name) and not name.startswith('/')


def lead(stream, file):
  """Gives a file the number of a standard stream; None closes that."""
  if file is None:
    os.close(stream)
  elif file != stream:
    os.dup2(file, stream)
    os.close(file)


def new_process(shell, name, *words):
  """Becomes the command, after what a shell does first."""
  place = ['-m', name] if name.startswith('cifar10.') else [os.path.join(ROOT, name)]
  os.environ['PYTHONPATH'] = os.pathsep.join([ROOT, os.environ.get('PYTHONPATH', '')])
  command = [sys.executable, *place, *words]
  if shell:
    command = ['/bin/sh', '-c', f'{shell} && exec "$@"', 'sh', *command]
  os.execv(command[0], command)


def same_process(shell, name, *words):
  """Runs the command as Python runs a file or a module, to the end of the interpreter."""
  assert not shell
  sys.path[:] = [os.getcwd(), *sys.path]
  sys.argv = [name, *words]
  sys.stdin, sys.stdout, sys.stderr = map(opened, range(3))
  if name.startswith('cifar10.'):
    runpy.run_module(name, run_name='__main__', alter_sys=True)
    return
  path = os.path.join(ROOT, name)
  sys.modules['__main__'] = module = types.ModuleType('__main__')
  module.__file__ = path
  with open(path, encoding='utf-8') as file:  # Closed before it runs: it may have number 1 or 2.
    text = file.read()
  exec(compile(text, path, 'exec'), vars(module))


def opened(stream):
  """A standard stream as Python opens it when it starts; None where it is closed."""
  try:
    os.fstat(stream)
  except OSError:
    return None
  settings = {'errors': 'backslashreplace', 'buffering': 1} if stream == 2 else {}
  return open(stream, 'w' if stream else 'r', encoding='utf-8', closefd=False, **settings)


def is_loaded(child, library):
  """Whether a process has loaded this library."""
  try:
    with open(f'/proc/{child}/maps', encoding='utf-8') as file:
      return library in file.read()
  except OSError:
    return False


def watched(started, request):
  """Waits for the end of a child, and ends it after so many seconds."""
  child, pipes = started
  said = dict.fromkeys(pipes, b'')
  deadline = time.monotonic() + request['seconds']
  number, library, later = request['signal'] or (0, '', 0)
  code = None
  while code is None and time.monotonic() < deadline:
    if number and is_loaded(child, library):
      time.sleep(later)
      os.kill(child, number)
      number = 0
    ended, status = os.waitpid(child, os.WNOHANG)
    code = os.waitstatus_to_exitcode(status) if ended else None
    for pipe in select.select(list(pipes), [], [], 0 if ended else 0.01)[0]:
      said[pipe] += os.read(pipe, 1 << 16)
  with contextlib.suppress(ProcessLookupError):  # What it has left behind, too.
    os.killpg(child, signal.SIGKILL)
  if code is None:
    os.waitpid(child, 0)
  for pipe, name in pipes.items():
    while chunk := os.read(pipe, 1 << 16):
      said[pipe] += chunk
    os.close(pipe)
    with open(os.path.join(request['folder'], name), 'wb') as file:
      file.write(said[pipe])
  return ENDED_BY_US if code is None else code


if __name__ == '__main__':
  main()
