"""Hostile surroundings: a command, what is done to it, and what must hold when it has ended.

Each test_*.py here is a class of them. It has TITLE, CASES, BEFORE (of how many of the cases the
program handled how many before) and in words WAS and NOW, which test_table.py compares with
docs/failures.md. `run` takes a case, runs its command and checks what must always hold.

A command runs in a forked child of launcher.py, which has imported TensorFlow once and nothing
else, so that a case takes a second; with `fresh` in a process of its own from the start, for what
that changes: limits of memory, closed streams, signals while TensorFlow is imported.
"""

import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TESTS)
JOB = os.path.join(TESTS, 'jobs_of_e632993', 'resnet8')
LAUNCHER = os.path.join(TESTS, 'hostile', 'launcher.py')
LONGEST_LINE = 600  # Of an error, with two paths in it.
LIMIT_SECONDS = 100

_MAIN = 'cifar10_main.py'
_SMALL = ['--num-layers', '8', '--train-batch-size', '8', '--eval-batch-size', '64']
_DATA = ['--data-dir', 'data']
_OLD = [_MAIN, '--job-dir', 'job']
_TRAIN = [_MAIN, *_DATA, '--job-dir', 'new', *_SMALL, '--train-steps', '2']
ANY_NETWORK = [_MAIN, *_DATA, '--job-dir', 'new', *_SMALL[2:], '--mode', 'train']
COMMANDS = {  # By short names; they run in the place's folder.
  'generate': ['generate_cifar10_tfrecords.py', '--data-dir', 'made', '--synthetic', '20'],
  'train': [*_TRAIN, '--mode', 'train'],
  'train and evaluate': [*_TRAIN],
  'dry run': [*_TRAIN, '--dry-run'],
  'resume': [*_OLD, *_DATA, '--mode', 'train', '--train-steps', '10'],
  'evaluate': [*_OLD, *_DATA, '--mode', 'evaluate'],
  'predict': [*_OLD, '--mode', 'predict', '--images', 'grey.png'],
  'export saved_model': [*_OLD, '--mode', 'export'],
  'export onnx': [*_OLD, '--mode', 'export', '--format', 'onnx'],
  'export keras': [*_OLD, '--mode', 'export', '--format', 'keras'],
  'list': ['cifar10.checkpoint', 'list', 'job'],
  'dump': ['cifar10.checkpoint', 'dump', 'job', '--out', 'dumped.npz'],
  'dump checkpoint': ['cifar10.checkpoint', 'dump', 'job', '--out', 'dumped'],
  'average': ['cifar10.checkpoint', 'average', 'job', '--out', 'mean.npz', *_OLD[1:], *_DATA],
  'report': ['cifar10.report', 'job', *_DATA, '--out', 'report.html'],
  'table': ['cifar10.report', 'job', *_DATA, '--table'],
  'control': ['cifar10.control', 'job', 'save'],
  'cluster': ['cifar10.local_cluster', '--workers', '0', '--ps', '1', '--', *_TRAIN[1:]],
}


class Place(NamedTuple):
  """Where a case runs: a data dir `data`, a trained ResNet-8 in `job`, an image `grey.png`."""

  folder: str

  def path(self, *names: str) -> str:
    """Of a file in it."""
    return os.path.join(self.folder, *names)

  def write(self, name: str, text: str | bytes) -> None:
    """Writes a file in it, in the place of what is there."""
    with open(self.path(name), 'wb') as file:
      file.write(text if isinstance(text, bytes) else text.encode('utf-8', 'surrogateescape'))


class Ended(NamedTuple):
  """How a command ended."""

  code: int  # Negative: the signal.
  stdout: bytes
  stderr: bytes

  @property
  def said(self) -> str:
    return self.stderr.decode('utf-8', 'replace')

  @property
  def errors(self) -> list[str]:
    """Its lines of errors."""
    return [line for line in self.said.splitlines() if line.startswith('error: ')]


def nothing(*arguments: Any) -> None:
  """What a case does by default."""


def has_result(place: Place, ended: Ended) -> None:
  """A check: there is a result."""
  assert ended.stdout, ended.said


class Case(NamedTuple):
  """One hostile surrounding."""

  name: str
  command: str | list[str]  # One of COMMANDS, or words.
  codes: tuple[int, ...]  # With which it may end.
  more: tuple[str, ...] = ()  # Words added to the command.
  prepare: Callable[[Place], Any] = nothing
  limits: Mapping[str, int] = MappingProxyType({})  # By names of `resource`: 'RLIMIT_AS': bytes.
  environment: Mapping[str, str] = MappingProxyType({})
  stdout: str | None = 'out'  # A file in the place; None: closed.
  stderr: str | None = 'err'
  fresh: bool = False
  shell: str = ''  # Run before it, in a shell that becomes the command; only if `fresh`.
  # A signal, a part of the name of a library, and how many seconds after that is loaded it comes.
  signal: tuple[int, str, float] | None = None
  says: str = ''  # Must be in its error.
  check: Callable[[Place, Ended], Any] = nothing
  kept: tuple[str, ...] = ('data', 'grey.png', 'job/model.ckpt-8.*')  # Must be as before.
  seconds: int = LIMIT_SECONDS


def cases(given: list[Case]) -> Any:
  """The decorator of a class's test."""
  return pytest.mark.parametrize(
    'case',
    [pytest.param(each, id=each.name.replace(' ', '_'), marks=_marks(each)) for each in given],
  )


def _marks(case: Case) -> list[Any]:
  if 'unshare' not in case.shell or _can_mount():
    return [pytest.mark.long]
  return [pytest.mark.long, pytest.mark.skip(reason='only root can mount a file system')]


@functools.cache
def _can_mount() -> bool:
  """Root, and in a container also allowed to."""
  if os.geteuid() != 0:
    return False
  command = ['unshare', '--mount', 'true']
  tried = shutil.which(command[0]) and subprocess.run(command, capture_output=True, check=False)
  return bool(tried) and tried.returncode == 0


def make_place(folder: Any, data_dir: str) -> Place:
  """Fills an empty folder; `data_dir`: of the fixture of this name."""
  place = Place(str(folder))
  shutil.copytree(data_dir, place.path('data'))
  shutil.copytree(JOB, place.path('job'))
  shutil.copy(os.path.join(TESTS, 'hostile', 'grey.png'), place.path('grey.png'))
  return place


def run(case: Case, place: Place, launcher: 'Launcher') -> Ended:
  """Runs a case and checks what must always hold, and what the case says."""
  case.prepare(place)
  before, kept = _digests(place, ('*',)), _digests(place, case.kept)
  words = COMMANDS[case.command] if isinstance(case.command, str) else case.command
  request = {
    'argv': [*words, *case.more],
    'folder': place.folder,
    'environment': dict(case.environment),
    'limits': dict(case.limits),
    'streams': [case.stdout, case.stderr],
    'shell': case.shell,
    'signal': case.signal,
  }
  code = _fresh(request, case.seconds) if case.fresh else launcher.run(request, case.seconds)
  ended = Ended(code, *(_content(place, name) for name in (case.stdout, case.stderr)))
  _check(case, ended)
  assert _digests(place, case.kept) == kept
  _check_files(place, before)
  case.check(place, ended)
  return ended


def _check(case: Case, ended: Ended) -> None:
  said = ended.said[-3000:]
  assert ended.code != 128 + signal.SIGALRM, f'no end within {case.seconds} s: {said}'
  assert ended.code in case.codes, (ended.code, said)
  assert 'Traceback' not in ended.said and 'Fatal Python error' not in ended.said, said
  assert len(ended.errors) <= 1, said
  assert (
    not case.stderr
    or case.stderr.startswith('/')
    or ended.code in (0, 130)
    or 'error: ' in ended.said
  )
  assert max(map(len, ended.said.splitlines()), default=0) <= LONGEST_LINE, said[:3000]
  assert case.says in ''.join(ended.errors or [ended.said]), said
  lines = ended.stdout.decode().splitlines()
  assert len(lines) <= 1, lines
  if '--version' not in case.command:
    assert all(isinstance(strict_json(line), dict) for line in lines)


def _check_files(place: Place, before: dict[str, str]) -> None:
  """What was written as JSON must be JSON."""
  for name, digest in _digests(place, ('*',)).items():
    if before.get(name) != digest and name.endswith(('.json', '.jsonl')):
      with open(place.path(name), encoding='utf-8') as file:
        for text in [file.read()] if name.endswith('.json') else file:
          strict_json(text)


def strict_json(text: str) -> Any:
  """Parsed as other programs do: without NaN and the infinities."""

  def refuse(word: str) -> None:
    raise ValueError(f'{word} is not JSON')

  return json.loads(text, parse_constant=refuse)


class Launcher:
  """launcher.py, which forks the commands."""

  def __init__(self) -> None:
    self._process = subprocess.Popen(
      [sys.executable, LAUNCHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )

  def run(self, request: dict[str, Any], seconds: float) -> int:
    """The exit code, or the signal's number below 0."""
    assert self._process.stdin and self._process.stdout
    self._process.stdin.write(json.dumps({**request, 'seconds': seconds}) + '\n')
    self._process.stdin.flush()
    return int(self._process.stdout.readline())

  def end(self) -> None:
    """Ends it."""
    self._process.communicate()


def _fresh(request: dict[str, Any], seconds: float) -> int:
  asked = json.dumps({**request, 'seconds': seconds})
  done = subprocess.run(
    [sys.executable, LAUNCHER, asked], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True
  )
  return int(done.stdout)


def _content(place: Place, name: str | None) -> bytes:
  if not name or name.startswith('/'):
    return b''
  with open(place.path(name), 'rb') as file:
    return file.read()


def _digests(place: Place, patterns: tuple[str, ...]) -> dict[str, str]:
  """The SHA-256 of the files that fit, and of all in folders that do."""
  found = {}
  for folder, _, names in os.walk(place.folder):
    for path in (os.path.join(folder, name) for name in names):
      short = os.path.relpath(path, place.folder)
      if any(_fits(short, pattern) for pattern in patterns) and os.path.isfile(path):
        with open(path, 'rb') as file:  # Some seem to have a terabyte.
          found[short] = hashlib.sha256(file.read(1 << 24)).hexdigest()
  return found


def _fits(path: str, pattern: str) -> bool:
  if pattern.endswith('*'):  # The name itself may have any other sign of patterns in it.
    return path.startswith(pattern[:-1])
  return path == pattern or path.startswith(pattern + os.sep)
