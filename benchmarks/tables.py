"""Markdown tables of the results, one for each record."""

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from records import (
  Records,
  accuracies,
  accuracy,
  are_computed,
  foremost,
  machine,
  machines,
  minutes,
  number_of_runs,
  title,
  trainings,
)

# Versions that docs/results.md names once, at its top.
_USUAL = ('TensorFlow 2.15.1', 'Python 3.11.7', 'PyTorch 2.13.0+cpu')
# What the records' names mean to a reader.
_SHOWN = {
  'program': 'this program',
  'ours': 'this program',
  'bare': 'the same graph without the Estimator',
  'convolutions (limit)': 'its convolutions alone (limit)',
  'keras': 'Keras',
  'torch': 'PyTorch',
  'onnxruntime': 'onnxruntime, the ONNX export',
  'openvino': 'OpenVINO, the SavedModel',
  'torch compiled': 'PyTorch, compiled',
  'airbench94': 'airbench94 in PyTorch',
  'airbench94, compiled': 'airbench94 in PyTorch, compiled',
  'fulcrum': "fulcrum's recipe in PyTorch",
  'same recipe': 'the same recipe in PyTorch',
  'same recipe, compiled': 'the same recipe in PyTorch, compiled',
  'TF_SYNC_ON_FINISH=0': 'this program with TF_SYNC_ON_FINISH=0',
  'TF_ENABLE_WINOGRAD_NONFUSED=0': 'this program with TF_ENABLE_WINOGRAD_NONFUSED=0',
  'force_gpu_compatible': 'this program with force_gpu_compatible',
  'old order': 'the old example: image by image',
  'index gather (limit)': 'gathering alone (limit)',
  'PyTorch DataLoader, no processes beside its own': 'PyTorch DataLoader, no worker processes',
  'PyTorch DataLoader, 2 processes beside its own': 'PyTorch DataLoader, 2 worker processes',
  'tensorpack DataFlow, no processes beside its own': 'tensorpack DataFlow, no worker processes',
  'tensorpack DataFlow, 2 processes beside its own': 'tensorpack DataFlow, 2 worker processes',
}


def tables(results: Records) -> dict[str, str]:
  """Every table that the results make, by name."""
  ordered = sorted(trainings(results).values(), key=accuracy, reverse=True)
  timed = [record for record in ordered if record.get('twins')]
  speeds, shapes = _named(results, 'training'), _named(results, 'shapes')
  on_cpus = [record for record in speeds if 'gpu' not in record['hardware']]
  first = foremost(results).values()
  made = {
    'summary': _summary(first, on_cpus),
    'machines': _machines(results, speeds, timed),
    'trained': _trained(ordered),
    'time_to_accuracy': _time_to_accuracy(timed) + _notes(timed),
    'training': _training(speeds) + _notes(speeds),
    'shapes': _shapes(shapes) + _notes(shapes),
    'support': _support(results['support']),
  }
  for name, table in _TABLES.items():
    record = results[name]
    made[name] = f'{table(record)}{_notes([record])}'
  return made


def _named(results: Records, name: str) -> list[dict]:
  """The measurements by one benchmark, those on a GPU last."""
  found = [results[each] for each in sorted(results) if results[each]['name'] == name]
  return sorted(found, key=lambda record: 'gpu' in record['hardware'])


def _machines(results: Records, speeds: Iterable[dict], timed: Iterable[dict]) -> str:
  """What the short names mean, and what a user of this program gets there."""
  rates = {machine(record): record['images_per_second'] for record in speeds}
  lasted = {machine(record): minutes(record) for record in timed if 'form' not in record}
  rows = []
  for name, described in machines(results).items():
    found = [rates.get(name, {}).get(f'program {dtype}') for dtype in ('float32', 'bfloat16')]
    found.append(lasted.get(name))
    rows.append([name, described, *('' if value is None else f'{value:,.0f}' for value in found)])
  heads = 'name | machine | ResNet-20 in float32, images/s | in bfloat16 | `fast94`, minutes'
  return _markdown(heads, rows, words=2)


def _notes(records: Iterable[dict]) -> str:
  """Of each record where, by what and how it was measured."""
  lines = []
  for record in records:
    often = ''
    if 'pairs' in record:
      often = f', medians of {record["pairs"]}'
    elif 'turns' in record:
      often = f', medians of {record["turns"]} turns of {record["seconds_of_a_turn"]} seconds'
    where = ', '.join([machine(record), *_versions(record)])
    lines.append(f'- {where}{often}: `{record["command"]}`{_remark(record)}.\n')
  return '\n' + ''.join(lines)


def _remark(record: dict) -> str:
  """Where its record says more of a run, as that it was paused."""
  return f' (note in `{record["file"]}`)' if 'note' in record else ''


def _summary(trained: Iterable[dict], speeds: Sequence[dict]) -> str:
  """The README's table, the ResNets first, and the speed beside Keras and PyTorch."""
  trained = (record for record in trained if 'form' not in record)  # As it was before a repair.
  ordered = sorted(trained, key=lambda record: 'fast' in title(record))  # Keeps their order.
  rows = (
    (title(r), f'**{100 * accuracy(r):.2f} %**', _deviation(r), number_of_runs(r), _minutes(r))
    for r in ordered
  )
  heads = 'trained | test accuracy, mean | standard deviation | runs | minutes each'
  return _markdown(heads, rows) + (f'\n{_times(speeds)}\n' if speeds else '')


def _deviation(record: dict) -> str:
  """The sample standard deviation of several runs' accuracies."""
  several = accuracies(record)
  return f'{100 * statistics.stdev(several):.2f}' if len(several) > 1 else ''


def _minutes(record: dict) -> str:
  """The minutes of a run, on each kind of machine; says so where they were computed."""
  each = sorted(minutes(r) for r in [record, *record.get('others', ())])
  shown = ' to '.join(dict.fromkeys(f'{value:.0f}' for value in (each[0], each[-1])))
  return shown + (' (computed)' if are_computed(record) else '')


def _times(speeds: Iterable[dict]) -> str:
  """A sentence: the program's images/s as multiples of Keras' and PyTorch's on all processors."""
  ratios = [record['ratios'] for record in speeds]
  ranges = []
  for peer in ('keras', 'torch'):
    names = [f'program / {peer}, {dtype}' for dtype in ('float32', 'bfloat16')]
    every = [of[name] for of in ratios for name in names if name in of]
    ranges.append(f'{min(every):.2f} to {max(every):.2f}')
  return (
    f'ResNet-20 with batch 128 trains {ranges[0]} times as fast as Keras and {ranges[1]} times as\n'
    'fast as PyTorch, by processor and dtype ([docs/results.md](docs/results.md)).'
  )


def _trained(trained: Iterable[dict]) -> str:
  """What came out of each training, where, and by which command."""
  rows, notes = '', ''
  for r in trained:
    name = title(r) + (f', {r["form"]}' if 'form' in r else '')
    rows += f'| {name} | {_reached(r)} | {number_of_runs(r)} | {_minutes(r)} | {machine(r)} |\n'
    if not r.get('twins'):  # The table of those with peers says it.
      versions = ', '.join(_versions(r))
      notes += f'- {title(r).partition(" (")[0]}, {versions}: `{r["command"]}`{_remark(r)}.\n'
  heads = '| trained | on the 10,000 test images | runs | minutes each | on |\n'
  return f'{heads}|---|---|---:|---:|---|\n{rows}\n{notes}'


def _reached(record: dict) -> str:
  reached = f'**{100 * accuracy(record):.2f} %**'
  if 'runs' not in record:
    return f'{reached} (top 5: {100 * record["result"]["accuracy_top5"]:.2f} %)'
  runs = record['runs']
  seeds = ', '.join(f'{100 * run["accuracy"]:.2f}' for run in runs)
  numbers = [run['seed'] for run in runs]
  first, last = numbers[0], numbers[-1]
  if len(runs) == 1:
    numbered = f'seed {first}'
  elif numbers == [*range(first, last + 1)]:
    numbered = f'seeds {first} to {last}'
  else:
    numbered = f'seeds {", ".join(map(str, numbers))}'
  listed = f'{reached} ({numbered}: {seeds})'
  if 'result' in record:
    return listed
  return f'{listed}, without TTA {100 * record["accuracy_without_tta_mean"]:.2f} %'


def _versions(record: dict) -> list[str]:
  """The versions that are not the usual ones, and the commit: 'PyTorch 2.11.0+cu130'."""
  of = record['versions']
  own = [f'TensorFlow {of["tensorflow"]}', f'Python {of["python"]}']
  unusual = [version for version in [*own, *_peers(record)] if version not in _USUAL]
  return [*unusual, f'commit `{record["commit"]}`']


def _peers(record: dict) -> list[str]:
  """What was measured beside the program: 'PyTorch 2.13.0+cpu'."""
  twin = next((run for runs in record.get('twins', {}).values() for run in runs), record)
  versions = {'torch': twin.get('torch'), **record.get('peers', {})}
  names = {'torch': 'PyTorch'}
  return [f'{names.get(name, name)} {version}' for name, version in versions.items() if version]


def _time_to_accuracy(timed: Iterable[dict]) -> str:
  """Seconds of a fast recipe's command and of its twins, a row for each twin and machine."""
  rows = []
  for record in timed:
    for name, runs in record['twins'].items():
      steps = f'{runs[0]["steps_measured"]} of {runs[0]["steps"]}'
      theirs = f'{statistics.median(run["seconds"] for run in runs):,.0f}'
      ratio = f'**{record["ratios"][name]:.2f}**'
      ours = f'{record["seconds_median"]:,.0f}'
      where = machine(record) + (f', {record["form"]}' if 'form' in record else '')
      rows.append([where, record['dtype'], ours, _shown(name), steps, theirs, ratio])
  heads = '| on | in | `fast94`, s | beside | steps measured | s | program ÷ peer |\n'
  return heads + '|---|---|---:|---|---:|---:|---:|\n' + _rows(rows)


def _training(speeds: Iterable[dict]) -> str:
  """Images/s of the program, and its ratio to each other way, a row for each machine and dtype."""
  every = ['bare', 'keras', 'torch', 'torch compiled', 'convolutions (limit)']
  every += ['TF_SYNC_ON_FINISH=0', 'TF_ENABLE_WINOGRAD_NONFUSED=0', 'force_gpu_compatible']
  speeds = list(speeds)
  found = {name for record in speeds for name in record['ratios']}
  others = [other for other in every if any(f' {other},' in name for name in found)]
  rows = []
  for record in speeds:
    rates, ratios = record['images_per_second'], record['ratios']
    for dtype in ('float32', 'bfloat16'):
      if f'program {dtype}' in rates:
        found_here = (ratios.get(f'program / {other}, {dtype}') for other in others)
        cells = ['' if ratio is None else f'**{ratio:.2f}**' for ratio in found_here]
        rows.append([machine(record), dtype, f'{rates[f"program {dtype}"]:,.0f}', *cells])
  heads = ' | '.join(['on', 'in', 'images/s', *(f'÷ {_shown(other)}' for other in others)])
  return _markdown(heads, rows, words=2)


def _shapes(shapes: Sequence[dict]) -> str:
  """The program's ratios, a row for each network and batch; in a cell those of all machines."""
  kinds = [(dtype, peer) for dtype in ('float32', 'bfloat16') for peer in ('keras', 'torch')]
  rows = []
  for shape in dict.fromkeys(name.partition(': ')[0] for name in shapes[0]['images_per_second']):
    rows.append([shape])
    for dtype, peer in kinds:
      found = (record['ratios'].get(f'{shape}: program / {peer}, {dtype}') for record in shapes)
      rows[-1].append(', '.join(f'{ratio:.2f}' for ratio in found if ratio))
  heads = [f'{dtype}: ÷ {_shown(peer)}' for dtype, peer in kinds]
  return _markdown(' | '.join(['network, batch', *heads]), rows)


def _inference(record: dict) -> str:
  """Milliseconds a call, a column for each precision and batch."""
  times = record['milliseconds']

  def cell(name: str, case: str) -> str:
    value = times.get(f'{name} {case}')  # onnxruntime has no bfloat16.
    return '' if value is None else f'{value:,.2f}'

  table = _grid('ms a call', times, cell)
  if record['ratios']:
    ratios = (f'**{ratio:.2f}**' for ratio in record['ratios'].values())
    table += _rows([['*best PyTorch ÷ this program*', *ratios]])
  return table


def _grid(
  corner: str, values: Iterable[str], cell: Callable[[str, str], str], beside: str = ''
) -> str:
  """'program float32, batch 1' is of the row 'program' and the column 'float32, batch 1'.

  With `beside`, a cell fills two columns, of which that heads the second.
  """
  places = [re.split(r' (?=float32|bfloat16)', name) for name in values]
  rows, columns = (list(dict.fromkeys(names)) for names in zip(*places))
  heads = [head for column in columns for head in ([column, beside] if beside else [column])]
  cells = ([_shown(name), *(cell(name, column) for column in columns)] for name in rows)
  return _markdown(' | '.join([corner, *heads]), cells)


def _rates(record: dict) -> str:
  """Images/s, and ratios."""
  rows = [(_shown(name), f'{value:,.0f}') for name, value in record['images_per_second'].items()]
  for name, value in record['ratios'].items():
    one, _, other = name.partition(' / ')
    rows.append((f'*{_shown(one)} ÷ {_shown(other)}*', f'**{value:.2f}**'))
  return _markdown('| images/s', rows) + _protocol_cost(record)


def _startup(record: dict) -> str:
  """Seconds and peak memory."""
  seconds = [(case, f'{value:.1f} s') for case, value in record['seconds'].items()]
  memory = [(case, f'{value:,} MiB') for case, value in record.get('mebibytes', {}).items()]
  return _markdown('what | time or memory', seconds + memory)


def _support(record: dict) -> str:
  """What tests/support.py found on each Python."""
  pythons = dict(record['pythons'])
  across = pythons.pop('across', None)
  rows = [
    (version, outcome.get('tensorflow', ''), outcome['outcome'])
    for version, outcome in sorted(pythons.items(), key=lambda item: int(item[0].split('.')[1]))
  ]
  rows.append(('3.14', 'none has a package for it', 'refused by `make install`'))
  also = f' Also {across["outcome"]}.' if across else ''
  said = f'\nAt commit `{record["commit"]}`.{also}\n'
  return _markdown('Python | TensorFlow | outcome', rows, words=3) + said


def _faults(record: dict) -> str:
  """How many points of failure tests/faults.py tried of each command, by what happened there."""
  outcomes = ('KILL', 'TORN', 'FULL', 'BROKEN', 'TIME')
  rows = [
    [row['command'], row['calls'], *(row.get(each, 0) for each in outcomes), row['failed']]
    for row in record['rows']
  ]
  _, *numbers = zip(*rows, strict=True)
  heads = f'command | calls | {" | ".join(outcomes)} | failing'
  return _markdown(heads, [*rows, ['all', *map(sum, numbers)]])


def _protocol_cost(record: dict) -> str:
  """What a cluster's step costs when it computes next to nothing; beside an earlier commit."""
  steps = record.get('milliseconds_per_step')
  if not steps:
    return ''
  earlier = record.get('beside')
  heads = ['milliseconds a step, batch 1', *([f'at commit {earlier["commit"]}'] if earlier else [])]
  measured = [steps, *([earlier['milliseconds_per_step']] if earlier else [])]
  rows = ([name, *(f'{each[name]:.1f}' for each in measured)] for name in steps)
  table = _markdown(f'| {" | ".join(heads)}', rows)
  return f'\nA synchronous step, all on the same cores:\n\n{table}'


def _markdown(heads: str, rows: Iterable[Sequence[Any]], words: int = 1) -> str:
  """A table: its heads with bars between them, its cells, and how many columns are not numbers."""
  numbers = heads.count('|') + 1 - words
  return f'| {heads} |\n|{words * "---|"}{numbers * "---:|"}\n{_rows(rows)}'


def _rows(rows: Iterable[Sequence[Any]]) -> str:
  return ''.join(f'| {" | ".join(map(str, cells))} |\n' for cells in rows)


def _shown(name: str) -> str:
  return _SHOWN.get(name, name)


# Of results that have one of their own, by the file's name.
_TABLES = {
  'cluster': _rates,
  'faults': _faults,
  'inference': _inference,
  'input_pipeline': _rates,
  'startup': _startup,
}
