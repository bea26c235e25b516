"""The table of docs/failures.md says what the cases are: `python tests/hostile/test_table.py`."""

import glob
import importlib
import os
import re

from harness import ROOT

PAGE = os.path.join(ROOT, 'docs', 'failures.md')
_TABLE = re.compile(r'(?<=\| class \| cases \|).*?\n\n.*?(?=\n## )', re.DOTALL)


def classes():
  """The modules with cases."""
  paths = sorted(glob.glob('test_*.py', root_dir=os.path.dirname(os.path.abspath(__file__))))
  modules = [importlib.import_module(path[:-3]) for path in paths if path != 'test_table.py']
  return [module for module in modules if module.CASES]


def table():
  """As it must be in the page, after the first words."""
  rows = [f'| {each.TITLE} | {len(each.CASES)} | {each.BEFORE} |' for each in classes()]
  rows.append(f'| all | {sum(len(each.CASES) for each in classes())} | |')
  said = [f'- **{module.TITLE}**: before, {module.WAS}; now, {module.NOW}.' for module in classes()]
  head = ' handled before |\n|---|---:|---:|\n'
  return head + '\n'.join(rows) + '\n\n' + '\n'.join(said) + '\n'


def read():
  with open(PAGE, encoding='utf-8') as file:
    return file.read()


def test_the_page_has_the_table():
  assert _TABLE.search(read())[0] == table()


def test_names_of_cases_are_unique():
  for module in classes():
    names = [case.name for case in module.CASES]
    assert len(set(names)) == len(names), module.TITLE


if __name__ == '__main__':
  with open(PAGE, encoding='utf-8') as opened:
    text = opened.read()
  with open(PAGE, 'w', encoding='utf-8') as opened:
    opened.write(_TABLE.sub(lambda match: table(), text))
