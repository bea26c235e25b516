"""Hostile surroundings: each command ends by itself, with the right code and one line of error.

Its standard output is empty or one line of JSON, and what was there before is whole. The table has
one case of each kind. Those of `PROCESSES` need a process of their own.
"""

import functools
import io
import json
import os
import shutil
import struct
import sys
import zipfile

import checkout
import numpy as np
import pytest
import tensorflow as tf

import cifar10_main
import generate_cifar10_tfrecords
from cifar10 import checkpoint, control, local_cluster, report
from cifar10.options import flags

SMALL = ['--network', 'tiny_network:Tiny', '--train-batch-size', '8', '--eval-batch-size', '64']
TRAIN = [cifar10_main, '--data-dir', 'data', '--job-dir', 'new', *SMALL, '--train-steps', '2']
EVALUATE = [cifar10_main, '--job-dir', 'job', '--data-dir', 'data', '--mode', 'evaluate']
PREDICT = [cifar10_main, '--job-dir', 'job', '--mode', 'predict', '--images', 'grey.png']
EXPORT = [cifar10_main, '--job-dir', 'job', '--mode', 'export']
GENERATE = [generate_cifar10_tfrecords, '--data-dir', 'made', '--synthetic', '20']
TABLE = [report, 'job', '--data-dir', 'data', '--table']
DUMP = [checkpoint, 'dump', 'job', '--out', 'dumped.npz']
LONGEST_LINE = 600  # Of an error, with two paths in it.


@pytest.fixture
def place(data_dir, old_job, tmp_path, monkeypatch):
  """Where a case runs: a data dir `data`, a trained ResNet-8 in `job`, an image `grey.png`."""
  shutil.copytree(data_dir, tmp_path / 'data')
  shutil.copy(f'{checkout.ROOT}/tests/hostile/grey.png', tmp_path)
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.delitem(sys.modules, 'own', raising=False)
  return tmp_path


def strict_json(text):
  """Parsed as other programs do: without NaN and the infinities."""

  def refuse(word):
    raise ValueError(f'{word} is not JSON')

  return json.loads(text, parse_constant=refuse)


def whole(folder):
  """The content of what no case may change."""
  kept = [*folder.glob('data/*'), *folder.glob('job/model.ckpt*'), folder / 'grey.png']
  return {path: path.read_bytes() for path in kept if path.is_file()}


def check(result, codes, says=''):
  said = result.stderr
  assert result.returncode in codes, said[-3000:]
  assert 'Traceback' not in said and 'Fatal Python error' not in said, said[-3000:]
  errors = [line for line in said.splitlines() if line.startswith('error: ')]
  assert len(errors) == (result.returncode not in (0, 130)), said[-3000:]
  assert max(map(len, said.splitlines()), default=0) <= LONGEST_LINE
  assert all(letter.isprintable() for line in errors for letter in line)
  assert says in ''.join(errors)
  lines = result.stdout.splitlines()
  assert len(lines) <= 1, lines
  assert all(isinstance(strict_json(line), dict) for line in lines)


# Values of flags: long ones, line breaks and control characters, no UTF-8, below their least.
LONG, LINES, BYTES = 'x' * 40_000, 'a\nb\r\x1b[31mc\x07\x85d\u2028e', 'a\udcffb'
FLAGS = [
  *([*TRAIN, f'{flag}={LONG}'] for flag in ('--learning-rate', '--network', '--source')),
  *([*TRAIN, f'{flag}={LINES}'] for flag in ('--lr-values', '--recipe', '--callback', '--mode')),
  *([*TRAIN, f'{flag}={BYTES}'] for flag in ('--data-dir', '--warm-start-from', '--widths')),
  *([*EVALUATE, f'{flag}={LINES}'] for flag in ('--checkpoint', '--subset', '--nonsense')),
  [*TRAIN, '--learning-rate=-0.1'],
  [*TRAIN, '--weight-decay=-1'],
  [*TRAIN, '--lr-values=1,0.1,0.01,-0.002'],
  [*TRAIN, '--lr-boundaries-steps=-1,2,3'],
  [*TRAIN, '--lr-triangle=-1,2'],
  [generate_cifar10_tfrecords, '--data-dir', 'made', f'--synthetic={LONG}'],
  [generate_cifar10_tfrecords, '--data-dir', 'made', f'--images={BYTES}'],
  [generate_cifar10_tfrecords, '--data-dir', 'made', f'--split={LINES}'],
  [checkpoint, LINES],
  [checkpoint, 'list', BYTES],
  [report, '--table', LONG],
  [report, '--table', '--out', 'x.html', LINES],
  [control, 'job', LINES],
  [control, BYTES, 'save'],
  [local_cluster, f'--workers={LINES}'],
]


@pytest.mark.parametrize('words', FLAGS, ids=lambda words: f'{words[-1]!r:.30}')
def test_values_of_flags(run_here, place, words):
  command, *given = words
  check(run_here(*given, command=command), (1, 2) if command is control else (2,))
  assert sorted(os.listdir()) == ['data', 'grey.png', 'job']


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
  assert len(actions) > 50
  for number, action in enumerate(actions):
    for value in (NONSENSE + NONSENSE)[number % 10 :][:3]:
      given = ['--job-dir', 'job', '--data-dir', 'no', f'{action.option_strings[-1]}={value}']
      check(run_here(*given), (2,))
  assert os.listdir(tmp_path) == []


# Paths that are something else, too long, a circle, or where nobody may write, root included.
PATHS = [
  ([*TRAIN, '--job-dir', 'grey.png'], 2),
  ([*TRAIN, '--job-dir', 'grey.png/job'], 2),
  ([*TRAIN, '--job-dir', 'circle'], 2),
  ([*TRAIN, '--job-dir', 'x' * 300], 2),
  ([*TRAIN, '--job-dir', '/proc/job'], 2),
  ([*TRAIN, '--job-dir', ''], 2),
  ([*TRAIN, '--data-dir', 'grey.png'], 2),
  ([*TRAIN, '--data-dir', 'circle'], 2),
  ([*TRAIN, '--warm-start-from', 'grey.png'], 2),
  ([generate_cifar10_tfrecords, '--data-dir', 'grey.png', '--synthetic', '20'], 2),
  ([generate_cifar10_tfrecords, '--data-dir', '/proc/made', '--synthetic', '20'], 2),
  ([generate_cifar10_tfrecords, '--data-dir', 'made', '--images', 'grey.png'], 2),
  ([generate_cifar10_tfrecords, '--data-dir', 'made', '--archive', 'data'], 2),
  ([*PREDICT, 'data'], 1),  # The other images are answered.
  ([*PREDICT, '--out', 'none/answers.csv'], 2),
  ([*TABLE, '--out', 'none/report.html'], 2),
  ([*DUMP[:-1], 'grey.png/dumped.npz'], 2),
  ([*DUMP[:-1], 'grey.png'], 2),
]


@pytest.mark.parametrize(('words', 'code'), PATHS, ids=lambda value: str(value)[-20:])
def test_paths(run_here, place, words, code):
  os.symlink('circle', 'circle')
  before = whole(place)
  command, *given = words
  result = run_here(*given, command=command)
  result = result._replace(stdout='') if code == 1 else result  # A line for each image.
  check(result, (1, 2) if code == 2 else (code,))
  assert whole(place) == before


KERNEL = 'resnet/fully_connected/kernel'
FLOATS = np.ones([64, 10], np.float32).tobytes()


def header(shape, dtype="'<f4'"):
  """The beginning of an array's file, which claims this of what comes."""
  text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".encode()
  text += b' ' * (-(len(text) + 11) % 64) + b'\n'
  return b'\x93NUMPY\1\0' + struct.pack('<H', len(text)) + text


def zipped(name, content):
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, 'w') as archive:
    archive.writestr(name, content)
  return buffer.getvalue()


array = functools.partial(zipped, f'{KERNEL}.npy')
# What is taken for variables and is not.
LIES = {
  'claims 30 GB': array(header((7_500_000_000,)) + FLOATS),
  'claims a negative shape': array(header((-64, 10)) + FLOATS),
  'claims objects': array(header((64, 10), "'|O'") + FLOATS),
  'has a header of code': array(header('(__import__("os").abort(),)') + FLOATS),
  'has half a header': array(header((64, 10))[:30]),
  'has no arrays': zipped('a.txt', 'text'),
  'is a pickle': b'\x80\4cos\nabort\n)R.',
  'is empty': b'',
  'is half a zip': array(header((64, 10)) + FLOATS)[:1500],
  'is a Keras file of nonsense': zipped('model.weights.h5', b'\x89HDF\r\n\x1a\n' + b'\xff' * 100),
}


@pytest.mark.parametrize('name', LIES)
def test_files_of_variables(run_here, place, name):
  (place / 'lie.npz').write_bytes(LIES[name])
  given = [*TRAIN[1:], '--warm-start-from', 'lie.npz']
  check(run_here(*given), (2,), says='lie.npz')
  check(run_here('dump', 'lie.npz', '--out', 'a.npz', command=checkpoint), (2,), says='lie.npz')
  assert not os.path.exists('new/config.json')


@pytest.mark.parametrize('words', [EVALUATE, PREDICT, TABLE], ids=['evaluate', 'predict', 'table'])
def test_nan_is_not_json(run_here, place, words):
  prefix = 'job/model.ckpt-8'
  reader = tf.train.load_checkpoint(prefix)
  found = {name: np.array(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()}
  found[KERNEL][0, :2] = np.nan, np.inf
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    names, tensors = list(found), list(found.values())
    empty = [''] * len(names)
    session.run(
      tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=empty, tensors=tensors)
    )
  command, *given = words
  check(run_here(*given, command=command), (0, 1, 2))


OWN = """
import os, sys, threading, time
import numpy as np

class Bare(BaseException):
  pass

class Mute(Exception):
  def __str__(self):
    raise RuntimeError('no words')

def strike():
  {strike}

def quiet():
  pass

def source():
  {at_first}()
  for number in range(64):
    if number == 20:
      {later}()
    yield np.zeros([32, 32, 3], np.uint8), number % 10

def network(images, is_training, num_classes):
  import tensorflow as tf
  {in_network}()
  flat = tf.reshape(images, [-1, 3072])
  weights = tf.compat.v1.get_variable('w', [3072, num_classes], flat.dtype)
  return tf.matmul(flat, weights)

def callback(run):
  import cifar10
  {in_make}()
  class Own(cifar10.Callback):
    def on_step_end(self, step):
      {in_step}()
    def on_train_end(self, *arguments):
      {in_end}()
  return Own()

{in_import}()
"""
SOURCE = ('--source', 'own:source', '--examples-per-epoch', '64')
NETWORK, CALLBACK = ('--network', 'own:network'), ('--callback', 'own:callback')
SPOTS = {  # Where it strikes: the flags, and the code of a failure.
  'in_import': (SOURCE, 2),
  'at_first': (SOURCE, 2),
  'later': (SOURCE, 1),
  'in_network': (NETWORK, 2),
  'in_make': (CALLBACK, 1),
  'in_step': (CALLBACK, 1),
  'in_end': (CALLBACK, 1),
}
FAILURES = {
  'exits': 'sys.exit(0)',
  'raises what is no Exception': "raise Bare('enough')",
  'raises what has no text': 'raise Mute()',
  'says a megabyte of lines': "raise ValueError('x\\n' * 10**6)",
  'says half of a pair and steers': "raise ValueError('\\udc80 \\0\\x1b[2J')",
  'never ends calling itself': 'strike()',
  'has no memory': 'raise MemoryError()',
}
CHANGES = {
  'clears the environment': 'os.environ.clear()',
  'goes to a folder that is gone': "os.makedirs('gone'); os.chdir('gone'); os.rmdir(os.getcwd())",
  'clears its arguments': 'sys.argv.clear()',
  'closes the output': 'sys.stdout.close()',
}


def own(spot, strike):
  """The code of a user that does this in that place."""
  text = OWN
  for name in SPOTS:
    text = text.replace(f'{{{name}}}', 'strike' if name == spot else 'quiet')
  return text.replace('{strike}', strike)


STRIKES = [
  *((spot, FAILURES['raises what is no Exception']) for spot in SPOTS),
  *(('later', strike) for strike in FAILURES.values()),
  *(('in_step', strike) for strike in list(FAILURES.values())[:5]),
]


@pytest.mark.parametrize(('spot', 'strike'), dict.fromkeys(STRIKES))
def test_failing_code_of_users(run_here, place, spot, strike):
  (place / 'own.py').write_text(own(spot, strike))
  given, code = SPOTS[spot]
  check(run_here(*TRAIN[1:], '--mode', 'train', *given), (code,), says=' '.join(given[:2]))


# In a process of its own: a command, what a shell does with its streams, and its code. The first
# three import TensorFlow.
PROCESSES = [
  ([*TRAIN, '--mode', 'train', '--log-device-placement'], '', 0),  # Which C++ prints.
  (EVALUATE, '>/dev/full', 1),
  (GENERATE, '>/dev/full', 1),
  ([cifar10_main, '--version'], '>/dev/full', 1),
]


def process(words):
  command, *given = words
  return [sys.executable, command.__file__, *given]


@pytest.mark.parametrize(
  ('words', 'streams', 'code'),
  [*(pytest.param(*case, marks=pytest.mark.slow) for case in PROCESSES[:3]), *PROCESSES[3:]],
)
def test_standard_streams(place, words, streams, code):
  before = whole(place)
  shell = ['sh', '-c', f'exec "$@" {streams}', 'sh', *process(words)]
  result = checkout.run(*shell, cwd=place, env={**os.environ, 'PYTHONPATH': path()})
  if '2>' not in streams:
    check(result, (code,))
  assert (result.returncode, 'Traceback' in result.stderr) == (code, False), result.stderr
  assert bool(result.stdout) == (code == 0 and '>&-' not in streams.replace('2>&-', ''))
  assert whole(place) == before


def path():
  """In which a process finds the program and the tests' networks."""
  return os.pathsep.join([checkout.ROOT, os.environ['PYTHONPATH']])


@pytest.mark.slow
@pytest.mark.parametrize('change', CHANGES)
def test_code_of_users_that_changes_the_process(place, change):
  (place / 'own.py').write_text(own('later', CHANGES[change]))
  words = process([*TRAIN, '--mode', 'train', *SOURCE])
  result = checkout.run(*words, cwd=place, env={**os.environ, 'PYTHONPATH': path()})
  check(result, (0,))
  assert json.loads(result.stdout)['global_step'] == 2
