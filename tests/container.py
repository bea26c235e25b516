"""Images built and run by podman, for tests: by root, without a daemon, inside a container too.

The base image is made by debootstrap where no registry is asked: Debian's own Python under the name
of the base that deploy/Dockerfile wants.
"""

import functools
import os
import shutil
import subprocess

import checkout
import debian

PACKAGES = ('podman', 'buildah', 'runc', 'debootstrap')
BASE = 'docker.io/library/python:3.11-slim'
MIRROR = 'http://deb.debian.org/debian'
RELEASE = 'bookworm'  # The one with Python 3.11.
# What a command mounts is gone with it, also when it is killed: whoever removes the folder must not
# come upon files of this machine.
ALONE = ('unshare', '--mount')
CERTIFICATES = 'etc/ssl/certs/ca-certificates.crt'
# Lower than those of most users: where they cannot be raised, podman's own would be refused.
LIMITS = ('--ulimit=nofile=1024:1024', '--ulimit=nproc=4096:4096')


@functools.cache
def why_not():
  """Why no image can be built here; '' where it can. Installs what is missing."""
  if os.geteuid() != 0:
    return 'only root builds images here'
  return debian.why_missing(PACKAGES, PACKAGES)


class Images:
  """A store of images in a folder of its own. Leaving its context removes them all."""

  def __init__(self, folder):
    self._folder = str(folder)
    # No overlay in an overlay, which the tests' folder is in where they run in a container.
    ask = ['stat', '--file-system', '--format=%T', self._folder]
    kind = checkout.run(*ask, must_succeed=True).stdout.strip()
    self._driver = 'vfs' if kind == 'overlayfs' else 'overlay'

  def podman(self, *arguments, timeout=600):
    """Runs a podman command -> CompletedProcess."""
    places = [f'--{place}={os.path.join(self._folder, place)}' for place in ('root', 'runroot')]
    drivers = [f'--storage-driver={self._driver}', '--runtime=runc', '--cgroup-manager=cgroupfs']
    return checkout.run(*ALONE, 'podman', *drivers, *places, *arguments, timeout=timeout)

  def make_base(self):
    """The base image; returns '' or why the archive of packages gave none."""
    tree = os.path.join(self._folder, 'tree')
    packages = '--include=python3,python3-pip,ca-certificates'
    command = ['timeout', '600', *ALONE, 'debootstrap', '--variant=minbase', packages]
    command += [RELEASE, tree, MIRROR]
    ran = checkout.run(*command, timeout=None)
    if ran.returncode:
      return f'debootstrap: {ran.stdout.strip()[-300:]}'
    os.symlink('python3', os.path.join(tree, 'usr/bin/python'))
    # Debian's pip installs nothing for all users while this is there.
    os.remove(os.path.join(tree, 'usr/lib/python3.11/EXTERNALLY-MANAGED'))
    if os.path.exists(f'/{CERTIFICATES}'):  # By which this machine reaches the packages.
      shutil.copy(f'/{CERTIFICATES}', os.path.join(tree, CERTIFICATES))
    archive = f'{tree}.tar'
    subprocess.run(['tar', '-C', tree, '-cf', archive, '.'], check=True, timeout=300)
    shutil.rmtree(tree)
    imported = self.podman('import', archive, BASE)
    os.remove(archive)
    return imported.stderr if imported.returncode else ''

  def build(self, name):
    """Of deploy/Dockerfile -> CompletedProcess."""
    # One layer, because without overlays each is a copy of all.
    ways = ['--network=host', '--isolation=chroot', '--pull=never', '--layers=false']
    return self.podman('build', *ways, '-f', 'deploy/Dockerfile', '-t', name, '.', timeout=900)

  def run(self, name, folder, *arguments, entrypoint=(), timeout=300):
    """Runs an image as deploy/tfjob.yaml does: not as root, and writing to the mounts alone.

    It has no network at all.

    Args:
      name: of the image.
      folder: is /cifar10 there.
      arguments: of the program.
      entrypoint: in place of the image's.
    """
    fences = ['--network=none', '--read-only', '--cap-drop=all']
    fences += ['--security-opt=no-new-privileges', '--tmpfs=/tmp']
    program = [f'--entrypoint={entrypoint}'] if entrypoint else []
    mounted = f'--volume={folder}:/cifar10'
    return self.podman(
      'run', '--rm', *LIMITS, *fences, mounted, *program, name, *arguments, timeout=timeout
    )

  def __enter__(self):
    return self

  def __exit__(self, *exception):
    shutil.rmtree(self._folder, ignore_errors=True)
