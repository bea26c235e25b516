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


def test_networks_with_twins():
  for wrong in ('resnet20', 'resnet-21', 'resnet-2', 'wrn-16', 'wrn-17-4', 'wrn-4-1'):
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{wrong}'"):
      networks.name(wrong)
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
