"""deploy/Dockerfile, built by podman, and run as deploy/tfjob.yaml runs it."""

import json
import os
import tempfile

import container
import pytest

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(1800)]

NAME = 'cifar10-estimator'
SMALL = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 64]


@pytest.fixture
def images():
  """A store with the image in it."""
  if reason := container.why_not():
    pytest.skip(reason)
  # podman takes no path of more than 50 characters, as pytest's are.
  with tempfile.TemporaryDirectory() as folder, container.Images(folder) as images:
    if reason := images.make_base():
      pytest.skip(f'no base image: {reason}')
    built = images.build(NAME)
    assert built.returncode == 0, built.stderr
    yield images


def test_the_image(images, tmp_path):
  """One test, for the image takes minutes: it makes records, trains and exports in its fences."""
  check_that_it_has_the_program_and_nothing_else(images)
  os.chown(tmp_path, 1000, 1000)
  check_its_fences(images, tmp_path)
  check_that_it_makes_records(images, tmp_path)
  check_that_it_trains_and_exports(images, tmp_path)


def check_that_it_makes_records(images, folder):
  made = images.run(
    *[NAME, folder, 'generate_cifar10_tfrecords.py', '--data-dir', '/cifar10/data'],
    *['--synthetic', 40],
    entrypoint='python',
  )
  assert made.returncode == 0, made.stderr


def check_that_it_has_the_program_and_nothing_else(images):
  """Neither data nor tests, whatever is in the folder that it is built from."""
  listed = images.podman('run', '--rm', *container.LIMITS, '--entrypoint=find', NAME, '.')
  assert listed.returncode == 0, listed.stderr
  top = {line.split('/')[1] for line in listed.stdout.splitlines() if '/' in line}
  assert top == {
    *('cifar10', 'cifar10_main.py', 'estimator_again.py'),
    *('generate_cifar10_tfrecords.py', 'model_base.py'),
    *('requirements.txt', 'requirements-gpu.txt', 'pyproject.toml'),
  }
  assert '__pycache__' not in listed.stdout


def check_that_it_trains_and_exports(images, volume):
  folders = ['--data-dir', '/cifar10/data', '--job-dir', '/cifar10/job']
  trained = images.run(
    NAME, volume, *folders, *SMALL, '--train-steps', 20, '--eval-every-steps', 10
  )
  assert trained.returncode == 0, trained.stderr
  result = json.loads(trained.stdout.splitlines()[-1])
  assert (result['global_step'], result['subset'], result['examples']) == (20, 'eval', 40)
  exported = images.run(NAME, volume, '--job-dir', '/cifar10/job', '--mode', 'export')
  assert exported.returncode == 0, exported.stderr
  path = json.loads(exported.stdout.splitlines()[-1])['saved_model']
  assert path.startswith('/cifar10/job/')
  assert os.path.exists(path.replace('/cifar10', str(volume), 1) + '/saved_model.pb')
  owners = {
    os.stat(os.path.join(folder, name)).st_uid
    for folder, _, names in os.walk(volume)
    for name in names
  }
  assert owners == {1000}


def check_its_fences(images, volume):
  """User 1000, no capability, a root that cannot be written, no network but its own loopback."""
  script = (
    'import json, os, socket\n'
    'status = dict(line.split(":", 1) for line in open("/proc/self/status"))\n'
    'print(json.dumps([os.getuid(), os.getgid(), int(status["CapBnd"], 16),\n'
    '  os.access("/app", os.W_OK), [name for _, name in socket.if_nameindex()]]))'
  )
  ran = images.run(NAME, volume, '-c', script, entrypoint='python')
  assert json.loads(ran.stdout) == [1000, 1000, 0, False, ['lo']], ran.stderr
