"""Parses the command line of training: its own flags, and one flag for each declared option.

python -m cifar10.options.flags > docs/flags.md
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import typing
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from cifar10.core.cli import OneLineParser, print_result
from cifar10.core.errors import InputError
from cifar10.core.option import Declaration, as_text, declarations, flag_of, picked
from cifar10.options import families, gone
from cifar10.options.families import Family
from cifar10.options.hparams import Augmentation, HParams, family_of, recipe_values
from cifar10.options.run_options import RunOptions

MODES = ('train_and_evaluate', 'train', 'evaluate', 'predict', 'export')
DEFAULT_RECIPE = 'classic'  # It sets no options.
# The groups of options for all networks: a title, and the class that declares the options.
COMMON: dict[str, type] = {
  'where it runs and what it keeps': RunOptions,
  'training': HParams,
  'augmentation of training images': Augmentation,
}
FAMILIES: dict[str, type] = {
  f'--network {name}: {each.TITLE}': each for name, each in families.BUILT_IN.items()
}


class Command(NamedTuple):
  """A parsed command line."""

  mode: str
  images: list[str]  # For prediction.
  out: str  # Where predictions are written to; '': on standard output.
  dry_run: bool
  verbose: bool
  given: dict[str, Any]  # All given options, and so those of `RunOptions`.
  learning: dict[str, Any]  # All other options that are given or that the recipe sets.


def parse(description: str) -> Command:
  """Parses the command line; ends the process on --help and on errors."""
  words = sys.argv[1:]
  gone.refuse(words)
  first = argparse.ArgumentParser(add_help=False, exit_on_error=False)
  first.add_argument('--network')
  own = None
  with contextlib.suppress(argparse.ArgumentError):  # The parser of all flags says what is wrong.
    network = first.parse_known_args(words)[0].network
    if network not in families.BUILT_IN and families.is_known(network):
      own = family_of(network)
  return command_of(vars(full_parser(description, own).parse_args(words)))


def command_of(given: dict[str, Any]) -> Command:
  """The values that a parser has found, by name, as what they ask for; raises InputError."""
  if {'train_steps', 'train_epochs'} <= set(given):
    steps, epochs = given['train_steps'], given['train_epochs']
    raise InputError(f'--train-steps {steps} and --train-epochs {epochs}: give one of the two')
  learning = {name: given[name] for name in set(given) - set(picked(RunOptions, given))}
  mode, recipe, dry_run, verbose = map(learning.pop, ('mode', 'recipe', 'dry_run', 'verbose'))
  images, out = learning.pop('images', []), learning.pop('out', None)
  if out == '':
    raise InputError('--out is empty; name a file')
  if recipe:
    learning = recipe_values(recipe, learning)
  return Command(mode, images, out or '', dry_run, verbose, given, learning)


def full_parser(
  description: str | None = None, own: type[Family] | None = None
) -> argparse.ArgumentParser:
  """Returns a parser of all flags.

  Args:
    description: the command's.
    own: the user's own family, if one is chosen; then without the other families, whose options
      may have the names of its own.
  """
  parser = OneLineParser(description=description)
  _add_own_flags(parser.add_argument_group('what it does'))
  titled = {f'--network {own.PLACE}: {own.TITLE}': own} if own else FAMILIES
  for title, cls in {**COMMON, **titled}.items():
    group = parser.add_argument_group(title)
    for declared in declarations(cls):
      _add_flag(group, declared)
  return parser


def _add_own_flags(group: argparse._ArgumentGroup) -> None:
  """Adds the command's flags that are not declared options."""
  group.add_argument(
    '--mode', choices=MODES, default=MODES[0], help='what to do (default: %(default)s)'
  )
  group.add_argument(
    '--recipe',
    choices=tuple(families.RECIPES),
    help=f'a set of other defaults, see --list-recipes (default: {DEFAULT_RECIPE})',
  )
  group.add_argument(
    '--network',
    type=_network,
    default=argparse.SUPPRESS,
    help=f'the family of networks: {families.CHOICES} (docs/python.md; default: '
    f'{families.DEFAULT})',
  )
  group.add_argument(
    '--images',
    nargs='+',
    action='extend',
    metavar='PATH',
    default=[],
    help='for --mode predict: image files and folders of them; --subset in their place classifies '
    'a split',
  )
  group.add_argument(
    '--out',
    metavar='FILE',
    default=argparse.SUPPRESS,
    help='for --mode predict: the .jsonl file of all predictions (default: standard output)',
  )
  group.add_argument(
    '--dry-run',
    action='store_true',
    help='check a training without doing it: report its size and time twenty steps, and write '
    'nothing to the job dir',
  )
  group.add_argument('--verbose', action='store_true', help="show TensorFlow's own log")
  listing = 'list all recipes with their accuracy'
  unset = argparse.SUPPRESS
  group.add_argument('--list-recipes', action=_ListRecipes, nargs=0, default=unset, help=listing)


class _ListRecipes(argparse.Action):
  """Prints each recipe with accuracy, cost and flags, and ends the process, like --help."""

  def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> NoReturn:
    for name in families.RECIPES:
      accuracy, cost, defaults = families.recipe(name)
      flags = ' '.join(as_flag(*default) for default in defaults.items()) or 'the defaults'
      print_result(f'{name}\n  accuracy: {accuracy}\n  cost: {cost}\n  is: {flags}')
    parser.exit()


def _add_flag(group: argparse._ArgumentGroup, declared: Declaration) -> None:
  default = shown_default(declared)
  settings: dict[str, Any] = {
    'dest': declared.name,
    'default': argparse.SUPPRESS,  # A flag that is not given stays unset: recipe or job dir set it.
    'help': declared.option.help.replace('%', '%%') + (f' (default: {default})' if default else ''),
  }
  if declared.kind is bool:
    group.add_argument(declared.flag, nargs='?', const=True, type=_bool, **settings)
    settings['help'] = argparse.SUPPRESS
    negated = declared.flag.replace('--', '--no-', 1)
    group.add_argument(negated, action='store_false', **settings)
    return
  if declared.kind == tuple[str, ...]:
    settings['action'] = _Append
  else:
    settings |= {'type': _parser_of(declared.kind), 'choices': declared.option.choices or None}
  group.add_argument(declared.flag, metavar=declared.option.metavar, **settings)


def _parser_of(kind: Any) -> Callable[[str], Any]:
  if typing.get_origin(kind) is not tuple:
    return kind
  number = typing.get_args(kind)[0]

  def parse(text: str) -> tuple[float, ...]:
    try:
      return tuple(number(part) for part in text.split(',')) if text not in ('', 'none') else ()
    except ValueError:
      raise argparse.ArgumentTypeError(f'{text!r} must be numbers separated by commas') from None

  return parse


class _Append(argparse.Action):
  """Appends a flag's values over its repetitions; an empty value adds none."""

  def __call__(self, parser: object, namespace: object, values: Any, _: object = None) -> None:
    added = (values,) if values else ()
    setattr(namespace, self.dest, (*getattr(namespace, self.dest, ()), *added))


def _network(text: str) -> str:
  if text in gone.NETWORKS:
    raise argparse.ArgumentTypeError(f'{text} {gone.NETWORKS[text]}')
  if not families.is_known(text):
    raise argparse.ArgumentTypeError(f'invalid choice: {text!r} (choose from {families.CHOICES})')
  return text


def _bool(text: str) -> bool:
  values = {'true': True, '1': True, 'yes': True, 'false': False, '0': False, 'no': False}
  if text.lower() not in values:
    raise argparse.ArgumentTypeError(f'{text!r} is not True or False')
  return values[text.lower()]


def as_flag(name: str, value: object) -> str:
  """Returns an option as it is given on the command line: '--lr-values 1,0.1'."""
  return flag_of(name) if value is True else f'{flag_of(name)} {as_text(value)}'


def shown_default(declared: Declaration) -> str:
  """Returns an option's default as it is typed; '' for None, 'none' for an empty tuple or text."""
  return '' if declared.default is None else as_text(declared.default) or 'none'
