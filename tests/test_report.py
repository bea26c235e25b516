"""The documents' tables and pictures are those of the committed results."""

import argparse
import importlib.util
import sys

import checkout
import pytest

sys.path.insert(0, f'{checkout.ROOT}/benchmarks')  # As for the scripts there.

import commands
import learning_curve
import networks
import report
import tables
from records import foremost

from cifar10.job import metrics_log


def run(script, *flags, **settings):
  return checkout.python(f'benchmarks/{script}', *flags, **settings)


@pytest.mark.parametrize('script', ['report.py', 'pictures.py'])
def test_what_is_committed_is_made_from_the_results(script):
  run(script, '--check', must_succeed=True)


def test_every_result_has_a_place_and_every_place_a_result():
  text = '# A\n<!-- made: one -->\nold\n<!-- /made -->\nB\n'
  filled = report.fill({'a.md': text}, {'one': '| 1 |\n'})
  assert filled == {'a.md': '# A\n<!-- made: one -->\n| 1 |\n<!-- /made -->\nB\n'}
  with pytest.raises(ValueError, match=r'a\.md has a place for one'):
    report.fill({'a.md': text}, {})
  with pytest.raises(ValueError, match='two has no place'):
    report.fill({'a.md': text}, {'one': '', 'two': ''})


def test_a_ratio_stands_beside_its_row():
  record = {
    'images_per_second': {'program float32': 509.2, 'torch float32': 503.5},
    'ratios': {'program / torch, float32': 1.011},
  }
  assert tables._training(record).splitlines() == [
    '| images/s | float32 | program ÷ row |',
    '|---|---:|---:|',
    '| this program | 509 |  |',
    '| PyTorch | 504 | **1.01** |',
  ]


def record_of(**more):
  machine = {'cores': 2, 'processor': 'one'}
  versions = {'tensorflow': '2.15.1', 'python': '3.11.7'}
  return {'name': 'x', 'hardware': machine, 'versions': versions, 'commit': 'c', **more}


def test_a_note_stands_below_its_table():
  rates = {'images_per_second': {'batches': 9.0}, 'ratios': {}}
  record = record_of(command='run', note='Twice.', **rates)
  assert tables.tables({'rates': record})['rates'].endswith('| batches | 9 |\n\nTwice.\n')


def test_a_table_names_the_gpu_before_the_processor():
  rates = {'images_per_second': {'batches': 9.0}, 'ratios': {}}
  record = record_of(command='run', **rates)
  record['hardware'] = {'gpu': 'a GPU', 'cores': 2, 'processor': 'one'}
  made = tables.tables({'training_gpu': record})
  assert made['training_gpu'].startswith('Measured on a GPU and 2 cores of one, ')


def test_a_recipe_without_peers_has_a_row_and_no_table():
  runs = {'runs': [{'seed': 3, 'accuracy': 0.951}], 'accuracy_mean': 0.951}
  more = {'recipe': 'fast95', 'seconds_median': 1800, 'accuracy_without_tta_mean': 0.94}
  record = record_of(command='run', note='Alone.', twins={}, ratios={}, **runs, **more)
  made = tables.tables({'one': record})
  assert 'one' not in made
  assert '| `--recipe fast95` | **95.10 %** (seed 3: 95.10), without' in made['trained']
  assert made['trained'].endswith('; `run`. Alone.\n')


def test_the_summary_says_the_speed_beside_keras_and_pytorch():
  ratios = {
    f'program / {peer}, {dtype}': ratio
    for peer, dtype, ratio in (
      ('keras', 'float32', 1.037),
      ('torch', 'float32', 1.158),
      ('keras', 'bfloat16', 0.957),
      ('torch', 'bfloat16', 0.996),
    )
  }
  rates = {'program float32': 973.7}
  record = record_of(command='run', turns=10, seconds_of_a_turn=4, images_per_second=rates)
  record = {**record, 'name': 'training', 'ratios': ratios}
  ratios = {'program / keras, float32': 0.94, 'program / torch, float32': 1.01}
  slower = {**record, 'ratios': ratios}
  made = tables.tables({'training': record, 'training_avx2': slower})
  assert made['summary'].endswith(
    ' ResNet-20 with batch 128 trains 0.94 to 1.04 times as fast as Keras and 1.00 to 1.16 times '
    'as fast as PyTorch, by processor and dtype ([docs/results.md](docs/results.md)).\n'
  )
  assert ', commit `c`; medians of 10 turns of 4 seconds:\n`run`' in made['training']


def test_a_row_for_each_network_and_batch():
  rates = {'program float32': 462.4, 'keras float32': 420.0}
  ratios = {'program / keras, float32': 1.101}
  record = {
    'images_per_second': {f'resnet-20, batch 128: {name}': rate for name, rate in rates.items()},
    'ratios': {f'resnet-20, batch 128: {name}': ratio for name, ratio in ratios.items()},
  }
  assert tables._shapes(record).splitlines() == [
    '| network, batch | float32: images/s | ÷ Keras |',
    '|---|---:|---:|',
    '| resnet-20, batch 128 | 462 | **1.10** |',
  ]


def test_the_foremost_training_of_a_recipe_has_the_most_runs():
  """Of equally many the first; then by accuracy."""
  few, many, other = (
    {'recipe': recipe, 'runs': runs * [{'accuracy': accuracy}], 'twins': {}}
    for recipe, accuracy, runs in (('fast94', 0.95, 1), ('fast94', 0.94, 3), ('fast95', 0.945, 1))
  )
  records = {'few': few, 'many': many, 'other': other, 'speed': {'ratios': {}}}
  assert list(foremost(records)) == ['other', 'many']


def test_a_records_command_can_be_run_again(monkeypatch):
  parser = argparse.ArgumentParser()
  parser.add_argument('--shapes', default=[])
  flags = parser.parse_args([])
  flags.shapes = ['resnet-20:32', 'wrn-16-4:128']
  monkeypatch.setattr(sys, 'argv', ['/somewhere/benchmarks/shapes.py'])
  monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', 'AVX2')
  assert commands.command_line(parser, flags) == (
    'ONEDNN_MAX_CPU_ISA=AVX2 python benchmarks/shapes.py --shapes resnet-20:32,wrn-16-4:128'
  )


@pytest.mark.parametrize(
  'name', ['resnet20', 'resnet-21', 'resnet-2', 'wrn-16', 'wrn-17-4', 'wrn-4-1']
)
def test_networks_without_a_twin(name):
  with pytest.raises(argparse.ArgumentTypeError, match=f"'{name}'"):
    networks.name(name)


def test_networks_with_twins():
  assert networks.options('resnet-20') == {'network': 'resnet', 'num_layers': 20}
  assert networks.options(networks.name('wrn-16-4')) == {
    'network': 'wrn',
    'wrn_depth': 16,
    'wrn_widen_factor': 4,
  }


def test_a_curve_has_the_last_evaluation_of_each_step(tmp_path):
  for step, split, accuracy in (
    (20, 'validation', 0.25),
    (10, 'validation', 0.5),
    (20, 'validation', 0.75),
    (20, 'eval', 0.7),
  ):
    event = {'event': 'evaluate', 'step': step, 'subset': split, 'accuracy': accuracy}
    metrics_log.append(str(tmp_path), {**event, 'cross_entropy': 1.0})
  metrics_log.append(str(tmp_path), {'event': 'train', 'step': 30, 'loss': 1.0})
  assert learning_curve.curve(str(tmp_path)) == [
    (20, 'eval', 0.7, 1.0),
    (10, 'validation', 0.5, 1.0),
    (20, 'validation', 0.75, 1.0),
  ]


@pytest.mark.skipif(not importlib.util.find_spec('matplotlib'), reason='needs matplotlib')
@pytest.mark.slow
def test_pictures_say_the_results_and_are_the_same_each_time(tmp_path):
  drawn = []
  for name in ('once', 'again'):
    folder = tmp_path / name
    run('pictures.py', '--folder', folder, must_succeed=True)
    drawn.append({path.name: path.read_bytes() for path in folder.iterdir()})
  assert drawn[0] == drawn[1]
  assert set(drawn[0]) == {'accuracy.svg', 'learning_curves.svg'}
  assert run('pictures.py', '--check', '--folder', tmp_path / 'once').returncode == 0
  lost = tmp_path / 'once' / 'accuracy.svg'
  lost.write_bytes(lost.read_bytes().replace(b' % (n', b' (n'))
  checked = run('pictures.py', '--check', '--folder', tmp_path / 'once')
  assert checked.returncode == 1
  assert 'accuracy.svg does not say' in checked.stderr
