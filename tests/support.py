"""Runs the tests on several Pythons, each with the TensorFlow that requirements.txt picks for it.

  python tests/support.py 3.11:full newest:short [--write]

Each has an environment of its own, .venv-3.11 for instance, made where it is missing. A Python that
is not on PATH is reported as not tested, and that is a failure, except with --write. With two
environments, what is written under one is read under the other. --write keeps the outcome in
benchmarks/results/support.json, from which benchmarks/report.py makes the table of docs/support.md.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys

from checkout import ROOT

RECORD = os.path.join(ROOT, 'benchmarks', 'results', 'support.json')
PYTHONS = ('3.10', '3.11', '3.12', '3.13')
FORMS = {  # The targets of the Makefile, test-full and so on, and what they run.
  'full': 'all tests but the long ones',
  'quick': 'quick tests and one cluster',
  'short': 'training, resuming, towers, export and one cluster',
}
NOT_TESTED = 'not tested: no such Python on PATH'


def main():
  """Tests what was asked for, and ends with code 1 if anything failed."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('wanted', nargs='+', metavar='PYTHON:full|quick|short')
  parser.add_argument('--write', action='store_true', help='keep the outcome for docs/support.md')
  flags = parser.parse_args()
  present = [version for version in PYTHONS if is_present(version)]
  forms = {}
  for wanted in flags.wanted:
    version, _, form = wanted.partition(':')
    # The newest may have been asked for by its number, too: the first form counts.
    forms.setdefault(present[-1] if version == 'newest' else version, form)
  outcomes = {}
  with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:  # Beside the tests.
    installed = {version: pool.submit(install, version) for version in forms if version in present}
    for version, form in forms.items():
      if version in present:
        installed[version].result()
      outcomes[version] = test(version, form) if version in present else {'outcome': NOT_TESTED}
      print(f'Python {version}: {outcomes[version]}', file=sys.stderr, flush=True)
  tested = [version for version, outcome in outcomes.items() if 'tensorflow' in outcome]
  if len(tested) > 1:
    outcomes['across'] = test_across(tested[0], tested[-1])
  if flags.write:
    ask = ['git', 'rev-parse', '--short', 'HEAD']
    commit = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    with open(RECORD, 'w', encoding='utf-8') as file:
      record = {'name': 'support', 'commit': commit.strip(), 'pythons': outcomes}
      json.dump(record, file, indent=1)
      file.write('\n')
  print(json.dumps(outcomes))
  bad = ('failed',) if flags.write else ('failed', NOT_TESTED)
  sys.exit(any(outcome['outcome'].startswith(bad) for outcome in outcomes.values()))


def is_present(version):
  """Whether it runs: version managers put names on PATH that do not."""
  try:
    command = [f'python{version}', '-c', '']
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
  except OSError:
    return False


def environment(version):
  return os.path.join(ROOT, f'.venv-{version}')


def make(version, target, check):
  """`make` with this Python in its own environment."""
  command = ['make', f'VENV=.venv-{version}', f'PYTHON=python{version}', target]
  return subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=check)


def install(version):
  """Makes the environment where it is missing."""
  make(version, 'install', check=True)


def test(version, form):
  """Tests one -> its TensorFlow, its outcome."""
  code = make(version, f'test-{form}', check=False).returncode
  ask = 'from importlib.metadata import version; print(version("tensorflow"))'
  python = os.path.join(environment(version), 'bin', 'python')
  asked = subprocess.run([python, '-c', ask], check=True, capture_output=True, text=True)
  outcome = f'failed (code {code}): {FORMS[form]}' if code else f'passed: {FORMS[form]}'
  return {'tensorflow': asked.stdout.strip(), 'outcome': outcome}


def test_across(one, other):
  """What is written under one is read under the other, both ways."""
  code = 0
  for here, there in ((one, other), (other, one)):
    python = os.path.join(environment(here), 'bin', 'python')
    variables = {**os.environ, 'OTHER_PYTHON': os.path.join(environment(there), 'bin', 'python')}
    code |= subprocess.run(
      [python, '-m', 'pytest', 'tests/test_across.py'],
      cwd=ROOT,
      env=variables,
      check=False,
      stdout=sys.stderr,
    ).returncode
  what = f'checkpoints and SavedModels between Python {one} and {other}'
  return {'outcome': f'failed: {what}' if code else f'passed: {what}'}


if __name__ == '__main__':
  main()
