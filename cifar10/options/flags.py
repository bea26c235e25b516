"""Parses the command line of training: its own flags, and one flag for each declared option."""

from __future__ import annotations

import argparse
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cifar10.core import parts
from cifar10.core.errors import InputError
from cifar10.core.option import Declaration, declarations, picked
from cifar10.data.augmentation import Augmentation
from cifar10.networks import registry
from cifar10.options import checks, gone
from cifar10.options.hparams import HParams, family_of, recipe_values
from cifar10.options.run_options import RunOptions

DEFAULT_RECIPE = 'classic'  # It sets no options.
# The groups of options for all networks: a title, and the class that declares the options.
COMMON: dict[str, type] = {
  'where it runs and what it keeps': RunOptions,
  'training': HParams,
  'augmentation of training images': Augmentation,
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
  """Parses the command line; ends the process on --help and on errors.

  It parses in up to three rounds, to load little code: with the common options; then with those
  of the chosen family of networks; and, for --help, shortened flags and error messages, with the
  options of all families, or of the user's own one alone.
  """
  own: dict[str, type] = {}  # The user's own family, if one is chosen.
  parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
  add_own_flags(parser)
  add_flags(parser, COMMON)
  try:
    given, unknown = parser.parse_known_args()
    if unknown:
      by_recipe = registry.RECIPES.get(given.recipe, registry.DEFAULT)
      family = family_of(getattr(given, 'network', by_recipe))
      own = {f'--network {family.PLACE}: {family.TITLE}': family} if family.PLACE else {}
      add_flags(parser, {family.TITLE: family})
      given, unknown = parser.parse_known_args()
  except argparse.ArgumentError:
    unknown = ['?']
  if unknown:
    gone.refuse(sys.argv[1:])
    full_parser = parts.find('cifar10.options.flag_help:full_parser')
    given = full_parser(description, own).parse_args()
  return command_of(vars(given))


def command_of(given: dict[str, Any]) -> Command:
  """The values that a parser has found, by name, as what they ask for; raises InputError."""
  checks.check_units(given)
  learning = dict(given)
  mode, recipe, dry_run, verbose = map(learning.pop, ('mode', 'recipe', 'dry_run', 'verbose'))
  images, out = learning.pop('images', []), learning.pop('out', None)
  if out == '':
    raise InputError('--out is empty; name a file')
  for name in picked(RunOptions, given):
    del learning[name]
  if recipe:
    learning = recipe_values(recipe, learning)
  return Command(mode, images, out or '', dry_run, verbose, given, learning)


def add_own_flags(group: Any) -> None:
  """Adds the command's flags that are not declared options."""
  modes = ['train_and_evaluate', 'train', 'evaluate']
  modes += [mode for mode in ('predict', 'export') if mode in parts.PARTS]
  group.add_argument(
    '--mode', choices=modes, default=modes[0], help='what to do (default: %(default)s)'
  )
  group.add_argument(
    '--recipe',
    choices=tuple(registry.RECIPES),
    help=f'a set of other defaults, see --list-recipes (default: {DEFAULT_RECIPE})',
  )
  group.add_argument(
    '--network',
    type=_parse_network,
    choices=registry.FAMILIES,
    default=argparse.SUPPRESS,
    help='the family of networks, or your own as package.module:NAME (docs/python.md; default: '
    f'{registry.DEFAULT})',
  )
  if 'predict' in modes:
    group.add_argument(
      '--images',
      nargs='+',
      action='extend',
      metavar='PATH',
      default=[],
      help="for --mode predict: PNG or JPEG files, folders of them, patterns as 'photos/*.png', or "
      '.npy files of arrays uint8 [n, 32, 32, 3]; --subset in their place classifies a split',
    )
    group.add_argument(
      '--out',
      metavar='FILE',
      default=argparse.SUPPRESS,
      help='for --mode predict: the file of all predictions, .jsonl, .csv or .npz (default: a line '
      'for each image on standard output)',
    )
  group.set_defaults(dry_run=False)
  if 'dry_run' in parts.PARTS:
    group.add_argument(
      '--dry-run',
      action='store_true',
      help='check a training without doing it: report its size and time twenty steps, and write '
      'nothing to the job dir',
    )
  group.add_argument('--verbose', action='store_true', help="show TensorFlow's own log")


def add_flags(
  parser: argparse.ArgumentParser,
  titled: Mapping[str, type],
  help_of: Callable[[Declaration], str] = lambda declared: '',
) -> None:
  """Adds these groups' flags. A flag that is not given stays unset: recipe or job dir set it."""
  for title, cls in titled.items():
    group = parser.add_argument_group(title)
    for declared in declarations(cls):
      _add_flag(group, declared, help_of(declared))


def _add_flag(group: Any, declared: Declaration, help_text: str) -> None:
  settings: dict[str, Any] = {
    'dest': declared.name,
    'default': argparse.SUPPRESS,
    'help': help_text,
  }
  if declared.kind is bool:
    group.add_argument(declared.flag, nargs='?', const=True, type=_parse_bool, **settings)
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

  def parse(text: str) -> tuple:
    try:
      return tuple(number(part) for part in text.split(',')) if text not in ('', 'none') else ()
    except ValueError:
      raise argparse.ArgumentTypeError(f'{text!r} must be numbers separated by commas') from None

  return parse


class _Append(argparse.Action):
  """Appends a flag's values over its repetitions; an empty value adds none."""

  def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
    added = (values,) if values else ()
    setattr(namespace, self.dest, (*getattr(namespace, self.dest, ()), *added))


def _parse_network(text: str) -> str:
  if text not in registry.FAMILIES:
    raise argparse.ArgumentTypeError(f'invalid choice: {text!r} (choose from {registry.CHOICES})')
  return text


def _parse_bool(text: str) -> bool:
  values = {'true': True, '1': True, 'yes': True, 'false': False, '0': False, 'no': False}
  if text.lower() not in values:
    raise argparse.ArgumentTypeError(f'{text!r} is not True or False')
  return values[text.lower()]
