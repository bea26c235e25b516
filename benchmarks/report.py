"""Makes the README's results tables from benchmarks/results/*.json; --check only compares."""

import argparse
import glob
import json
import os
import re
import statistics
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
README = os.path.join(ROOT, 'README.md')
RESULTS = os.path.join(ROOT, 'benchmarks', 'results')
RESULTS_BLOCK = re.compile(r'(<!-- results -->\n).*?(<!-- /results -->)', re.S)
# In the README's order.
_KINDS = [
  'time_to_accuracy',
  'resnet20_he2015',
  'resnet20_20_epochs',
  'training',
  'lines',
  'input pipeline',
  'inference',
  'startup',
  'cluster',
  'cluster_accuracy',
]
SUPPORT_BLOCK = re.compile(r'(<!-- support -->\n).*?(<!-- /support -->)', re.S)


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
  results = tables([record for record in records if record['name'] != 'support'])
  support = ''.join(_support(record) for record in records if record['name'] == 'support')
  after = RESULTS_BLOCK.sub(lambda match: match[1] + results + match[2], before)
  after = SUPPORT_BLOCK.sub(lambda match: match[1] + support + match[2], after)
  if check and after != before:
    print('README.md is out of date: run python benchmarks/report.py', file=sys.stderr)
    sys.exit(1)
  if not check:
    with open(README, 'w', encoding='utf-8') as file:
      file.write(after)
  print(json.dumps({'results': len(records), 'changed': after != before}))


def tables(records: list[dict]) -> str:
  """One block for each kind of record."""
  accuracies_first = sorted(records, key=lambda record: _KINDS.index(record['name']))
  return ''.join(_table(record) for record in accuracies_first)


def _table(record: dict) -> str:
  if 'accuracies' in record:
    return _spread(record)
  if 'twins' in record:
    return _time_to_accuracy(record)
  if 'milliseconds' in record:
    return _inference(record)
  if 'mebibytes' in record:
    return _startup(record)
  return _accuracy(record) if 'result' in record else _speed(record)


def _spread(record: dict) -> str:
  """Several seeds of two ways to train."""
  rows = ''.join(
    f'| {name} | {", ".join(f"{100 * value:.2f}" for value in values)} '
    f'| {100 * record["mean"][name]:.2f} |\n'
    for name, values in record['accuracies'].items()
  )
  return (
    f'`{record["command"]}`: accuracy in per cent on the 10,000 test images after '
    f'{record["examples"]:,} examples, by seed\n\n| | seeds | mean |\n|---|---|---:|\n{rows}\n'
  )


def _time_to_accuracy(record: dict) -> str:
  """A fast recipe's seeds, and its twins' seconds."""
  seeds = ', '.join(f'{100 * run["accuracy"]:.2f}' for run in record['runs'])
  rows = f'| `--recipe {record["recipe"]}` | {record["seconds_median"]:.0f} | |\n'
  for name, runs in record['twins'].items():
    seconds = statistics.median(run['seconds'] for run in runs)
    rows += f'| PyTorch, {name} | {seconds:.0f} | **{record["ratios"][name]:.2f}** |\n'
  run = record['twins'] and next(iter(record['twins'].values()))[0]
  part = (
    f' The twins were measured over {run["steps_measured"]} steps and their test, and the rest '
    'reckoned to take as long; their accuracy was not measured.'
    if run and run['steps_measured'] < run['steps']
    else ''
  )
  return (
    f'**{100 * record["accuracy_mean"]:.2f} %** on the 10,000 test images, the mean of '
    f'{len(record["runs"])} seed(s) ({seeds}), with test-time augmentation; without it '
    f'{100 * record["accuracy_without_tta_mean"]:.2f} %. `{record["command"]}` on '
    f'{_environment(record)}; seconds from command to exit, test included, medians:\n\n'
    f'| | seconds | our seconds / theirs |\n|---|---:|---:|\n{rows}\n'
    f'PyTorch {_torch(record)}, {record["dtype"]}, channels_last.{part}{_note(record)}\n\n'
  )


def _torch(record: dict) -> str:
  return next((run['torch'] for runs in record['twins'].values() for run in runs), 'not measured')


def _support(record: dict) -> str:
  """What tests/support.py found on each Python."""
  pythons = dict(record['pythons'])
  across = pythons.pop('across', None)
  rows = ''.join(
    f'| {version} | {outcome.get("tensorflow", "")} | {outcome["outcome"]} |\n'
    for version, outcome in sorted(pythons.items(), key=lambda item: int(item[0].split('.')[1]))
  )
  said = f'\nAlso {across["outcome"]}.\n' if across else ''
  refused = '| 3.14 | none has a package for it | refused by `make install` |\n'
  return f'| Python | TensorFlow | outcome |\n|---|---|---|\n{rows}{refused}{said}'


def _accuracy(record: dict) -> str:
  result = record['result']
  return (
    f'**{100 * result["accuracy"]:.2f} %** on the {result["examples"]:,} test images '
    f'(top 5: {100 * result["accuracy_top5"]:.2f} %), n = {record["n"]}, '
    f'{record["minutes"]:.0f} minutes on {_environment(record)}{_note(record)}:\n\n'
    f'```text\n{record["command"]}\n```\n\n'
  )


def _speed(record: dict) -> str:
  rows = ''.join(
    f'| {name} | {value:,.0f} |\n' for name, value in record['images_per_second'].items()
  )
  return (
    f'`{record["command"]}` on {_environment(record)}, medians of {record["pairs"]} pairs in one '
    f'run; {_ratios(record)}\n\n| | images/s |\n|---|---:|\n{rows}\n{_protocol_cost(record)}'
  )


def _inference(record: dict) -> str:
  """Seconds of a call, by precision and batch."""
  rows = ''.join(
    f'| {name} | {value:,.2f} | {record["images_per_second"][name]:,.0f} |\n'
    for name, value in record['milliseconds'].items()
  )
  return (
    f'`{record["command"]}`: an exported ResNet-20 on {_environment(record)}, medians of '
    f'{record["pairs"]} pairs in one run; {_ratios(record)}\n\n'
    f'| | ms a call | images/s |\n|---|---:|---:|\n{rows}\n'
  )


def _startup(record: dict) -> str:
  """Seconds and peak memory."""
  seconds = ''.join(f'| {case} | {value:.1f} s |\n' for case, value in record['seconds'].items())
  memory = ''.join(f'| {case} | {value:,} MiB |\n' for case, value in record['mebibytes'].items())
  return (
    f'`{record["command"]}` on {_environment(record)}, medians of {record["pairs"]} runs; '
    f'{_ratios(record)}\n\n| | |\n|---|---:|\n{seconds}{memory}\n'
  )


def _note(record: dict) -> str:
  return f' {record["note"]}' if 'note' in record else ''


def _ratios(record: dict) -> str:
  return ', '.join(f'{name}: **{value:.2f}**' for name, value in record['ratios'].items())


def _protocol_cost(record: dict) -> str:
  """What a cluster's step costs when it computes next to nothing."""
  steps = record.get('tiny_milliseconds_per_step')
  if not steps:
    return ''
  listed = ', '.join(f'{name} {value:.1f} ms' for name, value in steps.items())
  return f'A synchronous step of ResNet-8 with batch 1, all on the same cores: {listed}.\n\n'


def _environment(record: dict) -> str:
  hardware, versions = record['hardware'], record['versions']
  cores = f'{hardware["cores"]} cores of {hardware["processor"]}'
  if record['name'] == 'lines':  # Its rows say which versions.
    return cores
  return f'{cores}, TensorFlow {versions["tensorflow"]}, Python {versions["python"]}'


if __name__ == '__main__':
  main()
