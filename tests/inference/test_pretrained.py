"""The trained networks that come along: their accuracy in every way of running them."""

import importlib.util
import itertools
import os
import sys
import tarfile

import numpy as np
import pytest
from checkout import ROOT
from outcome import succeeded

import cifar10
from cifar10.core import files
from cifar10.core.errors import InputError
from cifar10.data import records
from cifar10.data.build.archive import read_batches
from cifar10.job.pretrained import path as path_of

CAT = os.path.join(ROOT, 'docs', 'pictures', 'cat.jpg')
ONNX = ['onnx'] if importlib.util.find_spec('onnxruntime') else []
slow = pytest.mark.slow
SLOW_WAYS = ('two towers', 'saved_model', 'keras', *ONNX)
WAYS = [
  pytest.param('resnet20', 'float32'),  # First: of it CI sees the whole test set.
  *(pytest.param('resnet20', way, marks=slow) for way in SLOW_WAYS),
  pytest.param('fast94', 'float32', marks=slow),
  pytest.param('fast94', 'bfloat16', marks=[pytest.mark.bfloat16, slow]),
]

sys.path.append(os.path.join(ROOT, 'benchmarks'))

import pretrained  # noqa: E402  (the benchmark, which measures the same)


@pytest.fixture(scope='module')
def real_data(tmp_path_factory):
  """Record files of the published archive."""
  if not os.environ.get('CIFAR10_ARCHIVE'):
    pytest.skip('CIFAR10_ARCHIVE is not set')
  folder = str(tmp_path_factory.mktemp('real'))
  made = cifar10.convert(folder, archive=os.environ['CIFAR10_ARCHIVE'])
  assert made['source'] == 'published'
  assert made['examples'] == {'train': 40_000, 'validation': 10_000, 'eval': 10_000}
  return folder


@pytest.fixture(scope='module')
def first_images(tmp_path_factory):
  """A record file of the first images of the test set, which alone is read."""
  if not os.environ.get('CIFAR10_ARCHIVE'):
    pytest.skip('CIFAR10_ARCHIVE is not set')
  folder = tmp_path_factory.mktemp('first')
  with tarfile.open(os.environ['CIFAR10_ARCHIVE'], 'r|gz') as tar:
    member = next(each for each in tar if each.name.endswith('test_batch'))
    tar.extract(member, folder, filter='data')
  examples = itertools.islice(read_batches([f'{folder}/{member.name}']), pretrained.FIRST)
  records.write_records(f'{folder}/eval.tfrecords', *zip(*examples))
  return str(folder)


def recorded(name):
  return files.read_object(path_of(name) + '.json')


@pytest.mark.parametrize(('name', 'way'), WAYS)
def test_the_first_images_have_their_recorded_accuracy(first_images, name, way):
  found = pretrained.accuracies(name, first_images, [way])[way]
  images = 3 if way == 'bfloat16' else 1  # That rounding may decide.
  expected = recorded(name)[pretrained.OF_FIRST]
  assert round(abs(found - expected) * pretrained.FIRST) <= images, (found, expected)


@slow
@pytest.mark.parametrize('name', ['resnet20', pytest.param('fast94', marks=pytest.mark.long)])
def test_it_has_its_recorded_accuracy(real_data, name):
  found = pretrained.accuracies(name, real_data, ['float32'])['float32']
  assert found == pytest.approx(recorded(name)['accuracy'], abs=0.0005)


def test_the_command_sees_a_cat_and_leaves_nothing(run_main, tmp_path, monkeypatch):
  """In a process of its own, with whose end its folder goes."""
  monkeypatch.setenv('TMPDIR', str(tmp_path))
  result = run_main('--mode', 'predict', '--pretrained', 'resnet20', '--images', CAT)
  assert succeeded(result)['class'] == 'cat'
  assert os.listdir(tmp_path) == []


def test_from_python_it_is_called_by_its_name(data_dir, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with cifar10.load('resnet20') as network:
    found = network(np.zeros([2, 32, 32, 3], np.uint8))
  assert found.probabilities.shape == (2, 10)
  assert network.classes[3] == 'cat'
  [answer] = cifar10.predict('resnet20', CAT)
  assert answer['class'] == 'cat'
  assert 0 <= cifar10.evaluate('resnet20', data_dir)['accuracy'] <= 1
  assert os.listdir() == []


def test_a_new_job_dir_becomes_its_job(data_dir, tmp_path, caplog):
  job = str(tmp_path / 'job')
  exported = cifar10.export(job, pretrained='resnet20')
  assert exported['global_step'] == 64_000
  assert cifar10.export(job, pretrained='resnet20')['checkpoint'] == exported['checkpoint']
  assert cifar10.evaluate(job, data_dir, dtype='float32')['global_step'] == 64_000
  assert 'is gone' not in caplog.text  # A schedule is for training.
  tiny = {'network': 'tiny_network:Tiny', 'train_steps': 1, 'mode': 'train'}
  cifar10.train(str(tmp_path / 'other'), data_dir, **tiny)
  with pytest.raises(InputError, match='holds a job of its own'):
    cifar10.predict(str(tmp_path / 'other'), CAT, pretrained='resnet20')


def test_a_new_job_starts_from_it(data_dir, tmp_path, caplog):
  options = {'num_layers': 20, 'train_batch_size': 16, 'train_steps': 1, 'mode': 'train'}
  start = {'warm_start_from': 'resnet20', 'learning_rate': 1e-9}
  with caplog.at_level('INFO', 'cifar10'):
    cifar10.train(str(tmp_path / 'job'), data_dir, **start, **options)
  assert 'resnet20.npz: 97 of 97 variables' in caplog.text
  [answer] = cifar10.predict(str(tmp_path / 'job'), CAT)
  assert answer['class'] == 'cat'
