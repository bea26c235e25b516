"""The benchmarks run on tiny data and print their records; the documents show what is committed."""

import argparse
import importlib.util
import itertools
import json
import os
import re
import statistics
import sys

import checkout
import pytest
from outcome import succeeded

from cifar10.core import errors
from cifar10.options import families

sys.path.append(os.path.join(checkout.ROOT, 'benchmarks'))

import commands
import records
import turns

long = pytest.mark.long
# Of inference: the program, its convolutions and other runtimes, each with two batch sizes.
OTHERS = [name for name in ('onnxruntime', 'openvino') if importlib.util.find_spec(name)]
RATES = 2 * (2 + len(OTHERS))
TURN = ['--turns', '1', '--seconds', '1', '--dtypes', 'float32']
RESNET8 = ['--network', 'resnet-8', '--batch-size', '16']
SMALL = ['--num-layers', '8', '--batch-size', '16']
TINY = ['--pairs', '1', '--dtypes', 'float32']
# Prints when its steps of so many seconds end, and notes its process and them in a file.
STEPS = """
import os, sys, time
seconds, path = float(sys.argv[1]), sys.argv[2]
with open(path, 'w') as file:
  file.write(f'{os.getpid()}\\n')
while True:
  time.sleep(seconds)
  with open(path, 'a') as file:
    file.write(f'{time.perf_counter()}\\n')
  print(time.perf_counter(), flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(660)
@pytest.mark.parametrize(
  ('name', 'flags', 'rates'),
  [
    ('input_pipeline', ['--pairs', '1', '--batch-size', '16', '--batches', '2'], 3),
    pytest.param('training', [*TURN, *RESNET8], 4, marks=long),
    pytest.param('training', [*TURN, *RESNET8, '--beside', 'saving'], 2, marks=long),
    pytest.param('shapes', [*TURN, '--shapes', 'resnet-8:16,wrn-10-1:16'], 4, marks=long),
    pytest.param('inference', [*TINY, '--calls', '2', '--batch-size', '2'], RATES, marks=long),
    pytest.param('startup', ['--pairs', '1'], 0, marks=long),
    pytest.param('cluster', [*SMALL, '--pairs', '1', '--lines', '1'], 4, marks=long),
  ],
  ids=lambda value: value if isinstance(value, str) else '',
)
def test_a_benchmark_prints_its_record(data_dir, name, flags, rates):
  ran = checkout.python(f'benchmarks/{name}.py', '--data-dir', data_dir, *flags, timeout=600)
  record = succeeded(ran)
  assert record['name'].replace(' ', '_') == name
  assert {'tensorflow', 'python', 'numpy'} == set(record['versions'])
  measured = record.get('images_per_second', {})
  assert len(measured) == rates
  assert all(rate > 0 for rate in measured.values())


@pytest.mark.parametrize('script', ['report.py', 'pictures.py'])
def test_the_documents_show_what_is_committed(script):
  checkout.python(f'benchmarks/{script}', '--check', must_succeed=True)


def test_the_foremost_training_of_a_recipe_has_the_most_runs():
  """Of equally many the first; then by accuracy."""
  few, many, other = (
    {'recipe': recipe, 'runs': runs * [{'accuracy': accuracy}], 'twins': {}}
    for recipe, accuracy, runs in (('fast94', 0.95, 1), ('fast94', 0.94, 3), ('fast95', 0.945, 1))
  )
  results = {'few': few, 'many': many, 'other': other, 'speed': {'ratios': {}}}
  assert list(records.foremost(results)) == ['other', 'many']


def test_a_records_command_can_be_run_again(monkeypatch):
  parser = argparse.ArgumentParser()
  parser.add_argument('--shapes', default=[])
  flags = argparse.Namespace(shapes=['resnet-20:32', 'wrn-16-4:128'])
  monkeypatch.setattr(sys, 'argv', ['/somewhere/benchmarks/shapes.py'])
  monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', 'AVX2')
  assert commands.command_line(parser, flags) == (
    'ONEDNN_MAX_CPU_ISA=AVX2 python benchmarks/shapes.py --shapes resnet-20:32,wrn-16-4:128'
  )


@pytest.mark.skipif(not importlib.util.find_spec('matplotlib'), reason='needs matplotlib')
@pytest.mark.slow
def test_pictures_say_the_results_and_are_the_same_each_time(tmp_path):
  drawn = []
  for name in ('once', 'again'):
    checkout.python('benchmarks/pictures.py', '--folder', tmp_path / name, must_succeed=True)
    drawn.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
  assert drawn[0] == drawn[1]
  assert set(drawn[0]) == {'accuracy.svg', 'learning_curves.svg'}
  lost = tmp_path / 'once' / 'accuracy.svg'
  lost.write_bytes(lost.read_bytes().replace(b' % (n', b' (n'))
  checked = checkout.python('benchmarks/pictures.py', '--check', '--folder', tmp_path / 'once')
  assert checked.returncode == 1
  assert 'accuracy.svg does not say' in checked.stderr


def measured_recipes():
  """The foremost result of each recipe that was trained to its end."""
  results = records.foremost(records.read())
  titles = {name: re.search(r'--recipe ([\w-]+)', records.title(r)) for name, r in results.items()}
  return [(named[1], results[name]) for name, named in titles.items() if named]


@pytest.mark.parametrize(('recipe', 'record'), measured_recipes())
def test_a_recipe_says_the_accuracy_that_its_results_have(recipe, record):
  said, seeds = families.RECIPES[recipe].accuracy, records.accuracies(record)
  assert said.startswith(f'{100 * statistics.fmean(seeds):.2f} ')
  if len(seeds) > 1:
    assert f' +- {100 * statistics.stdev(seeds):.2f} % ' in said and f'({len(seeds)} seeds' in said
  else:
    assert re.search(r'one seed|n = 1', said)


def test_a_recipe_without_results_says_so():
  measured = {recipe for recipe, _ in measured_recipes()}
  assert {'fast94', 'fast95', 'he2015'} <= measured
  for recipe in set(families.RECIPES) - measured:
    assert 'not measured' in families.RECIPES[recipe].accuracy


def test_no_result_comes_from_a_changed_checkout():
  """A commit says what was measured only where nothing was changed since."""
  texts = {name: json.dumps(record) for name, record in records.read().items()}
  assert [name for name, text in texts.items() if '-dirty' in text] == []


def steps(seconds, path):
  return [sys.executable, '-c', STEPS, seconds, path]


def noted(path):
  """The process and when its steps ended."""
  pid, *moments = path.read_text().split()
  return int(pid), [float(moment) for moment in moments]


def test_processes_take_turns_and_none_remains(tmp_path):
  paths = {'fast': tmp_path / 'fast', 'slow': tmp_path / 'slow'}
  both = {'fast': steps(0.01, paths['fast']), 'slow': steps(0.02, paths['slow'])}
  rates = turns.steps_per_second(both, turns=3, seconds=0.3, warm_up=2)
  assert {name: len(values) for name, values in rates.items()} == {'fast': 3, 'slow': 3}
  assert 0 < max(rates['fast']) <= 100  # A sleep never ends early.
  assert 0 < max(rates['slow']) <= 50
  # The order is fast slow (starts), fast slow, slow fast, fast slow: whose step ended changes five
  # times, and twice more for each end of a turn where a step ends in that moment.
  ended = sorted((moment, name) for name, path in paths.items() for moment in noted(path)[1])
  changes = sum(before[1] != after[1] for before, after in itertools.pairwise(ended))
  assert 5 <= changes <= 5 + 2 * 8
  assert len(ended) > 2 * changes
  assert not any(os.path.exists(f'/proc/{noted(path)[0]}') for path in paths.values())


def test_a_process_that_ends_is_told_and_the_others_end_too(tmp_path):
  path = tmp_path / 'first'
  both = {'first': steps(0.01, path), 'second': [sys.executable, '-c', 'exit(3)']}
  with pytest.raises(errors.InputError, match=r'exit\(3\) ended with exit code 3'):
    turns.steps_per_second(both, turns=1, seconds=0.1, warm_up=1)
  assert not os.path.exists(f'/proc/{noted(path)[0]}')
