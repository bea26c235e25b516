"""Packages of Debian that a test needs beside Python's."""

import os
import shutil

import checkout


def why_missing(commands, packages):
  """Why some of these commands are missing; '' where none is. Root installs what is."""
  missing = [command for command in commands if not shutil.which(command)]
  if not missing:
    return ''
  if os.geteuid() != 0 or not shutil.which('apt-get'):
    return f'{", ".join(missing)} missing; root installs them: apt-get install {" ".join(packages)}'
  for command in (['update'], ['install', '--yes', '--no-install-recommends', *packages]):
    # Ended after ten minutes: a mirror may not answer.
    ended = ['timeout', '600', 'apt-get', '-qq', *command]
    environment = {**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'}
    ran = checkout.run(*ended, env=environment, timeout=None)
  if ran.returncode:
    return f'apt-get does not install {" ".join(packages)}: {ran.stderr.strip()[-200:]}'
  return ''
