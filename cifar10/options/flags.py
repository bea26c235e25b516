"""Parses the command line of training: one flag for each declared option."""

import argparse
import dataclasses
import functools
import sys
from collections.abc import Sequence
from typing import Any

from cifar10.core.cli import OneLineParser, Printed
from cifar10.core.errors import InputError
from cifar10.core.option import Declaration, as_flag, as_text, declarations, flag_of, names, option
from cifar10.options import families
from cifar10.options.families import Family
from cifar10.options.hparams import Augmentation, HParams
from cifar10.options.run_options import RunOptions

MODES = ('train_and_evaluate', 'train', 'evaluate', 'predict', 'export')
# The groups of options for all networks: a title, and the class that declares the options.
COMMON: dict[str, type] = {
  'where it runs and what it keeps': RunOptions,
  'training': HParams,
  'augmentation of training images': Augmentation,
}
FAMILIES: dict[str, type] = {
  f'--network {name}: {each.TITLE}': each for name, each in families.BUILT_IN.items()
}


@dataclasses.dataclass(frozen=True)
class Command:
  """What the command does: options of which no job keeps anything."""

  mode: str = option(MODES[0], 'what to do', choices=MODES)
  recipe: str | None = option(
    None, 'other defaults, see --list-recipes (default: classic)', choices=tuple(families.RECIPES)
  )
  images: tuple[str, ...] = option(
    (), 'image files and folders to predict; --subset in place predicts a split', metavar='PATH'
  )
  out: str | None = option(
    None, 'for --mode predict: the .jsonl of answers (default: standard output)', metavar='FILE'
  )
  dry_run: bool = option(False, 'check a training, tell its size, time ten steps; write no job dir')
  verbose: bool = option(False, "show TensorFlow's own log")


# What no option of a user's own network may be called: ours, and what else config.json holds, a
# call in Python takes or argparse adds.
_TAKEN = {'callbacks', 'control', 'data', 'data_set', 'help', 'list_recipes', 'network', 'version'}
_TAKEN |= names(Command, *COMMON.values())


def parse(description: str, words: Sequence[str] | None = None) -> dict[str, Any]:
  """Returns the given options by name; ends the process on --help, raises InputError on errors.

  `words` are of a call in Python, which gives names in full; by default those of the command line.
  """
  is_call, words = words is not None, sys.argv[1:] if words is None else words
  first = OneLineParser(add_help=False, allow_abbrev=not is_call)
  first.add_argument('--network')
  network = first.parse_known_args(words)[0].network
  is_own = network not in families.BUILT_IN and families.is_known(network)
  own = families.find(network) if is_own else None
  if own and (taken := names(own) & _TAKEN):
    raise InputError(f'--network {network} has an option whose name is taken: {min(taken)}')
  try:
    parser = full_parser(description, own, allow_abbrev=not is_call)
  except argparse.ArgumentError as error:  # `no_sync`, beside the --no-sync of sync.
    said = f'--network {network} has an option whose name is taken: {error}'
    raise InputError(said) from None
  # An empty text adds none to a list.
  return {
    name: tuple(filter(None, value)) if isinstance(value, list) else value
    for name, value in vars(parser.parse_args(words)).items()
  }


def full_parser(
  description: str | None = None, own: type[Family] | None = None, *, allow_abbrev: bool = True
) -> argparse.ArgumentParser:
  """Returns a parser of all flags.

  With a user's `own` family it shows none of the others, whose options it may have of its own.
  """
  parser = OneLineParser(description=description, allow_abbrev=allow_abbrev)
  titled = {f'--network {own.PLACE}: {own.TITLE}': own} if own else FAMILIES
  group = parser.add_argument_group('what it does')
  text = f'the family of networks: {families.CHOICES} (docs/python.md; default: {families.DEFAULT})'
  group.add_argument('--network', default=argparse.SUPPRESS, help=text)
  listing = 'list all recipes with their accuracy'
  group.add_argument('--list-recipes', action=Printed, const=_recipes, help=listing)
  for declared in declarations(Command):
    _add_flag(group, declared)
  for title, cls in {**COMMON, **titled}.items():
    group = parser.add_argument_group(title)
    for declared in declarations(cls):
      if declared.help is not None:
        _add_flag(group, declared)
  if own:  # What the built-in families have is refused by name.
    for declared in declarations(*families.BUILT_IN.values()):
      if declared.name not in names(own):
        _add_flag(parser, declared).help = argparse.SUPPRESS
  return parser


def _recipes(parser: argparse.ArgumentParser) -> str:
  """Returns each recipe with accuracy, cost and flags."""
  lines = []
  for name, (accuracy, cost, defaults) in families.RECIPES.items():
    flags = ' '.join(as_flag(*default) for default in defaults.items()) or 'the defaults'
    lines.append(f'{name}\n  accuracy: {accuracy}\n  cost: {cost}\n  is: {flags}')
  return '\n'.join(lines)


def _add_flag(group: argparse._ActionsContainer, declared: Declaration) -> argparse.Action:
  flag, default = flag_of(declared.name), shown_default(declared)
  help = (declared.help or '').replace('%', '%%') + (f' (default: {default})' if default else '')
  # A flag that is not given stays unset: recipe or job dir set it.
  add = functools.partial(group.add_argument, dest=declared.name, default=argparse.SUPPRESS)
  settings: dict[str, Any] = {'type': declared.parsed}
  if declared.kind is bool:
    settings |= {'nargs': '?', 'const': True}
    add(flag.replace('--', '--no-', 1), action='store_false', help=argparse.SUPPRESS)
  elif declared.kind == tuple[str, ...]:
    settings = {'action': 'extend', 'nargs': '+'}
  settings |= {'choices': declared.choices or None, 'metavar': declared.metavar}
  return add(flag, help=help, **settings)


def shown_default(declared: Declaration) -> str:
  """Returns an option's default as it is typed; '' for one that nobody can type."""
  if declared.default in (None, '') or declared.kind == tuple[str, ...]:
    return ''
  return as_text(declared.default) or 'none'  # An empty tuple of numbers.
