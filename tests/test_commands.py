"""The program as a release leaves it: scripts that run from any folder."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import checkout
import pytest

import cifar10
from cifar10.job import pretrained
from cifar10.options.run_options import PRETRAINED

COMMANDS = ('generate', 'train', 'cluster', 'control', 'checkpoint', 'report')


@pytest.fixture(scope='session')
def released(tmp_path_factory):
  """Builds what a release uploads, as `make release` does -> the paths of sdist and wheel."""
  folder = tmp_path_factory.mktemp('released')
  # Of a copy: the build leaves folders in the source.
  shutil.copytree(os.path.join(checkout.ROOT, 'cifar10'), folder / 'source' / 'cifar10')
  for name in os.listdir(checkout.ROOT):
    if os.path.isfile(os.path.join(checkout.ROOT, name)):
      shutil.copy(os.path.join(checkout.ROOT, name), folder / 'source')
  build = 'import sys; from setuptools import build_meta as b; print(b.build_%s(sys.argv[1]))'

  def built(kind, source):
    said = checkout.python('-c', build % kind, folder, cwd=source, must_succeed=True)
    return folder / said.stdout.splitlines()[-1]

  sdist = built('sdist', folder / 'source')
  shutil.unpack_archive(sdist, folder, filter='data')
  return sdist, built('wheel', str(sdist).removesuffix('.tar.gz'))


def test_a_release_is_complete(released):
  result = checkout.python('-m', 'twine', 'check', '--strict', *released)
  assert result.returncode == 0, result.stdout
  with zipfile.ZipFile(released[1]) as wheel:
    names = set(wheel.namelist())
  about = f'cifar10_estimator-{cifar10.__version__}.dist-info'
  page = (f'reporting/{name}' for name in ('page.html', 'page.css', 'charts.mplstyle'))
  brought = {f'cifar10/{name}' for name in ('py.typed', *page)}
  brought |= {path for path in os.listdir(checkout.ROOT) if path.endswith('.py')}
  for path in map(pretrained.path, PRETRAINED):
    brought |= {os.path.relpath(path + end, checkout.ROOT) for end in ('.npz', '.json')}
  assert names >= brought | {f'{about}/licenses/LICENSE'}
  assert not any(name.startswith(('tests/', 'benchmarks/')) for name in names)


def test_every_script_runs_and_has_the_trained_networks(released, tmp_path):
  """In a new environment with the wheel, beside what is installed here already.

  pip checks that all that the program requires is there, and fetches nothing.
  """
  environment = tmp_path / 'environment'
  subprocess.run([sys.executable, '-m', 'venv', '--without-pip', environment], check=True)
  python = environment / 'bin' / 'python'
  ask = 'import sysconfig; print(sysconfig.get_path("purelib"))'
  own = pathlib.Path(checkout.run(python, '-c', ask, must_succeed=True).stdout.strip())
  (own / 'here.pth').write_text(f'{sysconfig.get_path("purelib")}\n')
  offline = ['--no-index', '--disable-pip-version-check', '--quiet']
  checkout.run(python, '-m', 'pip', 'install', *offline, released[1], must_succeed=True)

  def run(name, *flags):
    return checkout.run(environment / 'bin' / name, *flags, cwd=tmp_path)

  for name in (f'cifar10-{command}' for command in COMMANDS):
    assert run(name, '--version').stdout.startswith(f'{name} {cifar10.__version__} (TensorFlow ')
  cat = os.path.join(checkout.ROOT, 'docs', 'pictures', 'cat.jpg')
  said = run('cifar10-train', '--mode', 'predict', '--pretrained', 'resnet20', '--images', cat)
  assert json.loads(said.stdout)['class'] == 'cat', said.stderr
