"""The table of docs/failures.md has the classes of cases, and how many of them are handled.

make hostile                                        leaves hostile.xml
python tests/hostile/test_table.py hostile.xml      keeps its outcome, and writes the table
"""

import glob
import importlib
import json
import os
import re
import sys
from xml.etree import ElementTree

from harness import ROOT

PAGE = os.path.join(ROOT, 'docs', 'failures.md')
RESULTS = os.path.join(ROOT, 'benchmarks', 'results', 'hostile.json')
_TABLE = re.compile(r'(?<=/test_table.py makes this table. -->\n).*?\n\n.*?(?=\n## )', re.DOTALL)
_HEAD = '| class | cases | handled now | handled before |\n|---|---:|---:|---:|\n'


def classes():
  """The modules with cases."""
  paths = sorted(glob.glob('test_*.py', root_dir=os.path.dirname(os.path.abspath(__file__))))
  modules = [importlib.import_module(path[:-3]) for path in paths if path != 'test_table.py']
  return [module for module in modules if module.CASES]


def outcome(path):
  """What a run's JUnit file says: of each class, how many cases ran, and how many were handled."""
  suite = next(ElementTree.parse(path).iter('testsuite'))
  found = {}
  for module in classes():
    ran = [
      {child.tag for child in case}
      for case in suite.iter('testcase')
      if case.get('classname').endswith(f'.{module.__name__}')
    ]
    handled = sum(not tags & {'failure', 'error', 'skipped'} for tags in ran)
    found[module.TITLE] = {'cases': len(ran), 'handled': handled}
  return {'minutes': round(float(suite.get('time')) / 60, 1), 'classes': found}


def table(results):
  """As it must be in the page."""
  rows = [
    f'| {each.TITLE} | {counts["cases"]} | {counts["handled"]} | {each.BEFORE} |'
    for each in classes()
    for counts in [results['classes'][each.TITLE]]
  ]
  sums = [sum(each[kind] for each in results['classes'].values()) for kind in ('cases', 'handled')]
  rows.append(f'| all | {sums[0]} | {sums[1]} | |')
  versions, hardware = results['versions'], results['hardware']
  measured = (
    f'Commit `{results["commit"]}`, {results["minutes"]} minutes on {hardware["cores"]} cores of '
    f'{hardware["processor"]}, TensorFlow {versions["tensorflow"]}, Python {versions["python"]}.'
  )
  said = [f'- **{module.TITLE}**: before, {module.WAS}; now, {module.NOW}.' for module in classes()]
  return _HEAD + '\n'.join(rows) + f'\n\n{measured}\n\n' + '\n'.join(said) + '\n'


def read(path):
  with open(path, encoding='utf-8') as file:
    return file.read()


def test_the_page_has_the_table():
  assert _TABLE.search(read(PAGE))[0] == table(json.loads(read(RESULTS)))


def test_all_cases_have_run_and_were_handled():
  now = {
    module.TITLE: dict.fromkeys(('cases', 'handled'), len(module.CASES)) for module in classes()
  }
  assert json.loads(read(RESULTS))['classes'] == now


def test_names_of_cases_are_unique():
  for module in classes():
    names = [case.name for case in module.CASES]
    assert len(set(names)) == len(names), module.TITLE


def main():
  """Keeps the outcome of a run, and writes the table."""
  sys.path[:0] = [ROOT, os.path.join(ROOT, 'benchmarks')]
  import environment  # noqa: PLC0415

  head = {'name': 'hostile', 'command': 'make hostile', **environment.describe()}
  results = {**head, **outcome(sys.argv[1])}
  with open(RESULTS, 'w', encoding='utf-8') as file:
    file.write(json.dumps(results, indent=1) + '\n')
  page = _TABLE.sub(lambda match: table(results), read(PAGE))
  with open(PAGE, 'w', encoding='utf-8') as file:
    file.write(page)


if __name__ == '__main__':
  main()
