"""Must show: a package beside the program, installed by pip, brings network, callback and source.

It is written here, and the program is not touched. No module of it is in the current folder.
"""

import importlib.util
import os

import checkout
import numpy as np
import pytest
import tensorflow as tf
from outcome import succeeded
from tasks import Tasks

import cifar10
from cifar10.job import metrics_log

OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'own', 'outside_parts.py')
PROJECT = """
[project]
name = "beside"
version = "1"
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
"""
SOURCE = """
import numpy as np

def shards(shard, num_shards):
  for number in range(shard, 96, num_shards):
    yield np.full([32, 32, 3], 20 * (number % 10), np.uint8), number % 10
"""
NOTED = """

class Noted(cifar10.Callback):
  def __init__(self, run):
    self.path = f'{run.options.job_dir}/noted'

  def on_evaluate_end(self, evaluation):
    with open(self.path, 'a') as file:
      print(evaluation.split, evaluation.step, file=file)
"""
FLAGS = ['--network', 'beside.parts:net', '--callback', 'beside.parts:Heard']
FLAGS += ['--source', 'beside.data:shards', '--examples-per-epoch', 96]
FLAGS += ['--train-batch-size', 16, '--eval-batch-size', 64, '--eval-every-steps', 2]
HEARD = ['HEARD validation 2', 'HEARD validation 4']
FORMATS = ['saved_model']
if importlib.util.find_spec('tf2onnx'):
  FORMATS.append('onnx')


@pytest.fixture(scope='module')
def beside(tmp_path_factory):
  """Where pip has installed the package."""
  folder = tmp_path_factory.mktemp('package')
  place = folder / 'installed'
  package = folder / 'source' / 'beside'
  package.mkdir(parents=True)
  (folder / 'source' / 'pyproject.toml').write_text(PROJECT)
  (package / '__init__.py').write_text('')
  with open(OWN, encoding='utf-8') as file:
    (package / 'parts.py').write_text(file.read() + NOTED)
  (package / 'data.py').write_text(SOURCE)
  install = ['-m', 'pip', 'install', '--quiet', '--no-index', '--no-deps']
  more = ['--no-build-isolation', '--target', place, folder / 'source']
  checkout.python(*install, *more, must_succeed=True)
  return str(place)


@pytest.fixture(autouse=True)
def on_the_path(beside, monkeypatch, tmp_path):
  monkeypatch.setenv('PYTHONPATH', beside)
  monkeypatch.syspath_prepend(beside)
  monkeypatch.chdir(tmp_path)


def trained(run_main, data_dir, job, *more, steps=4):
  result = run_main('--data-dir', data_dir, '--job-dir', job, '--train-steps', steps, *FLAGS, *more)
  assert result.returncode == 0, result.stderr
  heard = [line for line in result.stderr.splitlines() if line.startswith('HEARD')]
  return succeeded(result), heard


@pytest.mark.slow
def test_it_trains_on_two_towers_resumes_and_is_exported(run_main, data_dir, tmp_path):
  job = tmp_path / 'job'
  more = ['--num-cpu-towers', 2]
  assert trained(run_main, data_dir, job, *more)[1] == [*HEARD, 'HEARD eval 4']
  result, heard = trained(run_main, data_dir, job, *more, steps=6)
  assert result['global_step'] == 6
  assert heard == ['HEARD epoch 1', 'HEARD validation 6', 'HEARD eval 6']  # 6 x 16 = 96.
  assert cifar10.evaluate(job, data_dir)['accuracy'] == result['accuracy']
  images = np.random.default_rng(0).integers(0, 256, [3, 32, 32, 3], np.uint8)
  expected = cifar10.predict(job, images).probabilities
  for form in FORMATS:
    path = cifar10.export(job, format=form)[form]
    np.testing.assert_allclose(served(form, path, images), expected, atol=1e-5, err_msg=form)


def served(form, path, images):
  """What an export says, in a runtime of its own."""
  if form == 'saved_model':
    serve = tf.saved_model.load(path).signatures['serving_default']
    return serve(images=tf.constant(images))['probabilities'].numpy()
  import onnxruntime  # noqa: PLC0415

  session = onnxruntime.InferenceSession(path)
  return session.run(['probabilities'], {session.get_inputs()[0].name: images})[0]


@pytest.mark.cluster
def test_a_synchronous_cluster_with_an_evaluator_trains_it(data_dir, tmp_path):
  """Each worker reads a shard; the evaluator's callbacks hear of evaluations."""
  job = tmp_path / 'job'
  flags = ['--data-dir', data_dir, '--job-dir', job, '--train-steps', 4, '--sync', *FLAGS]
  flags += ['--num-cpu-towers', 2, '--callback', 'beside.parts:Noted']
  with Tasks(job, flags, num_workers=1, num_ps=1, evaluator=True) as tasks:
    tasks.start()
    assert set(tasks.ended()) == {0}, tasks.text()
  assert metrics_log.read(str(job))[-1]['step'] == 4
  assert np.abs(tf.train.load_checkpoint(str(job)).get_tensor('network/mean')).max() > 0
  assert (job / 'noted').read_text().splitlines()[-2:] == ['validation 4', 'eval 4']
