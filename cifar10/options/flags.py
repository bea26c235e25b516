"""Parses the command line of training: one flag for each declared option."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import typing
from collections.abc import Callable, Sequence
from typing import Any

from cifar10.core.cli import OneLineParser, Printed
from cifar10.core.errors import InputError
from cifar10.core.option import Declaration, as_flag, as_text, declarations, flag_of, names, option
from cifar10.options import families, gone
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


# Of no flags, but arguments in Python, and what else config.json holds.
_TAKEN = {'callbacks', 'control', 'data', 'data_set'}


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


def parse(description: str, words: Sequence[str] | None = None) -> dict[str, Any]:
  """Returns the given options by name; ends the process on --help, raises InputError on errors.

  `words` are of a call in Python, which gives names in full; by default those of the command line.
  """
  is_call, words = words is not None, sys.argv[1:] if words is None else words
  gone.refuse(words)
  first = argparse.ArgumentParser(add_help=False, exit_on_error=False)
  first.add_argument('--network')
  own = None
  with contextlib.suppress(argparse.ArgumentError):  # The parser of all flags says what is wrong.
    network = first.parse_known_args(words)[0].network
    if network not in families.BUILT_IN and families.is_known(network):
      own = families.find(network)
  try:
    parser = full_parser(description, own, allow_abbrev=not is_call)
    if own and (taken := names(own) & _TAKEN):
      raise argparse.ArgumentError(None, f'{min(taken)} is no name of an option')
  except argparse.ArgumentError as error:
    raise InputError(f'--network {network} has an option whose name is taken: {error}') from None
  given = vars(parser.parse_args(words))
  # An empty text adds none to a list.
  return {
    name: tuple(filter(None, value)) if isinstance(value, list) else value
    for name, value in given.items()
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
  group.add_argument(
    '--network',
    default=argparse.SUPPRESS,
    help=f'the family of networks: {families.CHOICES} (docs/python.md; default: '
    f'{families.DEFAULT})',
  )
  listing = 'list all recipes with their accuracy'
  group.add_argument('--list-recipes', action=Printed, const=_recipes, help=listing)
  for declared in declarations(Command):
    _add_flag(group, declared)
  for title, cls in {**COMMON, **titled}.items():
    group = parser.add_argument_group(title)
    for declared in declarations(cls):
      if declared.has_flag:
        _add_flag(group, declared)
  if own:  # What the built-in families have is refused by name.
    others = {each.name: each for each in declarations(*families.BUILT_IN.values())}
    for name in others.keys() - names(own):
      _add_flag(parser, others[name], is_shown=False)
  return parser


def _recipes(parser: argparse.ArgumentParser) -> str:
  """Returns each recipe with accuracy, cost and flags."""
  lines = []
  for name, (accuracy, cost, defaults) in families.RECIPES.items():
    flags = ' '.join(as_flag(*default) for default in defaults.items()) or 'the defaults'
    lines.append(f'{name}\n  accuracy: {accuracy}\n  cost: {cost}\n  is: {flags}')
  return '\n'.join(lines)


def _add_flag(
  group: argparse._ActionsContainer, declared: Declaration, *, is_shown: bool = True
) -> None:
  flag, default = flag_of(declared.name), shown_default(declared)
  settings: dict[str, Any] = {
    'dest': declared.name,
    'default': argparse.SUPPRESS,  # A flag that is not given stays unset: recipe or job dir set it.
    'help': declared.help.replace('%', '%%') + (f' (default: {default})' if default else ''),
  }
  if not is_shown:
    settings['help'] = argparse.SUPPRESS
  if declared.kind is bool:
    group.add_argument(flag, nargs='?', const=True, type=_bool, **settings)
    settings['help'] = argparse.SUPPRESS
    group.add_argument(flag.replace('--', '--no-', 1), action='store_false', **settings)
    return
  if declared.kind == tuple[str, ...]:
    settings |= {'action': 'extend', 'nargs': '+'}
  else:
    settings |= {'type': _parser_of(declared.kind), 'choices': declared.choices or None}
  group.add_argument(flag, metavar=declared.metavar, **settings)


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


def _bool(text: str) -> bool:
  values = {'true': True, '1': True, 'yes': True, 'false': False, '0': False, 'no': False}
  if text.lower() not in values:
    raise argparse.ArgumentTypeError(f'{text!r} is not True or False')
  return values[text.lower()]


def shown_default(declared: Declaration) -> str:
  """Returns an option's default as it is typed; '' for None, 'none' for an empty tuple or text."""
  return '' if declared.default is None else as_text(declared.default) or 'none'
