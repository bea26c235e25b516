"""Pipes, folders, devices and huge files in the place of small files."""

import json
import os
import socket

from harness import Case, cases

TITLE = 'paths that are not regular files'
BEFORE = '10 of 37'
WAS = 'a pipe is waited for without end, /dev/zero is read until the memory is full'
NOW = 'small files must be regular ones below 16 MB, and there are 2,000 classes at most'


def _in_place(name, make):
  def prepare(place):
    path = place.path(*name.split('/'))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
      os.remove(path)
    make(path)

  return prepare


def _sparse(path):
  with open(path, 'wb') as file:
    file.truncate(1 << 40)


def _socket(path):
  here = os.getcwd()
  os.chdir(os.path.dirname(path))  # Names of sockets are short.
  socket.socket(socket.AF_UNIX).bind(os.path.basename(path))
  os.chdir(here)


_KINDS = {
  'fifo': os.mkfifo,
  'zeros': lambda path: os.symlink('/dev/zero', path),
  'sparse': _sparse,
  'folder': os.mkdir,
  'socket': _socket,
}
_FILES = {  # And the commands that read them, with their codes.
  'job/config.json': {'evaluate': (2,), 'resume': (2,)},
  'job/checkpoint': {'evaluate': (2,), 'resume': (0,)},
  'job/ended.json': {'resume': (0, 2)},
  'job/metrics.jsonl': {'resume': (0, 1, 2), 'table': (0, 1, 2), 'export saved_model': (0, 1, 2)},
  'job/best/best.json': {'list': (0, 2)},
  'data/cifar10.json': {'evaluate': (0, 2), 'train': (0, 2)},
  'job/control/request-1-a-1-1.json': {'resume': (0,)},
  'job/control/claim-a-1-0123abcd.json': {'control': (1,), 'resume': (0, 2)},
}
CASES = [
  Case(
    f'{name} {kind} {command}',
    command,
    codes,
    prepare=_in_place(name, make),
    kept=('data/train.tfrecords', 'job/model.ckpt-8.*'),
    seconds=60,
  )
  for name, commands in _FILES.items()
  for command, codes in commands.items()
  for kind, make in _KINDS.items()
  if kind != 'socket' or command in ('evaluate', 'control')
]
_BEST = ['cifar10_main.py', '--job-dir', 'job', '--data-dir', 'data', '--mode', 'evaluate']
CASES += [
  Case(
    f'best.json {kind}',
    [*_BEST, '--checkpoint', 'best'],
    (2,),
    prepare=_in_place('job/best/best.json', make),
    seconds=60,
  )
  for kind, make in _KINDS.items()
]


def _many_classes(count):
  def prepare(place):
    content = {'name': 'many', 'classes': [f'class {number}' for number in range(count)]}
    place.write('data/cifar10.json', json.dumps(content))

  return prepare


CASES += [
  Case(
    f'{count} classes {command}',
    command,
    codes,
    prepare=_many_classes(count),
    kept=('data/train.tfrecords',),
    seconds=60,
  )
  for count, codes in ((1_000, (0,)), (100_000, (2,)), (1_000_000, (2,)))
  for command in ('train', 'train and evaluate', 'dry run')
]


@cases(CASES)
def test_no_files(run_case, case):
  run_case(case)
