"""Hostile values, paths, files and code: each ends a command by itself, with one line of error.

Standard output is then empty or one line of JSON, and what was there before is whole. The tables
have one case of each kind. What is drawn at random is the same each time.
"""

import contextlib
import json
import os
import shutil
import sys

import checkout
import pytest

import cifar10_main
import generate_cifar10_tfrecords
from cifar10 import checkpoint, control, local_cluster, report
from cifar10.core.errors import InputError
from cifar10.data import manifest
from cifar10.job import checkpoints, control_requests, job_config, stop_record
from cifar10.options import flags
from cifar10.options.hparams import all_values, from_values

SMALL = ['--network', 'tiny_network:Tiny', '--train-batch-size', '8', '--eval-batch-size', '64']
TRAIN = [cifar10_main, '--data-dir', 'data', '--job-dir', 'new', *SMALL, '--train-steps', '2']
EVALUATE = [cifar10_main, '--job-dir', 'job', '--data-dir', 'data', '--mode', 'evaluate']
PREDICT = [cifar10_main, '--job-dir', 'job', '--mode', 'predict', '--images', 'grey.png']
GENERATE = [generate_cifar10_tfrecords, '--data-dir', 'made', '--synthetic', '20']
TABLE = [report, 'job', '--data-dir', 'data', '--table']
DUMP = [checkpoint, 'dump', 'job', '--out']
LONGEST_LINE = 600  # Of an error, with two paths in it.


@pytest.fixture
def place(data_dir, old_job, tmp_path, monkeypatch):
  """Where a case runs: a data dir `data`, a trained ResNet-8 in `job`, an image `grey.png`."""
  shutil.copytree(data_dir, tmp_path / 'data')
  shutil.copy(f'{checkout.ROOT}/tests/hostile/grey.png', tmp_path)
  (tmp_path / 'circle').symlink_to('circle')
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.delitem(sys.modules, 'own', raising=False)
  return tmp_path


def whole(folder):
  """The content of what no case may change."""
  kept = [*folder.glob('data/*'), *folder.glob('job/model.ckpt*'), folder / 'grey.png']
  return {path: path.read_bytes() for path in kept if path.is_file()}


def check(result, *codes, says=''):
  said = result.stderr
  assert result.returncode in codes, said[-3000:]
  assert 'Traceback' not in said, said[-3000:]
  errors = [line for line in said.splitlines() if line.startswith('error: ')]
  assert len(errors) == (result.returncode != 0), said[-3000:]
  assert max(map(len, said.splitlines()), default=0) <= LONGEST_LINE
  assert all(letter.isprintable() for line in errors for letter in line)
  assert says in ''.join(errors)
  assert all(isinstance(json.loads(line), dict) for line in result.stdout.splitlines())


# Values of flags: long ones, line breaks and control characters, no UTF-8, below their least.
LONG, LINES, BYTES = 'x' * 40_000, 'a\nb\r\x1b[31mc\x07\x85d\u2028e', 'a\udcffb'
VALUES = [
  *([*TRAIN, f'{flag}={LONG}'] for flag in ('--learning-rate', '--network', '--source')),
  *([*TRAIN, f'{flag}={LINES}'] for flag in ('--lr-values', '--recipe', '--callback', '--mode')),
  *([*TRAIN, f'{flag}={BYTES}'] for flag in ('--data-dir', '--warm-start-from', '--widths')),
  *([*EVALUATE, f'{flag}={LINES}'] for flag in ('--checkpoint', '--subset', '--nonsense')),
  [*TRAIN, '--learning-rate=-0.1'],
  [*TRAIN, '--lr-values=1,0.1,0.01,-0.002'],
  [*GENERATE, f'--synthetic={LONG}'],
  [*GENERATE, f'--images={BYTES}'],
  [*GENERATE, f'--split={LINES}'],
  [checkpoint, LINES],
  [checkpoint, 'list', BYTES],
  [report, '--table', LONG],
  [control, 'job', LINES],
  [local_cluster, f'--workers={LINES}'],
]
# Paths that are something else, too long, a circle, or where nobody may write, root included.
PATHS = [
  *([*TRAIN, '--job-dir', path] for path in ('grey.png', 'grey.png/job', 'circle', '/proc/job')),
  *([*TRAIN, '--job-dir', path] for path in ('x' * 300, '', 'runs/lr[0.1]')),  # A pattern.
  *([*TRAIN, '--data-dir', path] for path in ('grey.png', 'circle')),
  *([*GENERATE, '--data-dir', path] for path in ('grey.png', '/proc/made')),
  [*GENERATE[:-2], '--images', 'grey.png'],
  [*GENERATE[:-2], '--archive', 'data'],
  [*PREDICT, '--out', 'none/answers.csv'],
  [*TABLE, '--out', 'none/report.html'],
  [*DUMP, 'grey.png/dumped.npz'],
]


@pytest.mark.parametrize('words', [*VALUES, *PATHS], ids=lambda words: f'{words[-1]!r:.30}')
def test_values_and_paths(run_here, place, words):
  before = whole(place)
  command, *given = words
  check(run_here(*given, command=command), 1, 2)
  assert whole(place) == before
  assert {'circle', 'data', 'grey.png', 'job'} >= set(os.listdir()) - {'made'}


NONSENSE = ['', '0', '-1', '1e308', 'nan', 'inf', '1,2', '2147483648', 'a b', "'"]


def test_every_flag_of_training_with_nonsense(run_here, tmp_path, monkeypatch):
  """Refused, or accepted and then without data; what chooses devices a process may have once."""
  monkeypatch.chdir(tmp_path)
  apart = {'--job-dir', '--data-dir', '--num-cpu-towers', '--verbose', '--mode'}
  actions = [
    action
    for action in flags.full_parser()._actions
    if action.nargs != 0 and not apart & set(action.option_strings)
  ]
  assert len(actions) > 40
  for number, action in enumerate(actions):
    for value in (NONSENSE + NONSENSE)[number % 10 :][:3]:
      given = ['--job-dir', 'job', '--data-dir', 'no', f'{action.option_strings[-1]}={value}']
      check(run_here(*given), 2)
  assert os.listdir(tmp_path) == []


SOURCE = """
import numpy as np

def parts():
  for number in range(64):
    if number == 20:
      {strike}
    yield np.zeros([32, 32, 3], np.uint8), number % 10
"""
CALLBACK = """
import cifar10

class parts(cifar10.Callback):
  def __init__(self, run):
    pass
  def on_step_end(self, step):
    {strike}
"""
STRIKES = [
  'sys.exit(0)',
  "raise type('Bare', (BaseException,), {})('enough')",
  "raise ValueError('x\\n' * 10**6)",
  "raise ValueError('\\udc80 \\0\\x1b[2J')",
  'list(parts())',  # Without an end.
  'raise MemoryError()',
]
CASES = [*((SOURCE, strike) for strike in STRIKES), (CALLBACK, STRIKES[1])]


@pytest.mark.parametrize(('text', 'strike'), CASES)
def test_failing_code_of_users(run_here, place, text, strike):
  (place / 'own.py').write_text('import sys\n' + text.replace('{strike}', strike))
  given = ['--callback', 'own:parts']
  if text is SOURCE:
    given = ['--source', 'own:parts', '--examples-per-epoch', '64']
  check(run_here(*TRAIN[1:], '--mode', 'train', *given), 1, says=' '.join(given[:2]))


# Contents of files: a value of a JSON object is gone or another.
ODD = [None, True, -1, 10**30, 1e308, float('nan'), '', '\x00', '\ud800', 'a' * 5000, [], [1], {}]


@contextlib.contextmanager
def refusals():
  """Lets an InputError pass whose message is one line; anything else fails the test."""
  try:
    yield
  except InputError as error:
    assert len(str(error).splitlines()) == 1


def texts(content):
  """A JSON object with each odd value in each place, and what is no object."""
  for key in content:
    for value in ODD:
      yield json.dumps({**content, key: value}).encode()
    yield json.dumps({name: content[name] for name in content if name != key}).encode()
  yield from (
    b'',
    b'{',
    100_000 * b'[',
    b'[]',
    b'null',
    b'NaN',
    b'\xff\xfe',
    json.dumps(content).encode(),
  )


def test_job(tmp_path):
  """config.json, ended.json, best.json."""
  job = str(tmp_path)
  (tmp_path / 'best').mkdir()
  (tmp_path / 'checkpoint').touch()  # So that it has begun.
  data = {'data_set': manifest.CIFAR10.to_json(), 'data': {'train': 'a', 'eval': 'b'}}
  config = {**all_values(from_values({})), **data, 'control': {'learning_rate': 0.1}}
  for text in list(texts(config))[::4]:
    (tmp_path / 'config.json').write_bytes(text)
    with refusals():
      read = job_config.read_config(job)
      for training in (True, False):
        hparams = job_config.adopt_config({}, read, job, training=training)
      job_config.described_data(job, None)
      control_requests.read_rates(job)
      job_config.before_and_now(job, hparams, 'data', manifest.CIFAR10, None)
  for text in texts({'name': 'control', 'message': 'stop', 'value': 0.0, 'step': 8}):
    (tmp_path / stop_record.NAME).write_bytes(text)
    with refusals():
      assert isinstance(stop_record.read(job)[1], int)
  for text in texts({'accuracy': 0.5, 'global_step': 4, 'checkpoint': 'a', 'others': []}):
    (tmp_path / 'best' / checkpoints.BEST_NAME).write_bytes(text)
    with refusals():
      checkpoints.read_best(job)
