"""Runs the tests on several Pythons, each with the TensorFlow that requirements.txt picks for it.

  python tests/support.py 3.11:full newest:short [--write]

Each has an environment of its own, .venv-3.11 for instance, made where it is missing. A Python that
is not on PATH is reported as not tested, and that is a failure, except with --write. With two
environments, what is written under one is read under the other. --write keeps the outcome in
benchmarks/results/support.json, from which benchmarks/report.py makes the table of docs/support.md.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys

from checkout import ROOT, run

RECORD = 'benchmarks/results/support.json'
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
  outcomes = {version: {'outcome': NOT_TESTED} for version in forms}
  tested = [version for version in forms if version in present]
  for version in tested:
    outcomes[version] = test(version, forms[version])
    print(f'Python {version}: {outcomes[version]}', file=sys.stderr, flush=True)
  if len(tested) > 1:
    outcomes['across'] = test_across(tested[0], tested[-1])
  if flags.write:
    commit = run('git', 'rev-parse', '--short', 'HEAD').stdout.strip()
    record = {'name': 'support', 'commit': commit, 'pythons': outcomes}
    with open(os.path.join(ROOT, RECORD), 'w', encoding='utf-8') as file:
      file.write(json.dumps(record, indent=1) + '\n')
  print(json.dumps(outcomes))
  bad = ('failed',) if flags.write else ('failed', NOT_TESTED)
  sys.exit(any(outcome['outcome'].startswith(bad) for outcome in outcomes.values()))


def is_present(version):
  """Whether it runs: version managers put names on PATH that do not."""
  return bool(shutil.which(f'python{version}')) and not run(f'python{version}', '-c', '').returncode


def python_of(version):
  return f'{ROOT}/.venv-{version}/bin/python'


def test(version, form):
  """Tests one in its own environment, which `make` makes -> its TensorFlow, its outcome."""
  words = ['make', f'VENV=.venv-{version}', f'PYTHON=python{version}', f'test-{form}']
  code = subprocess.run(words, cwd=ROOT, stdout=sys.stderr, check=False).returncode
  ask = 'from importlib.metadata import version; print(version("tensorflow"))'
  asked = run(python_of(version), '-c', ask, must_succeed=True)
  outcome = f'failed (code {code}): {FORMS[form]}' if code else f'passed: {FORMS[form]}'
  return {'tensorflow': asked.stdout.strip(), 'outcome': outcome}


def test_across(one, other):
  """What is written under one is read under the other, both ways at once."""
  running = []
  for here, there in ((one, other), (other, one)):
    command = [python_of(here), '-m', 'pytest', 'tests/test_across.py']
    settings = {'cwd': ROOT, 'env': {**os.environ, 'OTHER_PYTHON': python_of(there)}}
    running.append(subprocess.Popen(command, stdout=sys.stderr, **settings))
  failed = any([process.wait() for process in running])
  what = f'checkpoints and SavedModels between Python {one} and {other}'
  return {'outcome': f'{"failed" if failed else "passed"}: {what}'}


if __name__ == '__main__':
  main()
