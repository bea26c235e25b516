"""The checkout: its files, and what is run in it in a process of its own."""

import glob
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLD_JOBS = f'{ROOT}/tests/jobs_of_e632993'


def read(path):
  """The text of a file, by its path from there."""
  with open(os.path.join(ROOT, path), encoding='utf-8') as file:
    return file.read()


def modules():
  """The path of every module of the program, by its dotted name."""
  inside = glob.glob('cifar10/**/*.py', root_dir=ROOT, recursive=True)
  paths = [*sorted(glob.glob('*.py', root_dir=ROOT)), *sorted(inside)]
  return {path[:-3].replace(os.sep, '.').removesuffix('.__init__'): path for path in paths}


def run(*command, must_succeed=False, **settings):
  """Runs a command, for five minutes at most -> CompletedProcess, with text."""
  settings = {'cwd': ROOT, 'timeout': 300, 'capture_output': True, 'text': True, **settings}
  ran = subprocess.run(list(map(str, command)), check=False, **settings)
  assert not must_succeed or ran.returncode == 0, ran.stderr
  return ran


def python(*words, **settings):
  """As `run`: a script, `-m` and a module, or `-c` and code."""
  return run(sys.executable, *words, **settings)
