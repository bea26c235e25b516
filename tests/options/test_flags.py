"""Declarations as flags and as a page of the docs."""

import os

import pytest

from cifar10.core.option import declarations
from cifar10.networks.registry import FAMILIES
from cifar10.options import flags

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DECLARED = [declared for cls in flags.groups().values() for declared in declarations(cls)]


@pytest.fixture
def parser():
  return flags.full_parser()


def test_no_two_options_have_one_name():
  names = [declared.name for declared in DECLARED]
  assert len(names) == len(set(names))


@pytest.mark.parametrize('declared', DECLARED, ids=lambda declared: declared.name)
def test_a_default_can_be_given_as_it_is_shown(parser, declared):
  """What --help and docs/flags.md show is what the flag takes; None cannot be given."""
  if declared.default is None or declared.name == 'job_dir':
    return
  given = flags.as_flag(declared.name, declared.default).split(' ')
  command = flags.command_of(vars(parser.parse_args(['--job-dir', 'j', *given])))
  assert {**command.run, **command.learning} == {'job_dir': 'j', declared.name: declared.default}


def test_a_familys_options_stand_under_its_name(parser):
  shown = parser.format_help()
  for name, family in FAMILIES.items():
    _, _, rest = shown.partition(f'--network {name}: ')
    for declared in declarations(family):
      assert declared.flag in rest


def test_the_page_of_the_docs_is_made_from_the_declarations():
  with open(os.path.join(ROOT, 'docs', 'flags.md'), encoding='utf-8') as file:
    assert file.read() == flags.table(), 'run make docs'
