"""deploy/Dockerfile, built by podman, and run as deploy/tfjob.yaml runs it.

By root, without a daemon, inside a container too. No registry is asked: the base image is Debian's
own Python, by debootstrap, under the name of the base that deploy/Dockerfile wants.
"""

import os
import shutil
import tempfile

import checkout
import debian
import pytest
from outcome import succeeded

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(1800)]

NAME = 'cifar10-estimator'
BASE = 'docker.io/library/python:3.11-slim'
SMALL = ['--num-layers', 8, '--train-batch-size', 8, '--eval-batch-size', 64]
PACKAGES = ('podman', 'buildah', 'runc', 'debootstrap')
# What a command mounts is gone with it, also when it is killed: whoever removes the folder must not
# come upon files of this machine.
ALONE = ('unshare', '--mount')
CERTIFICATES = 'etc/ssl/certs/ca-certificates.crt'
# Lower than those of most users: where they cannot be raised, podman's own would be refused.
LIMITS = ('--ulimit=nofile=1024:1024', '--ulimit=nproc=4096:4096')


class Images:
  """A store of images in a folder."""

  def __init__(self, folder):
    self._folder = folder
    # No overlay in an overlay, which the tests' folder is in where they run in a container.
    ask = ['stat', '--file-system', '--format=%T', folder]
    kind = checkout.run(*ask, must_succeed=True).stdout.strip()
    self._driver = 'vfs' if kind == 'overlayfs' else 'overlay'

  def podman(self, *arguments, timeout=600):
    """Runs a podman command -> CompletedProcess."""
    places = [f'--{place}={self._folder}/{place}' for place in ('root', 'runroot')]
    drivers = [f'--storage-driver={self._driver}', '--runtime=runc', '--cgroup-manager=cgroupfs']
    return checkout.run(*ALONE, 'podman', *drivers, *places, *arguments, timeout=timeout)

  def make_base(self):
    """The base image; skips the test where the archive of packages gives none."""
    tree = f'{self._folder}/tree'
    command = ['timeout', '600', *ALONE, 'debootstrap', '--variant=minbase']
    command += ['--include=python3,python3-pip,ca-certificates', 'bookworm', tree]  # Python 3.11.
    ran = checkout.run(*command, 'http://deb.debian.org/debian', timeout=None)
    if ran.returncode:
      pytest.skip(f'no base image: debootstrap: {ran.stdout.strip()[-300:]}')
    os.symlink('python3', f'{tree}/usr/bin/python')
    # Debian's pip installs nothing for all users while this is there.
    os.remove(f'{tree}/usr/lib/python3.11/EXTERNALLY-MANAGED')
    if os.path.exists(f'/{CERTIFICATES}'):  # By which this machine reaches the packages.
      shutil.copy(f'/{CERTIFICATES}', f'{tree}/{CERTIFICATES}')
    checkout.run('tar', '-C', tree, '-cf', f'{tree}.tar', '.', must_succeed=True)
    shutil.rmtree(tree)
    imported = self.podman('import', f'{tree}.tar', BASE)
    os.remove(f'{tree}.tar')
    if imported.returncode:
      pytest.skip(f'no base image: {imported.stderr}')

  def build(self):
    """Of deploy/Dockerfile."""
    # One layer, because without overlays each is a copy of all.
    ways = ['--network=host', '--isolation=chroot', '--pull=never', '--layers=false']
    built = self.podman('build', *ways, '-f', 'deploy/Dockerfile', '-t', NAME, '.', timeout=900)
    assert built.returncode == 0, built.stderr

  def run(self, folder, *arguments, entrypoint=''):
    """Runs the image as deploy/tfjob.yaml does, without a network; `folder` is /cifar10 there."""
    fences = ['--network=none', '--read-only', '--cap-drop=all']
    fences += ['--security-opt=no-new-privileges', '--tmpfs=/tmp', f'--volume={folder}:/cifar10']
    program = [f'--entrypoint={entrypoint}'] if entrypoint else []
    return self.podman('run', '--rm', *LIMITS, *fences, *program, NAME, *arguments, timeout=300)


@pytest.fixture
def images():
  """A store with the image in it."""
  reason = 'only root builds images here' if os.geteuid() else ''
  if reason := reason or debian.why_missing(PACKAGES, PACKAGES):
    pytest.skip(reason)
  # podman takes no path of more than 50 characters, as pytest's are.
  with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    images = Images(folder)
    images.make_base()
    images.build()
    yield images


def test_the_image(images, tmp_path):
  """One test, for the image takes minutes: it makes records, trains and exports in its fences."""
  os.chown(tmp_path, 1000, 1000)
  generate = ['generate_cifar10_tfrecords.py', '--data-dir', '/cifar10/data', '--synthetic', 40]
  succeeded(images.run(tmp_path, *generate, entrypoint='python'))
  folders = ['--data-dir', '/cifar10/data', '--job-dir', '/cifar10/job']
  steps = ['--train-steps', 20, '--eval-every-steps', 10]
  result = succeeded(images.run(tmp_path, *folders, *SMALL, *steps))
  assert (result['global_step'], result['subset'], result['examples']) == (20, 'eval', 40)
  path = succeeded(images.run(tmp_path, *folders[2:], '--mode', 'export'))['saved_model']
  assert path.startswith('/cifar10/job/')
  assert os.path.exists(path.replace('/cifar10', str(tmp_path), 1) + '/saved_model.pb')
  assert {path.stat().st_uid for path in tmp_path.rglob('*') if path.is_file()} == {1000}
