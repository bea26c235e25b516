"""Flags with any values: refused in one line, or accepted; nothing is trained, nothing written."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cifar10_main
import generate_cifar10_tfrecords
from cifar10 import control, local_cluster, report
from cifar10.options import flag_help as command_line

# These print and end, or are given below.
_OTHERS = ('-h', '--help', '--version', '--print-completion', '--list-recipes', '--job-dir')
# A process may choose these only once.
_ONCE = ('--distribute', '--num-cpu-towers', '--verbose')
VALUES = st.one_of(
  st.sampled_from(
    ['', '0', '-1', '1e308', 'nan', 'inf', '1,2', '2147483648', '1000000000', 'True', 'a b', "'"]
  ),
  st.integers().map(str),
  st.floats().map(str),
  st.lists(st.floats(), max_size=4).map(lambda numbers: ','.join(map(str, numbers))),
  st.text(st.characters(exclude_characters='\x00', exclude_categories=['Cs']), max_size=12),
)


def flags_of(parser):
  """A list of some of the parser's flags with values: its choices, or anything."""
  actions = [
    action
    for action in parser._actions
    if action.option_strings and not set(action.option_strings) & {*_OTHERS, *_ONCE}
  ]

  def given_values(action):
    flag = action.option_strings[-1]
    if action.nargs == 0:
      return st.just([flag])
    values = st.one_of(st.sampled_from(list(action.choices)), VALUES) if action.choices else VALUES
    return values.map(lambda value: [f'{flag}={value}'])

  each = st.sampled_from(actions).flatmap(given_values)
  return st.lists(each, max_size=5).map(lambda lists: [flag for flags in lists for flag in flags])


@pytest.fixture
def refused(run_here, tmp_path, monkeypatch):
  """Runs a command with flags: it says one line, and leaves the folder as it was."""
  monkeypatch.chdir(tmp_path)

  def run(*flags, command, codes):
    result = run_here(*flags, command=command)
    assert result.returncode in codes, (flags, result)
    assert 'Traceback' not in result.stderr
    assert len([line for line in result.stderr.splitlines() if 'error' in line]) <= 1
    assert os.listdir(tmp_path) == []

  return run


@given(flags_of(command_line.full_parser()))
def test_training(refused, flags):
  """Whatever is accepted lacks its data."""
  codes = {2}
  refused('--job-dir', 'job', '--data-dir', 'no', *flags, command=cifar10_main, codes=codes)


@given(flags_of(generate_cifar10_tfrecords._parser()))
def test_generating(refused, flags):
  """Whatever is accepted finds no folder of images."""
  flags = [flag for flag in flags if not flag.startswith(('--images', '--data-dir'))]
  refused('--images', 'no', *flags, command=generate_cifar10_tfrecords, codes={2})


@given(flags_of(report._parser()))
def test_reporting(refused, flags):
  refused('no', *flags, command=report, codes={2})


@given(VALUES)
def test_control(refused, order):
  refused('no', order, command=control, codes={1, 2})


@given(VALUES, VALUES)
def test_counts_of_a_local_cluster(workers, servers):
  for text in (workers, servers):
    try:
      assert 0 <= local_cluster._count(text) <= 100
    except (ValueError, local_cluster.argparse.ArgumentTypeError):
      continue
