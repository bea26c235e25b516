"""The benchmarks of one process run, on tiny data, and print their records."""

import ctypes
import importlib.util
import json
import os
import re
import statistics
import sys

import checkout
import pytest
from outcome import succeeded

from cifar10.options import families

sys.path.append(os.path.join(checkout.ROOT, 'benchmarks'))

import records

long = pytest.mark.long
# Of inference: the program, its convolutions and other runtimes, each with two batch sizes.
OTHERS = [name for name in ('onnxruntime', 'openvino') if importlib.util.find_spec(name)]
RATES = 2 * (2 + len(OTHERS))
TURN = ['--turns', '1', '--seconds', '1', '--dtypes', 'float32']
RESNET8 = ['--network', 'resnet-8', '--batch-size', '16']
TINY = ['--pairs', '1', '--dtypes', 'float32']


@pytest.mark.slow
@pytest.mark.timeout(660)
@pytest.mark.parametrize(
  ('name', 'flags', 'rates'),
  [
    ('input_pipeline', ['--pairs', '1', '--batch-size', '16', '--batches', '2'], 3),
    ('python_source', ['--pairs', '1', '--batch-size', '16', '--batches', '2'], 4),
    pytest.param('training', [*TURN, *RESNET8], 4, marks=long),
    pytest.param('shapes', [*TURN, '--shapes', 'resnet-8:16,wrn-10-1:16'], 4, marks=long),
    pytest.param('inference', [*TINY, '--calls', '2', '--batch-size', '2'], RATES, marks=long),
    pytest.param('startup', ['--pairs', '1', '--only', 'import,one-step'], 0, marks=long),
    ('trace', ['--recipe', 'classic', '--num-layers', '8', '--batch-size', '4', '--steps', '1'], 0),
  ],
  ids=lambda value: value if isinstance(value, str) else '',
)
def test_a_benchmark_prints_its_record(data_dir, name, flags, rates):
  data = [] if name == 'trace' else ['--data-dir', data_dir]
  record = succeeded(checkout.python(f'benchmarks/{name}.py', *data, *flags, timeout=600))
  assert record['name'].replace(' ', '_') == name
  assert {'tensorflow', 'python', 'numpy'} == set(record['versions'])
  measured = record.get('images_per_second', {})
  if rates:
    assert len(measured) == rates
    assert all(rate > 0 for rate in measured.values())
  if name == 'trace':
    shares = record['share_by_operation']
    assert any('Conv2D' in operation for operation in shares)
    assert 0.5 < sum(shares.values()) <= 1.001


@pytest.mark.long
@pytest.mark.timeout(660)
def test_nothing_piles_up_over_steps_and_evaluations(data_dir):
  """Once TensorFlow's pools are full: no more handles and threads later, no temporary files."""
  flags = ['--data-dir', data_dir, '--steps', 2000, '--evaluations', 40]
  record = succeeded(checkout.python('benchmarks/soak_memory.py', *flags, timeout=600))
  assert record['training']['reached'] >= 1000
  assert record['evaluating']['reached'] >= 30
  for part in ('training', 'evaluating'):
    assert record[part]['temporary_files'] == [0, 0]
    if hasattr(ctypes.CDLL(None), 'mallinfo2'):  # glibc's, which counts what is held.
      assert 0 < record[part]['held_mib'][1] < record[part]['memory_mib'][1]
    for counted, (first, second) in record[part]['at_rest_in_each_half'].items():
      assert second <= first, (part, counted)  # Fewer: TensorFlow closes pools before the end.


def measured_recipes():
  """The foremost result of each recipe that was trained to its end."""
  results = records.foremost(records.read())
  titles = {name: re.search(r'--recipe ([\w-]+)', records.title(r)) for name, r in results.items()}
  return [(named[1], results[name]) for name, named in titles.items() if named]


@pytest.mark.parametrize(('recipe', 'record'), measured_recipes())
def test_a_recipe_says_the_accuracy_that_its_results_have(recipe, record):
  said, seeds = families.recipe(recipe).accuracy, records.accuracies(record)
  assert said.startswith(f'{100 * statistics.fmean(seeds):.2f} % ')
  if len(seeds) > 1:
    listed = ', '.join(f'{100 * seed:.2f}' for seed in seeds)
    assert f'(the mean of {len(seeds)} seeds: {listed}' in said
  else:
    assert re.search(r'one seed|n = 1', said)


def test_a_recipe_without_results_says_so():
  measured = {recipe for recipe, _ in measured_recipes()}
  assert {'fast94', 'fast95', 'he2015'} <= measured
  for recipe in set(families.RECIPES) - measured:
    assert 'not measured' in families.recipe(recipe).accuracy


def test_no_result_comes_from_a_changed_checkout():
  """A commit says what was measured only where nothing was changed since."""
  texts = {name: json.dumps(record) for name, record in records.read().items()}
  assert [name for name, text in texts.items() if '-dirty' in text] == []
