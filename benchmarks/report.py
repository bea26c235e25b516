"""Fills the tables of README.md and docs/ from benchmarks/results/*.json; --check only compares.

  python benchmarks/report.py

A table's place in a document is `<!-- made: NAME -->` to `<!-- /made -->`. NAME is a result's file
name without .json, or `summary` or `trained`: one table of all trainings.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping

import tables
from records import ROOT, read

DOCUMENTS = ('README.md', 'docs/failures.md', 'docs/results.md', 'docs/support.md')
_PLACE = re.compile(r'(<!-- made: (\S+) -->\n).*?(<!-- /made -->)', re.S)


def main() -> None:
  """Writes the tables into the documents, or exits with 1 where --check finds others there."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--check', action='store_true', help='change nothing; 1 when out of date')
  check = parser.parse_args().check
  records = read()
  before = {name: _read(name) for name in DOCUMENTS}
  try:
    after = fill(before, tables.tables(records))
  except ValueError as error:
    sys.exit(f'error: {error}')
  changed = [name for name in DOCUMENTS if after[name] != before[name]]
  if check and changed:
    sys.exit(f'{", ".join(changed)}: out of date; run python benchmarks/report.py')
  for name in changed:
    with open(os.path.join(ROOT, name), 'w', encoding='utf-8') as file:
      file.write(after[name])
  print(json.dumps({'results': len(records), 'changed': changed}))


def fill(documents: Mapping[str, str], made: Mapping[str, str]) -> dict[str, str]:
  """The documents with every table in its place.

  Args:
    documents: texts by name.
    made: tables by name.

  Raises:
    ValueError: a place for a table that there is not, or a table without a place.
  """
  asked = {
    name: document for document, text in documents.items() for _, name, _ in _PLACE.findall(text)
  }
  for name, document in asked.items():
    if name not in made:
      raise ValueError(f'{document} has a place for {name}, and benchmarks/results/ has none')
  for name in made:
    if name not in asked:
      raise ValueError(
        f'{name} has no place: write <!-- made: {name} --> and <!-- /made --> into docs/results.md'
      )
  return {
    document: _PLACE.sub(lambda match: match[1] + made[match[2]] + match[3], text)
    for document, text in documents.items()
  }


def _read(name: str) -> str:
  with open(os.path.join(ROOT, name), encoding='utf-8') as file:
    return file.read()


if __name__ == '__main__':
  main()
