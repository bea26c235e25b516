"""Makes the README's results tables from benchmarks/results/*.json; --check only compares."""

import argparse
import glob
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
README = os.path.join(ROOT, 'README.md')
RESULTS = os.path.join(ROOT, 'benchmarks', 'results')
MARKED = re.compile(r'(<!-- results -->\n).*?(<!-- /results -->)', re.S)


def main() -> None:
  """Writes the tables into the README, or exits with 1 where --check finds others there."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--check', action='store_true', help='change nothing; 1 when out of date')
  check = parser.parse_args().check
  with open(README, encoding='utf-8') as file:
    before = file.read()
  records = []
  for path in sorted(glob.glob(os.path.join(RESULTS, '*.json'))):
    with open(path, encoding='utf-8') as file:
      records.append(json.load(file))
  after = MARKED.sub(lambda match: match[1] + tables(records) + match[2], before)
  if check and after != before:
    print('README.md is out of date: run python benchmarks/report.py', file=sys.stderr)
    sys.exit(1)
  if not check:
    with open(README, 'w', encoding='utf-8') as file:
      file.write(after)
  print(json.dumps({'results': len(records), 'changed': after != before}))


def tables(records: list[dict]) -> str:
  """One block for each kind of record."""
  return ''.join(_accuracy(r) if 'result' in r else _speed(r) for r in records)


def _accuracy(record: dict) -> str:
  result = record['result']
  return (
    f'**{100 * result["accuracy"]:.2f} %** on the {result["examples"]:,} test images '
    f'(top 5: {100 * result["accuracy_top5"]:.2f} %), n = {record["n"]}, '
    f'{record["minutes"]:.0f} minutes on {_environment(record)}:\n\n'
    f'```text\n{record["command"]}\n```\n\n'
  )


def _speed(record: dict) -> str:
  rows = ''.join(
    f'| {name} | {value:,.0f} |\n' for name, value in record['images_per_second'].items()
  )
  ratios = ', '.join(f'{name}: **{value:.2f}**' for name, value in record['ratios'].items())
  return (
    f'`{record["command"]}` on {_environment(record)}, medians of {record["pairs"]} pairs in one '
    f'run; {ratios}\n\n| | images/s |\n|---|---:|\n{rows}\n'
  )


def _environment(record: dict) -> str:
  hardware, versions = record['hardware'], record['versions']
  return (
    f'{hardware["cores"]} cores of {hardware["processor"]}, TensorFlow {versions["tensorflow"]}, '
    f'Python {versions["python"]}'
  )


if __name__ == '__main__':
  main()
