"""Makes the README's results tables from benchmarks/results/*.json; --check only compares."""

import argparse
import glob
import json
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterable

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
README = os.path.join(ROOT, 'README.md')
RESULTS = os.path.join(ROOT, 'benchmarks', 'results')
RESULTS_BLOCK = re.compile(r'(<!-- results -->\n).*?(<!-- /results -->)', re.S)
# In the README's order.
_HEADINGS = {
  'time_to_accuracy': 'From command to exit, test included',
  'resnet20_he2015': '',
  'resnet20_20_epochs': '',
  'training': 'Training',
  'lines': 'Both lines of TensorFlow',
  'input pipeline': 'Input',
  'inference': 'An exported ResNet-20',
  'startup': 'Start-up and memory',
  'cluster': 'A cluster on one machine',
  'cluster_accuracy': 'Accuracy of a synchronous cluster',
}
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
  """What was reached, and then how fast, each with the command that shows it."""
  records = sorted(records, key=lambda record: list(_HEADINGS).index(record['name']))
  usual = _environment(records[0])
  trained = [record for record in records if 'twins' in record or 'result' in record]
  rows = ''.join(_accuracy(record) for record in trained)
  notes = ''.join(
    f'{record["note"]}\n\n' for record in trained if 'note' in record and 'result' in record
  )
  return (
    f'On {usual}, where nothing else is said.\n\n'
    '| trained | on the 10,000 test images | runs | minutes each |\n'
    f'|---|---|---:|---:|\n{rows}\n{notes}' + ''.join(_speed(record, usual) for record in records)
  )


def _accuracy(record: dict) -> str:
  """A row: what was trained how, and what came out."""
  if 'result' in record:
    result = record['result']
    reached = f'**{100 * result["accuracy"]:.2f} %** (top 5: {100 * result["accuracy_top5"]:.2f} %)'
    return f'| {record["title"]} | {reached} | {record["n"]} | {record["minutes"]:.0f} |\n'
  seeds = ', '.join(f'{100 * run["accuracy"]:.2f}' for run in record['runs'])
  plain = f'without test-time augmentation {100 * record["accuracy_without_tta_mean"]:.2f} %'
  return (
    f'| `--recipe {record["recipe"]}` | **{100 * record["accuracy_mean"]:.2f} %** ({seeds}), '
    f'{plain} | {len(record["runs"])} | {record["seconds_median"] / 60:.0f} |\n'
  )


def _speed(record: dict, usual: str) -> str:
  """A heading, the command, and its table; nothing for a training without a comparison."""
  for key, table in _TABLES.items():
    if key in (record['name'], *record):
      environment = _environment(record)
      said = f'`{record["command"]}`'
      said += f', medians of {record["pairs"]} in turn' if 'pairs' in record else ''
      said += f', {environment}' if environment != usual else ''
      return f'**{_HEADINGS[record["name"]]}** ({said})\n\n{table(record)}\n'
  return ''


def _spread(record: dict) -> str:
  """Several seeds of two ways to train."""
  rows = ''.join(
    f'| {name} | {", ".join(f"{100 * value:.2f}" for value in values)} '
    f'| {100 * record["mean"][name]:.2f} |\n'
    for name, values in record['accuracies'].items()
  )
  return f'| % after {record["examples"]:,} examples | seeds | mean |\n|---|---|---:|\n{rows}'


def _twins(record: dict) -> str:
  """A fast recipe's seconds, and its twins'."""
  seconds = record['seconds_median']
  rows = f'| `--recipe {record["recipe"]}` | {seconds:.0f} | |\n'
  for name, runs in record['twins'].items():
    theirs = statistics.median(run['seconds'] for run in runs)
    rows += f'| PyTorch, {name} | {theirs:.0f} | **{record["ratios"][name]:.2f}** |\n'
  first = next((run for runs in record['twins'].values() for run in runs), None)
  if not first:
    return f'| | seconds |\n|---|---:|\n| `--recipe {record["recipe"]}` | {seconds:.0f} |\n'
  part = (
    f' The twins were measured over {first["steps_measured"]} steps and their test, and the rest '
    'reckoned to take as long; their accuracy was not measured.'
    if first['steps_measured'] < first['steps']
    else ''
  )
  return (
    f'| | seconds | our seconds / theirs |\n|---|---:|---:|\n{rows}\n'
    f'PyTorch {first["torch"]}, {record["dtype"]}, channels_last.{part}{_note(record)}\n'
  )


def _training(record: dict) -> str:
  """Images/s, a column for each precision."""
  rates, ratios = record['images_per_second'], record['ratios']

  def cell(name: str, dtype: str) -> str:
    ratio = ratios.get(f'program / {name}, {dtype}')
    return f'{rates[f"{name} {dtype}"]:,.0f}' + (f' (**{ratio:.2f}**)' if ratio else '')

  return _grid('images/s (program / it)', rates, cell) + _torch(record)


def _inference(record: dict) -> str:
  """Milliseconds a call, a column for each precision and batch."""
  times = record['milliseconds']
  table = _grid('ms a call', times, lambda name, case: f'{times[f"{name} {case}"]:,.2f}')
  if record['ratios']:
    table += _last_row('best PyTorch / program', record['ratios'].values())
  return table + _torch(record)


def _lines(record: dict) -> str:
  """Images/s under each TensorFlow, a column for each precision."""
  rates = record['images_per_second']
  table = _grid('images/s', rates, lambda name, dtype: f'{rates[f"{name} {dtype}"]:,.0f}')
  return table + _last_row('second / first', record['ratios'].values())


def _last_row(name: str, ratios: Iterable[float]) -> str:
  return f'| *{name}* | {" | ".join(f"**{ratio:.2f}**" for ratio in ratios)} |\n'


def _grid(corner: str, values: Iterable[str], cell: Callable[[str, str], str]) -> str:
  """'program float32, batch 1' is of the row 'program' and the column 'float32, batch 1'."""
  places = [re.split(r' (?=float32|bfloat16)', name) for name in values]
  rows, columns = (list(dict.fromkeys(names)) for names in zip(*places))
  lines = [f'| {name} | {" | ".join(cell(name, column) for column in columns)} |' for name in rows]
  heads = f'| {corner} | {" | ".join(columns)} |\n|---|{"---:|" * len(columns)}'
  return '\n'.join([heads, *lines, ''])


def _torch(record: dict) -> str:
  return f'\nPyTorch {record["torch"]}, channels_last.\n' if 'torch' in record else ''


def _rates(record: dict) -> str:
  """Images/s, and ratios."""
  rates = record['images_per_second'].items()
  rows = ''.join(f'| {name} | {value:,.0f} |\n' for name, value in rates)
  rows += ''.join(f'| *{name}* | **{value:.2f}** |\n' for name, value in record['ratios'].items())
  return f'| | images/s |\n|---|---:|\n{rows}{_protocol_cost(record)}'


def _startup(record: dict) -> str:
  """Seconds and peak memory."""
  seconds = ''.join(f'| {case} | {value:.1f} s |\n' for case, value in record['seconds'].items())
  memory = ''.join(f'| {case} | {value:,} MiB |\n' for case, value in record['mebibytes'].items())
  return f'| | |\n|---|---:|\n{seconds}{memory}'


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


def _note(record: dict) -> str:
  return f' {record["note"]}' if 'note' in record else ''


def _protocol_cost(record: dict) -> str:
  """What a cluster's step costs when it computes next to nothing."""
  steps = record.get('tiny_milliseconds_per_step')
  if not steps:
    return ''
  listed = ', '.join(f'{name} {value:.1f} ms' for name, value in steps.items())
  return f'\nA synchronous step of ResNet-8 with batch 1, all on the same cores: {listed}.\n'


def _environment(record: dict) -> str:
  hardware, versions = record['hardware'], record['versions']
  cores = f'{hardware["cores"]} cores of {hardware["processor"]}'
  return f'{cores}, TensorFlow {versions["tensorflow"]}, Python {versions["python"]}'


# By its name, or by what it has.
_TABLES = {
  'training': _training,
  'lines': _lines,
  'twins': _twins,
  'accuracies': _spread,
  'milliseconds': _inference,
  'mebibytes': _startup,
  'images_per_second': _rates,
}


if __name__ == '__main__':
  main()
