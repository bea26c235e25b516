"""Declarations as flags and as a page of the docs."""

import sys

import checkout
import pytest

from cifar10.core.errors import InputError
from cifar10.core.option import declarations, names, picked
from cifar10.networks import registry
from cifar10.options import flag_help, flags, hparams
from cifar10.options.hparams import from_values
from cifar10.options.run_options import RunOptions

DECLARED = [declared for cls in flag_help.groups().values() for declared in declarations(cls)]


@pytest.fixture
def parser():
  return flag_help.full_parser()


def test_no_two_options_have_one_name():
  names = [declared.name for declared in DECLARED]
  assert len(names) == len(set(names))


def test_every_flag_of_the_program_is_taken(parser):
  of_all = names(*flags.COMMON.values(), *registry.FAMILIES.values())
  assert {action.dest for action in parser._actions} - of_all <= hparams._TAKEN


@pytest.mark.parametrize('declared', DECLARED, ids=lambda declared: declared.name)
def test_a_default_can_be_given_as_it_is_shown(parser, declared):
  """What --help and docs/flags.md show is what the flag takes; None cannot be given."""
  if declared.default is None or declared.name == 'job_dir':
    return
  given = flag_help.as_flag(declared.name, declared.default).split(' ')
  command = flags.command_of(vars(parser.parse_args(['--job-dir', 'j', *given])))
  taken = {**picked(RunOptions, command.given), **command.learning}
  assert taken == {'job_dir': 'j', declared.name: declared.default}


def test_a_familys_options_stand_under_its_name(parser):
  shown = parser.format_help()
  for name, family in registry.FAMILIES.items():
    rest = shown.partition(f'--network {name}: ')[2].partition('\n--network ')[0]
    for declared in declarations(family):
      assert declared.flag in rest


def test_the_page_of_the_docs_is_made_from_the_declarations():
  assert checkout.read('docs/flags.md') == flag_help.table(), 'run make docs'


@pytest.mark.parametrize(
  ('given', 'families'),
  [
    ([], ['resnet']),
    (['--num-layers', '20', '--nesterov'], ['resnet']),
    (['--network', 'vgg', '--vgg-layers', '11'], ['vgg']),
    (['--recipe', 'fast94', '--widths', '24,24,24'], ['fastnet']),
    # Shortened: it could be another family's, too.
    (['--num-lay', '20'], ['fastnet', 'inception', 'resnet', 'vgg', 'wrn']),
  ],
)
def test_only_the_chosen_family_is_loaded(given, families):
  code = (
    'import sys\n'
    'from cifar10.options import flags\n'
    'from cifar10.options.hparams import from_values\n'
    "from_values(flags.parse('').learning)\n"
    "print(*sorted(name for name in sys.modules if name.startswith('cifar10.networks.')))"
  )
  loaded = checkout.python('-c', code, '--job-dir', 'j', *given, must_succeed=True).stdout
  names = {name.rpartition('.')[2] for name in loaded.split()}
  assert sorted(names - {'family', 'layers', 'registry'}) == families


def test_a_flag_of_another_family_is_named_with_it(monkeypatch):
  monkeypatch.setattr(sys, 'argv', ['cifar10_main.py', '--job-dir', 'j', '--wrn-depth', '16'])
  assert flags.parse('').learning == {'wrn_depth': 16}
  with pytest.raises(InputError, match='--wrn-depth 16 belongs to --network wrn, not to resnet'):
    from_values({'wrn_depth': 16})


def test_the_table_of_families_says_what_they_say():
  for name, family in registry.FAMILIES.items():
    assert name == family.NAME
    recipes = [recipe for recipe, network in registry.RECIPES.items() if network == name]
    assert recipes == list(family.RECIPES)
