"""Runs a whole cluster on this machine, one process per task.

  python -m cifar10.local_cluster --workers 2 --ps 1 -- --data-dir DATA --job-dir JOB

starts a chief, two workers and a parameter server on free ports, each with the flags after `--`,
which are cifar10_main.py's. Each line of their logs starts with the task's name. The last line on
standard output is the chief's result, or the evaluator's where there is one.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import IO

from cifar10 import plan
from cifar10.core import cli
from cifar10.core.errors import InputError
from cifar10.options import flags

_PROGRAM = os.path.join(os.path.dirname(os.path.dirname(__file__)), 'cifar10_main.py')
_GRACE_SECONDS = 20  # For a task to exit after a signal.
_FAREWELL_SECONDS = 60  # For slower workers after the chief is done.
_LOOK_SECONDS = 0.2
_IS_LINUX = sys.platform == 'linux'
# A task gets SIGTERM when this process ends, also if it is killed: 1 is PR_SET_PDEATHSIG.
_END_WITH_PARENT = partial(ctypes.CDLL(None).prctl, 1, signal.SIGTERM) if _IS_LINUX else None


def show(name: str, line: str) -> None:
  """Prints a line of a task's log."""
  with contextlib.suppress(OSError):  # The disk is full, or nobody reads: the tasks go on.
    print(f'{name:>9} | {line}', file=sys.stderr, flush=True)


class LocalCluster(contextlib.AbstractContextManager['LocalCluster']):
  """The processes of a cluster, whose ports are reserved. Leaving the context ends them all.

  `addresses` are the tasks', by job; `names` are 'chief 0', 'worker 0' and so on. By name,
  `processes` has those that were started, and `results` the last line of each one's output.
  """

  def __init__(
    self,
    flags: Sequence[object],
    num_workers: int,
    num_ps: int,
    *,
    evaluator: bool = False,
    show: Callable[[str, str], None] = show,
  ):
    """`flags` are cifar10_main.py's, for all tasks; the workers come beside the chief.

    `show` is called with a task's name and each line of its log, from several threads.
    """
    self._flags = list(map(str, flags))
    counts = {'chief': 1, 'worker': num_workers, 'ps': num_ps, 'evaluator': int(evaluator)}
    self._reserved: list[socket.socket] = []
    self.addresses = {job: [self._reserve() for _ in range(n)] for job, n in counts.items()}
    self.names = [f'{job} {index}' for job, count in counts.items() for index in range(count)]
    self._show = show
    self.processes: dict[str, subprocess.Popen] = {}
    self.results: dict[str, str] = {}
    self._readers: list[threading.Thread] = []

  def tf_config(self, name: str) -> str:
    job, index = name.split()
    return json.dumps({'cluster': self.addresses, 'task': {'type': job, 'index': int(index)}})

  def command(self, name: str) -> list[str]:
    return [sys.executable, _PROGRAM, *self._flags]

  def start(self, *names: str) -> None:
    """Starts or restarts the named tasks; without names all."""
    for name in names or self.names:
      # TF_GRPC_REUSE_PORT: the task listens on the port that is reserved here.
      own = {'TF_CONFIG': self.tf_config(name), 'TF_GRPC_REUSE_PORT': '1', 'PYTHONUNBUFFERED': '1'}
      process = self.processes[name] = subprocess.Popen(
        self.command(name),
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding='utf-8',
        errors='backslashreplace',
        start_new_session=True,  # Ctrl-C reaches this process alone, which ends them.
        preexec_fn=_END_WITH_PARENT,  # noqa: PLW1509
      )
      self._show(name, f'started as process {process.pid}')
      self._read(process.stderr, name, self._show)
      self._read(process.stdout, name, self.results.__setitem__)

  def _read(self, stream: IO[str] | None, name: str, use: Callable[[str, str], None]) -> None:
    def read() -> None:
      for line in stream or ():
        use(name, line.rstrip('\n'))

    self._readers.append(threading.Thread(target=read, daemon=True))
    self._readers[-1].start()

  def codes(self) -> dict[str, int]:
    """Returns the exit codes of the tasks that have ended; negative numbers are signals."""
    started = self.processes.items()
    return {name: code for name, each in started if (code := each.poll()) is not None}

  def wait(self, timeout: float) -> dict[str, int]:
    """Waits up to `timeout` seconds; returns the exit codes of the tasks that have ended."""
    deadline = time.monotonic() + timeout
    while len(codes := self.codes()) < len(self.processes) and time.monotonic() < deadline:
      time.sleep(_LOOK_SECONDS)
    return codes

  def end(self, number: int = signal.SIGTERM) -> None:
    """Sends a signal to all running tasks, and kills those that have not ended in time."""
    for process in self.processes.values():
      process.send_signal(number)  # Nothing to one that has ended.
    self.wait(_GRACE_SECONDS)
    for process in self.processes.values():
      process.kill()
      process.wait()
    for reader in self._readers:
      reader.join(_GRACE_SECONDS)  # A child of a task may keep its streams open.

  def __exit__(self, *exception: object) -> None:
    """After a signal or an error the tasks can save."""
    self.end(signal.SIGTERM if any(exception) else signal.SIGKILL)
    for reserved in self._reserved:
      reserved.close()

  def _reserve(self) -> str:
    """Returns the address of a free port, which only this user's processes can still take."""
    reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(('127.0.0.1', 0))
    self._reserved.append(reserved)
    return f'127.0.0.1:{reserved.getsockname()[1]}'


def main() -> None:
  """Runs the command: starts all tasks, supervises them, prints the result."""
  parser = cli.OneLineParser(description=__doc__)
  parser.add_argument('--workers', type=int, default=1, help='beside the chief (default: 1)')
  parser.add_argument('--ps', type=int, default=1, help='parameter servers (default: 1)')
  parser.add_argument('--evaluator', action='store_true', help='evaluate while training runs')
  parser.add_argument('--sync', action='store_true', help='the same as --sync after --')
  parser.add_argument('flags', nargs='*', help="cifar10_main.py's, after --")
  options, rest = parser.parse_known_args()
  if rest:
    parser.error(f'unrecognized arguments: {" ".join(rest)}: flags of cifar10_main.py follow --')
  sys.argv[1:] = words = [*options.flags, *(['--sync'] if options.sync else [])]
  cluster = LocalCluster(words, options.workers, options.ps, evaluator=options.evaluator)
  # As the chief will check them, so that mistakes are one line.
  mode = plan.check(flags.parse(__doc__), cluster.tf_config('chief 0')).command.mode
  if not mode.startswith('train'):
    raise InputError(f'--mode {mode} belongs to one process; give it to python cifar10_main.py')
  if not options.evaluator and len(cluster.names) > 1:
    show('evaluator', 'none: the validation split has no curve and no best/; --evaluator adds one')
  with cluster:
    cluster.start()
    code = _supervise(cluster)
    cluster.end()
  if code == 0:  # The context has ended, so all output of the tasks is read.
    cli.print_result(cluster.results['evaluator 0' if options.evaluator else 'chief 0'])
  sys.exit(code)


def _supervise(cluster: LocalCluster) -> int:
  """Waits until the training has ended, or a task fails; returns the exit code."""
  results = {'chief 0', 'evaluator 0'} & set(cluster.names)
  while True:
    codes = cluster.codes()
    if all(codes.get(name) == 0 for name in results):
      cluster.wait(_FAREWELL_SECONDS)
      return 0
    for name, code in codes.items():  # Once the chief is done, how a worker ends does not count.
      if code and (name in results or codes.get('chief 0') != 0):
        end = f'signal {-code}' if code < 0 else f'code {code}'
        show(name, f'ended with {end}; ending all tasks')
        return 128 - code if code < 0 else code
    time.sleep(_LOOK_SECONDS)


run = partial(cli.run_process, main)  # The script of pyproject.toml.

if __name__ == '__main__':
  run()
